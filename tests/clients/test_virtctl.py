"""What virtctl asks, call by call and in its own words, as a user of one namespace.  Each is answered as KubeVirt does.

Where Ferry has no function yet the answer is a refusal that says so; what is not KubeVirt's answer stands in MISSING.
"""
import base64
import json
import os
import re
import socket

import ferrytest as ft
import pytest
from conftest import User, tiny_vm

NS, VM = "virtctl", "v"
SUBRESOURCES = "/apis/subresources.kubevirt.io/v1"
# kubectl and virtctl print the body of a refusal: this one says that waiting does not help.
MISSING = (501, "not supported by Ferry yet")
NO_AGENT = (409, "VMI does not have guest agent connected")


class Virtctl:
    def __init__(self, cluster):
        admin = cluster.api
        self.user = User(cluster, NS)
        admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
        for role in ("admin", "kubevirt.io:migrate"):
            admin.call("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NS}/rolebindings", {
                "metadata": {"name": role.replace(":", "-")},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": NS}]})
        self.admin, self.api = admin, ft.Api(self.user.kubeconfig, NS)

    def ask(self, method, path, body=None, want=(200, "")):
        """The answer; want: (code, a part of what is said)."""
        code, text, _ = self.api.raw(method, path, body)
        text = text.decode(errors="replace")
        assert code == want[0] and want[1] in text, f"{method} {path} {body}: {code} {text[:2000]}, not {want}"
        return json.loads(text) if text[:1] == "{" else text

    def vm(self, what, body=None, want=(202, ""), method="PUT"):
        return self.ask(method, f"{SUBRESOURCES}/namespaces/{NS}/virtualmachines/{VM}/{what}", body, want)

    def vmi(self, what, body=None, want=(200, ""), method="PUT"):
        return self.ask(method, f"{SUBRESOURCES}/namespaces/{NS}/virtualmachineinstances/{VM}/{what}", body, want)

    def stream(self, what, resource="virtualmachineinstances"):
        """A websocket as client-go opens it: (code, head and what follows of the answer, connection)."""
        key = base64.b64encode(os.urandom(16)).decode()
        s = self.api.ctx.wrap_socket(socket.create_connection((self.api.host, self.api.port), 30), server_hostname=self.api.host)
        s.sendall((f"GET {SUBRESOURCES}/namespaces/{NS}/{resource}/{VM}/{what} HTTP/1.1\r\nHost: {self.api.host}:{self.api.port}\r\n"
                   f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
                   "Sec-WebSocket-Protocol: plain.kubevirt.io\r\n\r\n").encode())
        s.settimeout(90)
        text = b""
        while b"\r\n\r\n" not in text:
            piece = s.recv(4096)
            assert piece, text
            text += piece
        return int(text.split()[1]), text.decode(errors="replace"), s

    def refused_stream(self, what, want, resource="virtualmachineinstances"):
        code, text, s = self.stream(what, resource)
        length = int(re.search(r"content-length: (\d+)", text, re.I)[1]) if code != 101 else 0
        while len(text.split("\r\n\r\n", 1)[1]) < length:
            piece = s.recv(4096).decode(errors="replace")
            assert piece, (code, text)
            text += piece
        s.close()
        assert code == want[0] and want[1] in text, (what, text)

    def is_vm(self, status):
        return self.api.wait("VirtualMachine", VM, lambda v: ft.printable(v) == status, 90)

    def vmims(self):
        """As migrate-cancel looks for what it may cancel."""
        return self.api.list("VirtualMachineInstanceMigration", f"kubevirt.io%2Fvmi-name%3D%3D{VM}")


@pytest.fixture(scope="module")
def v(cluster, images):
    v = Virtctl(cluster)
    v.api.create(tiny_vm(images, VM))
    v.is_vm("Running")
    yield v
    v.api.delete("VirtualMachine", VM)
    v.api.wait("VirtualMachine", VM, lambda o: o is None, 90)
    v.admin.delete("Namespace", NS)


def test_version(v):
    assert v.ask("GET", f"{SUBRESOURCES}/version")["gitVersion"].startswith("v")
    assert v.ask("GET", f"{SUBRESOURCES}/healthz")


def paused(o):
    return bool(ft.condition(o, "Paused"))


def test_pause_and_unpause(v):
    v.vmi("pause", {"dryRun": ["All"]})
    assert not paused(v.api.get("VirtualMachineInstance", VM))
    v.vmi("pause", {})
    v.api.wait("VirtualMachineInstance", VM, paused, 20)
    v.vmi("pause", {}, (409, "VMI is already paused"))
    v.vmi("unpause", {})
    v.api.wait("VirtualMachineInstance", VM, lambda o: not paused(o), 20)
    v.vmi("unpause", {}, (409, "VMI is not paused"))


def test_console(v):
    code, text, s = v.stream("console")
    assert code == 101 and re.search(r"sec-websocket-protocol: plain\.kubevirt\.io\r\n", text, re.I), text
    while "tick " not in text:
        piece = s.recv(4096).decode(errors="replace")
        assert piece, text
        text += piece
    s.close()


def test_the_screen(v):
    code, text, s = v.stream("vnc")
    assert code == 101, text
    while "RFB 003." not in text:
        piece = s.recv(4096).decode(errors="replace")
        assert piece, text
        text += piece
    v.refused_stream("vnc?preserveSession=true", (503, "Active VNC connection. Request denied."))
    s.close()
    v.vmi("vnc/screenshot", None, (200, "PNG"), "GET")


def test_a_port(v):
    for plural in ("virtualmachineinstances", "virtualmachines"):
        code, text, s = v.stream("portforward/7777/tcp", plural)
        assert code == 101, text
        s.close()
        v.refused_stream("portforward/0/tcp", (400, "port must be a number in 1..65535"), plural)
        v.refused_stream("portforward/7777/sctp", (400, "protocol must be tcp or udp"), plural)


def test_streams_that_the_vm_has_no_device_for(v):
    v.refused_stream("usbredir", (400, "Not configured with USB Redirection"))
    # KubeVirt's roles of users do not have it, so its administrator hears the rest.
    v.refused_stream("vsock?port=22&tls=true", (401, 'cannot get resource "virtualmachineinstances/vsock"'))


def test_what_the_guest_agent_would_say(v):
    for what in ("guestosinfo", "userlist", "filesystemlist"):
        v.vmi(what, None, NO_AGENT, "GET")


def test_migrate_cancel_and_migrate(v):
    v.vm("migrate", {"dryRun": ["All"]})
    assert v.vmims() == []
    node = v.api.get("VirtualMachineInstance", VM)["status"]["nodeName"]
    v.admin.create({"apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy", "metadata": {"name": "virtctl-slow"},
                    "spec": {"bandwidthPerMigration": "64Ki", "selectors": {"virtualMachineInstanceSelector": {"app": VM}}}})
    v.vm("migrate", {})
    first, = v.vmims()
    assert first["metadata"]["name"].startswith("kubevirt-migrate-vm-") and first["spec"]["vmiName"] == VM
    name = first["metadata"]["name"]
    v.api.wait("VirtualMachineInstanceMigration", name, lambda m: ft.phase(m) == "Running", 60)
    v.api.delete("VirtualMachineInstanceMigration", name)
    v.api.wait("VirtualMachineInstanceMigration", name, lambda m: m is None or ft.phase(m) == "Failed", 60)
    assert v.api.get("VirtualMachineInstance", VM)["status"]["nodeName"] == node
    v.admin.delete("MigrationPolicy", "virtctl-slow")
    other = "node-2" if node == "node-1" else "node-1"
    v.vm("migrate", {"addedNodeSelector": {"kubernetes.io/hostname": other}})
    v.api.wait("VirtualMachineInstance", VM, lambda o: o["status"]["nodeName"] == other, 120)
    ft.poll(lambda: all(ft.phase(m) in ft.FINAL for m in v.vmims()), 30, "Found no migration to cancel for v")
    v.vmi("evacuate/cancel", {})
    v.vm("evacuate/cancel", {}, (200, ""))


def test_what_reaches_into_the_guest(v):
    v.vmi("freeze", {"unfreezeTimeout": "1m"}, NO_AGENT)
    v.vmi("unfreeze", None, NO_AGENT)
    for what in ("reset", "softreboot"):
        v.vmi(what)


def test_volumes_and_memory(v):
    disk = {"name": "d", "disk": {"disk": {"bus": "scsi"}}, "volumeSource": {"persistentVolumeClaim": {"claimName": "d"}}}
    v.ask("GET", f"/apis/cdi.kubevirt.io/v1beta1/namespaces/{NS}/datavolumes/d", None, (404, "not found"))
    v.ask("GET", f"/api/v1/namespaces/{NS}/persistentvolumeclaims/d", None, (404, "not found"))
    v.vm("addvolume", disk, MISSING)
    v.vmi("addvolume", disk, (400, "VMI virtctl/v is owned by a VM"))
    v.vm("removevolume", {"name": "d"}, (409, "Unable to remove volume [d] because it does not exist"))
    v.vmi("removevolume", {"name": "d"}, (400, "VMI virtctl/v is owned by a VM"))
    v.vm("memorydump", {"claimName": "d"}, MISSING)
    # Nor do they have this one.
    v.vm("removememorydump", {}, (401, 'cannot update resource "virtualmachines/removememorydump"'))


def test_expand_and_expose(v):
    vm = v.vm("expand-spec", None, (200, ""), "GET")
    assert vm["kind"] == "VirtualMachine" and vm["spec"]["template"]["spec"]["domain"]["memory"]["guest"] == "128Mi"
    vm = v.ask("PUT", f"{SUBRESOURCES}/namespaces/{NS}/expand-vm-spec", tiny_vm("x", "y"))
    assert vm["metadata"]["name"] == "y"
    v.ask("PUT", f"{SUBRESOURCES}/namespaces/{NS}/expand-vm-spec", {"kind": "Pod"}, (400, "Object is not a valid VirtualMachine"))
    vmi = v.api.get("VirtualMachineInstance", VM)
    v.api.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "exposed"},
                  "spec": {"selector": {"vmi.kubevirt.io/id": VM}, "ports": [{"port": 7777, "targetPort": 7777}]}})
    ft.poll(lambda: [a for s in v.admin.list("EndpointSlice", "kubernetes.io/service-name=exposed", ns=NS)
                     for e in s.get("endpoints") or [] for a in e["addresses"]] == [ft.vmi_address(vmi)], 30,
            "the Service leads to the VM")


def test_kinds_that_virtctl_makes(v):
    """image-upload, vmexport, guestfs, credentials: to make what they need is refused, and says why."""
    v.ask("POST", f"/apis/cdi.kubevirt.io/v1beta1/namespaces/{NS}/datavolumes", {
        "metadata": {"name": "up"}, "spec": {"source": {"upload": {}}, "storage": {"resources": {"requests": {"storage": "1Gi"}}}}},
        (422, "not supported by Ferry yet: there is no importer"))
    v.ask("POST", f"/apis/export.kubevirt.io/v1/namespaces/{NS}/virtualmachineexports", {
        "metadata": {"name": "e"}, "spec": {"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": VM}}},
        (422, "not supported by Ferry yet"))
    v.ask("POST", f"/api/v1/namespaces/{NS}/pods", {
        "metadata": {"name": "libguestfs-tools-d"}, "spec": {"containers": [{"name": "libguestfs", "image": "x"}]}},
        (403, "cannot create resource \\\"pods\\\""))
    keys = [{"sshPublicKey": {"source": {"secret": {"secretName": "k"}}, "propagationMethod": {"noCloud": {}}}}]
    with pytest.raises(ft.ApiError) as e:
        v.api.patch("VirtualMachine", VM, [{"op": "add", "path": "/spec/template/spec/accessCredentials", "value": keys}], type_="json")
    assert e.value.status == 422 and "spec.template.spec.accessCredentials[0].sshPublicKey requires" in e.value.message
    v.ask("GET", f"{SUBRESOURCES}/guestfs", None, MISSING)
    v.vm("objectgraph", None, MISSING, "GET")
    v.vmi("objectgraph", None, MISSING, "GET")


def test_stop_start_restart(v):
    v.vm("start", {}, (409, "VM is already running"))
    v.vm("restart", {"gracePeriodSeconds": 5}, (400, "For force restart, only gracePeriod=0 is supported for now"))
    uid = v.api.get("VirtualMachineInstance", VM)["metadata"]["uid"]
    v.vm("stop", {"dryRun": ["All"]})
    v.vm("restart", {"dryRun": ["All"]})
    assert v.api.get("VirtualMachineInstance", VM)["metadata"]["uid"] == uid
    v.vm("restart", {"gracePeriodSeconds": 0})
    v.api.wait("VirtualMachineInstance", VM, lambda o: o and o["metadata"]["uid"] != uid and ft.vmi_running(o), 90)
    v.vm("stop", {"gracePeriod": 0})
    v.is_vm("Stopped")
    v.api.wait("VirtualMachineInstance", VM, lambda o: o is None, 30)
    v.vm("stop", {}, (409, "VM is not running"))
    v.vm("restart", {}, (409, "RunStategy Halted does not support manual restart requests"))
    v.vm("migrate", {}, (404, 'virtualmachineinstance.kubevirt.io \\"v\\" not found'))
    v.vmi("pause", {}, (404, 'virtualmachineinstance.kubevirt.io \\"v\\" not found'))
    v.refused_stream("console", (404, "not found"))
    v.vm("start", {"paused": True})
    v.api.wait("VirtualMachineInstance", VM, lambda o: o and paused(o), 90)
    v.vmi("unpause", {})
    v.is_vm("Running")
