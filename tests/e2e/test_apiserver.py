"""ferry-apiserver alone: its daemon over HTTPS with Python's client, curl and (where installed) kubectl."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

BIN = os.environ.get("FERRY_BIN", "build/release/src/main")
CM = "/api/v1/namespaces/default/configmaps"


class Server:
    def __init__(self, state):
        self.state = str(state)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.pki = f"{self.state}/pki"
        self.proc = None

    def start(self):
        self.proc = subprocess.Popen([f"{BIN}/ferry-apiserver", "--state", self.state, "--listen",
                                      f"127.0.0.1:{self.port}"], stderr=open(f"{self.state}.log", "ab"))
        deadline = time.monotonic() + 10
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 0.2):
                    return self
            except OSError:
                assert self.proc.poll() is None, open(f"{self.state}.log").read()
                assert time.monotonic() < deadline
                time.sleep(0.005)

    def stop(self, sig=signal.SIGTERM):
        self.proc.send_signal(sig)
        return self.proc.wait(10)

    def connect(self, cert="admin", directory=None):
        ctx = ssl.create_default_context(cafile=f"{self.pki}/ca.crt")
        if cert:
            d = directory or self.pki
            ctx.load_cert_chain(f"{d}/{cert}.crt", f"{d}/{cert}.key")
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=ctx, timeout=10)

    def call(self, method, path, body=None, conn=None, content_type="application/json"):
        c = conn or self.connect()
        c.request(method, path, None if body is None else json.dumps(body), {"Content-Type": content_type})
        r = c.getresponse()
        data = r.read()
        return r.status, json.loads(data) if data[:1] == b"{" else data

    def kubectl(self, *args, stdin=None, ok=True):
        p = subprocess.run(["kubectl", "--kubeconfig", f"{self.pki}/admin.kubeconfig",
                            "--cache-dir", f"{self.state}/kubectl", *args], input=stdin, text=True,
                           capture_output=True, timeout=60)
        assert not ok or p.returncode == 0, p.stderr
        return p.stdout if ok else p.stdout + p.stderr


@pytest.fixture
def server(tmp_path):
    s = Server(tmp_path / "state").start()
    yield s
    if s.proc.poll() is None:
        assert s.stop() == 0


def test_starts_quickly_and_serves(server):
    assert server.call("GET", "/version")[1]["gitVersion"].startswith("v1.33.")
    server.stop()
    t0 = time.monotonic()
    server.start()
    assert time.monotonic() - t0 < 1.0
    assert server.call("GET", "/readyz")[0] == 200


def test_credentials_decide(server):
    nobody = server.connect(cert=None)
    assert server.call("GET", "/healthz", conn=nobody) == (200, b"ok")
    status, body = server.call("GET", CM, conn=nobody)
    assert status == 403 and "system:anonymous" in body["message"]
    out = f"{server.state}/node"
    subprocess.run([f"{BIN}/ferry-apiserver", "issue", "--state", server.state, "--cn", "system:node:n1", "--org",
                    "system:nodes", "--san", "127.0.0.1", "--out", out], check=True)
    node = server.connect("tls", out)
    assert server.call("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}}, node)[0] == 201
    assert server.call("POST", "/api/v1/nodes", {"metadata": {"name": "n2"}}, node)[0] == 403
    # The locks of a VM's disks: only the node that is to look says what it found, and asks nothing itself.
    path = "/apis/ferry.dev/v1alpha1/namespaces/default/diskwitnesses"
    for name, witness in (("ours", "n1"), ("theirs", "n2")):
        record = {"metadata": {"name": name}, "spec": {"vmiUID": "v", "podUID": "p", "nodeName": "n3", "epoch": 1,
                                                       "witness": witness, "disks": ["data"]}}
        assert server.call("POST", path, record, node)[0] == 403
        status, record = server.call("POST", path, record)
        assert status == 201, record
        record["status"] = {"epoch": 1, "state": "Free"}
        status, body = server.call("PUT", f"{path}/{name}/status", record, node)
        assert status == (200 if witness == "n1" else 403), body
        assert server.call("PUT", f"{path}/{name}", {**record, "spec": {**record["spec"], "witness": "n1"}}, node)[0] == 403
    # A certificate of another authority is not let in.
    other = Server(f"{server.state}/other")
    subprocess.run([f"{BIN}/ferry-apiserver", "issue", "--state", other.state, "--cn", "x", "--org",
                    "system:masters", "--out", f"{other.state}/x"], check=True)
    try:
        status, _ = server.call("GET", CM, conn=server.connect("tls", f"{other.state}/x"))
        assert status == 401
    except (ssl.SSLError, ConnectionError):
        pass


def test_nothing_acknowledged_is_lost_when_killed(server):
    acked = 0
    for round_ in range(3):
        stop = threading.Event()
        names = []

        def writer():
            c = server.connect()
            i = 0
            while not stop.is_set():
                name = f"r{round_}-{i}"
                i += 1
                try:
                    if server.call("POST", CM, {"metadata": {"name": name}}, c)[0] == 201:
                        names.append(name)
                except OSError:
                    return
                except http.client.HTTPException:
                    return

        t = threading.Thread(target=writer)
        t.start()
        time.sleep(0.3)
        server.stop(signal.SIGKILL)
        stop.set()
        t.join()
        server.start()
        have = {o["metadata"]["name"] for o in server.call("GET", CM)[1]["items"]}
        assert set(names) <= have
        acked += len(names)
    assert acked > 50


def test_watch_goes_on_over_a_restart(server):
    def frames(conn, path, n):
        conn.request("GET", path)
        r = conn.getresponse()
        return [json.loads(r.readline()) for _ in range(n)]

    server.call("POST", CM, {"metadata": {"name": "a"}})
    first = frames(server.connect(), f"{CM}?watch=1", 1)[0]
    rv = first["object"]["metadata"]["resourceVersion"]
    server.call("DELETE", f"{CM}/a")
    server.call("POST", CM, {"metadata": {"name": "b"}})
    server.stop()
    server.start()
    server.call("POST", CM, {"metadata": {"name": "c"}})
    got = frames(server.connect(), f"{CM}?watch=1&resourceVersion={rv}", 3)
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in got] == [
        ("DELETED", "a"), ("ADDED", "b"), ("ADDED", "c")]


def test_curl_is_enough(server):
    p = subprocess.run(["curl", "-sS", "--cacert", f"{server.pki}/ca.crt", "--cert", f"{server.pki}/admin.crt", "--key",
                        f"{server.pki}/admin.key", f"https://localhost:{server.port}/api/v1/namespaces"],
                       capture_output=True, text=True, timeout=20)
    names = [o["metadata"]["name"] for o in json.loads(p.stdout)["items"]]
    assert {"default", "kube-system", "kube-node-lease", "kubevirt"} <= set(names)


def test_a_taken_port_is_said(server):
    p = subprocess.run([f"{BIN}/ferry-apiserver", "--state", f"{server.state}2", "--listen",
                        f"127.0.0.1:{server.port}"], capture_output=True, text=True, timeout=20)
    assert p.returncode == 1 and "already taken" in p.stderr


@pytest.mark.parametrize("option,value,text", [
    ("--event-ttl", "1d", "--event-ttl: '1d' is not a duration such as 500ms, 30s or 1h30m"),
    ("--event-ttl", "0", "--event-ttl: it has to be more than 0"),
    ("--max-watches-per-user", "none", "--max-watches-per-user 'none' is not a number from 1 to"),
])
def test_a_wrong_option_is_named_before_anything_is_made(tmp_path, option, value, text):
    p = subprocess.run([f"{BIN}/ferry-apiserver", "--state", tmp_path / "state", option, value], capture_output=True,
                       text=True, timeout=20)
    assert p.returncode == 1 and text in p.stderr, p.stderr
    assert not (tmp_path / "state").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_full_disk_refuses_and_goes_on(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    s = Server(disk / "state")
    # The small disk exists in the server's own mount namespace only.
    s.proc = subprocess.Popen(["unshare", "-m", "sh", "-c",
                               f"mount -t tmpfs -o size=3m tmpfs {disk} && exec {os.path.abspath(BIN)}/ferry-apiserver "
                               f"--state {s.state} --listen 127.0.0.1:{s.port}"],
                              stderr=open(tmp_path / "log", "ab"))
    try:
        s.pki = f"/proc/{s.proc.pid}/root{s.pki}"
        deadline = time.monotonic() + 10
        while not os.path.exists(f"{s.pki}/admin.kubeconfig"):
            assert time.monotonic() < deadline and s.proc.poll() is None
            time.sleep(0.01)
        time.sleep(0.2)
        c = s.connect()

        def make(name):
            return s.call("POST", CM, {"metadata": {"name": name}, "data": {"a": "x" * 60000}}, c)[0]

        made = 0
        while make(f"c{made}") == 201:
            made += 1
            assert made < 200
        assert make("again") == 500
        assert s.call("GET", f"{CM}/c0", conn=c)[0] == 200
        subprocess.run(["nsenter", "-t", str(s.proc.pid), "-m", "-r", "mount", "-o", "remount,size=40m", str(disk)], check=True)
        assert make("after") == 201
        assert len(s.call("GET", CM, conn=c)[1]["items"]) == made + 1
    finally:
        s.stop()


VM = """
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: vm, labels: {app: x}}
spec:
  runStrategy: Halted
  template:
    metadata: {labels: {app: x}}
    spec:
      domain:
        memory: {guest: 128Mi}
        devices:
          disks: [{name: root, disk: {bus: virtio}}]
          interfaces: [{name: default, masquerade: {}}]
      networks: [{name: default, pod: {}}]
      volumes: [{name: root, containerDisk: {image: "oci:/x"}}]
"""


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_kubectl_does_its_daily_work(server):
    k = server.kubectl
    assert "created" in k("apply", "-f", "-", stdin=VM)
    assert "unchanged" in k("apply", "-f", "-", stdin=VM)
    assert "vm" in k("get", "vm", "-o", "wide")
    assert k("get", "vm", "vm", "-o", "jsonpath={.spec.runStrategy}") == "Halted"
    assert "patched" in k("patch", "vm", "vm", "--type=merge", "-p", '{"spec":{"runStrategy":"Always"}}')
    assert "labeled" in k("label", "vm", "vm", "a=b")
    assert "vm" in k("get", "vm", "-l", "a=b", "-o", "name")
    assert "Run Strategy:  Always" in k("describe", "vm", "vm")
    assert "virtualmachines" in k("api-resources")
    assert "runStrategy" in k("explain", "vm.spec")
    bad = k("apply", "-f", "-", stdin=VM.replace("runStrategy: Halted", "runStrategy: Halted\n  frog: 1"), ok=False)
    assert "spec.frog" in bad or 'unknown field "frog"' in bad  # an old kubectl says so itself
    assert "created" in k("create", "namespace", "n")
    assert "created" in k("create", "configmap", "c", "-n", "n", "--from-literal=a=b")
    assert "created" in k("create", "secret", "generic", "s", "-n", "n", "--from-literal=a=b")
    assert "deleted" in k("delete", "namespace", "n", "--wait")
    assert "NotFound" in k("get", "configmap", "c", "-n", "n", ok=False)
    # Its controller, which does not run here, would take the finalizer away.
    assert "deleted" in k("delete", "vm", "vm", "--wait=false")
    assert "patched" in k("patch", "vm", "vm", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    assert "NotFound" in k("get", "vm", "vm", ok=False)


SNAPSHOT = """
apiVersion: snapshot.kubevirt.io/v1beta1
kind: VirtualMachineSnapshot
metadata: {name: s}
spec: {source: {apiGroup: kubevirt.io, kind: VirtualMachine, name: vm}}
"""
NO_SNAPSHOTS = "kind: not supported by Ferry yet: there is no controller that takes snapshots"


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_kubectl_finds_every_kind_and_is_told_what_is_refused(server):
    k = server.kubectl
    names = k("api-resources", "-o", "name").split()
    for name in ("virtualmachinesnapshots.snapshot.kubevirt.io", "datavolumes.cdi.kubevirt.io",
                 "virtualmachineinstancereplicasets.kubevirt.io", "plugins.plugin.kubevirt.io"):
        assert name in names
    assert not k("get", "vmsnapshots,vmirs,vmpool,vmexport,vmclone,dv,vmf,vmpref", "-o", "name")
    assert "scaleInStrategy" in k("explain", "vmpool", "--recursive")
    assert "volumeRestorePolicy" in k("explain", "vmrestore.spec")
    assert "imageio" in k("explain", "vm.spec.dataVolumeTemplates.spec.source")
    for how in (("create",), ("create", "--dry-run=server"), ("apply",), ("apply", "--server-side")):
        assert NO_SNAPSHOTS in k(*how, "-f", "-", stdin=SNAPSHOT, ok=False)
    assert "not found" in k("scale", "vmpool/p", "--replicas=2", ok=False)
    old = VM.replace("kubevirt.io/v1\n", "kubevirt.io/v1alpha3\n").replace("name: vm", "name: old")
    assert "v1alpha3" in old
    assert "created" in k("apply", "-f", "-", stdin=old)
    assert "unchanged" in k("apply", "-f", "-", stdin=old)
    assert k("get", "vm", "old", "-o", "jsonpath={.apiVersion}") == "kubevirt.io/v1"
    assert k("get", "virtualmachines.v1alpha3.kubevirt.io", "old", "-o", "jsonpath={.apiVersion}") == "kubevirt.io/v1alpha3"
    assert "deleted" in k("delete", "vm", "old", "--wait=false")
    assert "patched" in k("patch", "vm", "old", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')


def test_a_refused_kind_is_told_what_else_is_wrong(server):
    """What KubeVirt's webhook would say, then the reason of the kind."""
    group = "/apis/pool.kubevirt.io/v1beta1/namespaces/default/virtualmachinepools"
    vmi = {"domain": {"memory": {"guest": "128Mi"}, "devices": {"disks": [{"name": "d", "disk": {}}]}}}
    pool = {"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "metadata": {"name": "p"},
            "spec": {"selector": {"matchLabels": {"a": "b"}},
                     "virtualMachineTemplate": {"metadata": {"labels": {"a": "c"}},
                                                "spec": {"template": {"spec": vmi}}}}}
    code, answer = server.call("POST", group, pool)
    causes = [(c["field"], c["message"]) for c in answer["details"]["causes"]]
    at = "spec.virtualMachineTemplate.spec"
    assert code == 422 and answer["reason"] == "Invalid", answer
    assert (f"{at}.running", "RunStrategy must be specified") in causes
    assert any(field.startswith(f"{at}.template.spec.domain.devices.disks[0]") for field, _ in causes), causes
    assert ("spec.selector", "selector does not match labels.") in causes
    assert causes[-1] == ("kind", "not supported by Ferry yet: there is no controller that keeps pools; create the VMs "
                                  "themselves")
    assert server.call("GET", group)[1]["items"] == []


CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {k: v}
"""


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_items_of_lists_are_whole_for_whoever_writes_them_down(server, tmp_path):
    """The server's lists of ConfigMaps say the kind once; what the commands print can be applied again."""
    k = server.kubectl
    for name in "a", "b":
        k("create", "configmap", name, "--from-literal=kind=x")
    k("create", "-f", "-", stdin=VM)
    plain = server.call("GET", CM)[1]
    assert plain["kind"] == "ConfigMapList" and plain["apiVersion"] == "v1"
    assert all("kind" not in i and "apiVersion" not in i and i["data"] == {"kind": "x"}
               for i in plain["items"] if i["metadata"]["name"] in "ab")
    vms = server.call("GET", "/apis/kubevirt.io/v1/virtualmachines")[1]["items"]
    assert [(i["kind"], i["apiVersion"]) for i in vms] == [("VirtualMachine", "kubevirt.io/v1")]

    def ferry(*args, stdin=None):
        p = subprocess.run([f"{BIN}/ferry", *args, "--kubeconfig", f"{server.pki}/admin.kubeconfig"], input=stdin,
                           text=True, capture_output=True, timeout=60)
        assert p.returncode == 0, p.stderr
        return p.stdout

    for read in (lambda: k("get", "configmaps", "a", "b", "-o", "json"), lambda: ferry("get", "configmaps", "-o", "json"),
                 lambda: ferry("get", "configmaps", "-o", "yaml"), lambda: json.dumps(server.call("GET", CM)[1])):
        text = read()
        assert "configmap/b" in k("create", "--dry-run=client", "--validate=false", "-f", "-", "-o", "name",
                                  stdin=text)
        assert "configmap/a" in ferry("apply", "-f", "-", stdin=text)
    assert "ConfigMap" in ferry("describe", "configmaps")


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_a_long_table_and_a_client_that_leaves_it(server):
    def make(i):
        assert server.call("POST", CM, {"metadata": {"name": f"m{i:03}"}})[0] == 201

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(600)))
    for _ in range(5):  # gone before the table is done
        conn = server.connect()
        conn.request("GET", CM, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
        conn.sock.shutdown(socket.SHUT_RDWR)
        conn.close()
    lines = server.kubectl("get", "configmaps", "--chunk-size=0").splitlines()
    assert [line.split()[0] for line in lines if line.startswith("m")] == [f"m{i:03}" for i in range(600)]
    assert server.call("GET", CM + "/m001")[0] == 200


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_subresources_are_described(server):
    """Both documents as kubectl reads them; the index of v3 leads to the group of subresources."""
    raw = lambda path: json.loads(server.kubectl("get", "--raw", path))  # noqa: E731
    index = raw("/openapi/v3")["paths"]
    v2 = raw("/openapi/v2")
    for group in "subresources.kubevirt.io/v1", "subresources.kubevirt.io/v1alpha3":
        v3 = raw(index[f"apis/{group}"]["serverRelativeURL"])
        path = f"/apis/{group}/namespaces/{{namespace}}/virtualmachines/{{name}}/start"
        body = v3["paths"][path]["put"]["requestBody"]["content"]["application/json"]["schema"]
        assert body == {"$ref": "#/components/schemas/io.kubevirt.v1.StartOptions"}
        assert v2["paths"][path]["put"]["operationId"] == group.split("/")[1] + "Start"


def version(server, path):
    return server.call("GET", path)[1]["metadata"]["resourceVersion"]


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_the_same_file_again_changes_nothing(server):
    k = server.kubectl
    path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/vm"
    client = json.loads(subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True).stdout)
    minor = int(client["clientVersion"]["minor"].rstrip("+"))
    for how in [], ["--server-side"]:  # the second one goes over from client-side to server-side apply
        k("apply", *how, "-f", "-", stdin=VM)
        before = version(server, path)
        k("apply", *how, "-f", "-", stdin=VM)
        assert version(server, path) == before, how
        for d in ([], ["--server-side"]) if minor > 20 else [[]]:  # 1.20 takes its own managedFields for a change
            assert k("diff", *d, "-f", "-", stdin=VM) == ""  # and its exit code is 0
    vm = server.call("GET", path)[1]
    assert vm["metadata"]["finalizers"] == ["kubevirt.io/virtualMachineControllerFinalize"]
    changed = VM.replace("Halted", "Always")
    assert "+  runStrategy: Always" in k("diff", "-f", "-", stdin=changed, ok=False)
    # A field that the file no longer has goes, though another kind of apply had set it (which kubectl has to say).
    k("apply", "--server-side", "-f", "-", stdin=VM.replace(", labels: {app: x}}\nspec", "}\nspec", 1))
    assert ("labels" in server.call("GET", path)[1]["metadata"]) == (minor < 26)
    # What another manager has set is a conflict, and can be forced.
    assert "patched" in k("patch", "vm", "vm", "--type=merge", "-p", '{"spec":{"runStrategy":"Manual"}}', "--field-manager=me")
    refused = k("apply", "--server-side", "-f", "-", stdin=VM, ok=False)
    assert 'conflict with "me"' in refused and ".spec.runStrategy" in refused
    k("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=VM)
    assert k("get", "vm", "vm", "-o", "jsonpath={.spec.runStrategy}") == "Halted"


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_kubectl_edits_replaces_asks_and_explains(server, tmp_path, monkeypatch):
    k = server.kubectl
    assert "created" in k("create", "-f", "-", stdin=CONFIG)
    assert "AlreadyExists" in k("create", "-f", "-", stdin=CONFIG, ok=False)
    assert "replaced" in k("replace", "-f", "-", stdin=CONFIG.replace("v}", "w}"))
    uid = server.call("GET", f"{CM}/c")[1]["metadata"]["uid"]
    assert "replaced" in k("replace", "--force", "-f", "-", stdin=CONFIG.replace("v}", "x}"))
    c = server.call("GET", f"{CM}/c")[1]
    assert c["data"] == {"k": "x"} and c["metadata"]["uid"] != uid
    # The dry run of a deletion is in its body.
    assert "dry run" in k("delete", "configmap", "c", "--dry-run=server")
    assert server.call("GET", f"{CM}/c")[0] == 200
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/k: x/k: edited/' \"$1\"\n")
    editor.chmod(0o755)
    monkeypatch.setenv("KUBE_EDITOR", str(editor))
    assert "edited" in k("edit", "configmap", "c")
    assert k("get", "configmap", "c", "-o", "jsonpath={.data.k}") == "edited"
    k("apply", "-f", "-", stdin=VM)
    assert "have no subresource 'scale'" in k("scale", "vm", "vm", "--replicas=2", ok=False)
    assert k("auth", "can-i", "create", "vm").strip() == "yes"
    assert "[*]" in k("auth", "can-i", "--list")
    assert "created" in k("create", "-f", "-", stdin="apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n")
    assert "cordoned" in k("cordon", "n1")
    assert server.call("GET", "/api/v1/nodes/n1")[1]["spec"]["unschedulable"] is True
    assert "uncordoned" in k("uncordon", "n1")
    assert "Metrics API not available" in k("top", "nodes", ok=False)
    vm = server.call("GET", "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/vm")[1]
    event = {"metadata": {"name": "e"}, "type": "Normal", "reason": "Tried", "message": "words of an event",
             "involvedObject": {"kind": "VirtualMachine", "apiVersion": "kubevirt.io/v1", "namespace": "default", "name": "vm",
                                "uid": vm["metadata"]["uid"]},
             "lastTimestamp": "2026-01-01T00:00:00Z", "count": 1}
    assert server.call("POST", "/api/v1/namespaces/default/events", event)[0] == 201
    assert "words of an event" in k("describe", "vm", "vm")
    assert "terminationGracePeriodSeconds" in k("explain", "vm.spec.template", "--recursive")
    versions = k("api-versions").split()
    assert len(versions) == len(set(versions)) and "subresources.kubevirt.io/v1" in versions
    help_ = subprocess.run(["kubectl", "--help"], capture_output=True, text=True).stdout
    if "events " in help_:  # kubectl 1.20 has neither
        assert "words of an event" in k("events", "--for", "virtualmachine/vm")
        assert "kubernetes-admin" in k("auth", "whoami")


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_kubectl_explains_every_kind_to_its_last_field(server):
    """--recursive prints every property of the kind's own schema, whatever document this kubectl reads."""
    groups = server.call("GET", "/apis")[1]["groups"]
    places = ["api/v1"] + [f"apis/{v['groupVersion']}" for g in groups for v in g["versions"]]
    # Reviews, bindings and calls of subresources have no objects, and no schema under their own address.
    kinds = [(p.split("/", 1)[1], r["kind"], r["name"]) for p in places if "k8s.io/v1" not in p or "auth" not in p
             for r in server.call("GET", f"/{p}")[1]["resources"] if "list" in r["verbs"]]
    assert len(kinds) > 50 and ("events.k8s.io/v1", "Event", "events") in kinds

    def properties(api, kind):
        schemas = server.call("GET", f"/openapi/v3/{'apis' if '/' in api else 'api'}/{api}")[1]["components"]["schemas"]
        group, _, version = api.rpartition("/")
        return next(list(d["properties"]) for d in schemas.values() if {"group": group, "version": version, "kind": kind}
                    in d.get("x-kubernetes-group-version-kind", []))

    def explain(row):
        api, kind, plural = row
        text = server.kubectl("explain", plural, "--api-version", api, "--recursive")
        lost = [p for p in properties(api, kind) if not re.search(rf"(?m)^ +{p}\t", text)]
        return f"{api} {kind}: {lost}" if lost or kind not in text else None
    with ThreadPoolExecutor(4) as pool:
        assert not [x for x in pool.map(explain, kinds) if x]


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_kubectl_shows_events_of_both_forms(server):
    k = server.kubectl
    k("apply", "-f", "-", stdin=VM)
    uid = k("get", "vm", "vm", "-o", "jsonpath={.metadata.uid}")
    of = {"kind": "VirtualMachine", "apiVersion": "kubevirt.io/v1", "namespace": "default", "name": "vm", "uid": uid}
    stamp = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - s)) for s in (600, 60)]
    events = "/api/v1/namespaces/default/events"
    assert server.call("POST", events, {
        "metadata": {"name": "old"}, "involvedObject": of, "reason": "Repeated", "message": "said by the old recorder",
        "type": "Warning", "count": 4, "firstTimestamp": stamp[0], "lastTimestamp": stamp[1],
        "source": {"component": "x"}})[0] == 201
    assert server.call("POST", "/apis/events.k8s.io/v1/namespaces/default/events", {
        "metadata": {"name": "new"}, "regarding": of, "reason": "Afresh", "note": "said by the new recorder",
        "type": "Normal", "eventTime": stamp[0].replace("Z", ".000000Z"), "reportingController": "x",
        "reportingInstance": "x-1", "action": "Say",
        "series": {"count": 7, "lastObservedTime": stamp[1].replace("Z", ".000000Z")}})[0] == 201
    for args in (["get", "events"], ["get", "events.v1.events.k8s.io"], ["get", "events.events.k8s.io", "-o", "wide"]):
        text = k(*args)
        rows = {w[2]: w for w in (line.split() for line in text.splitlines()[1:])}
        assert set(rows) == {"Repeated", "Afresh"} and "said by the new recorder" in text, text
        assert all(55 < seconds(r[0]) < 180 for r in rows.values()), text
    assert "said by the new recorder" in k("get", "events.v1.events.k8s.io", "new", "-o", "jsonpath={.note}")
    text = k("describe", "vm", "vm")
    assert re.search(r"Repeated +\S+ \(x4 over 1\dm\)", text), text
    if "events " in k("--help"):  # kubectl 1.20 has no such command, and does not know of series
        assert re.search(r"Afresh +\S+ \(x7 over 1\dm\)", text), text
        text = k("events")
        assert re.search(r"\(x4 over 1\dm\) +Warning +Repeated", text), text
        assert re.search(r"\(x7 over 1\dm\) +Normal +Afresh", text), text


def seconds(age):
    return sum(int(n) * {"s": 1, "m": 60}[u] for n, u in re.findall(r"(\d+)([sm])", age))


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_an_old_kubectl_checks_files_by_itself(server):
    if json.loads(server.kubectl("version", "-o", "json"))["clientVersion"]["minor"].rstrip("+") > "24":
        pytest.skip("this kubectl leaves that to the server")
    bad = server.kubectl("create", "-f", "-", stdin=VM.replace("runStrategy: Halted", "runStrategy: [1]"), ok=False)
    assert "error validating data" in bad and "VirtualMachineSpec.runStrategy: got \"array\", expected \"string\"" in bad


def test_bodies_in_yaml_and_none_that_are_packed(server):
    def send(method, path, body, **headers):
        c = server.connect()
        c.request(method, path, body, headers)
        r = c.getresponse()
        return r.status, json.loads(r.read()), r.headers.get_all("Warning") or []

    status, c, warnings = send("POST", CM, "metadata: {name: y}\ndata:\n  a: 'no'\n  a: 'yes'\n",
                               **{"Content-Type": "application/yaml"})
    assert status == 201 and c["data"] == {"a": "yes"}
    assert warnings == ['299 - "duplicate field \\"data.a\\""']
    status, answer, _ = send("POST", CM, b"\x1f\x8b", **{"Content-Type": "application/json", "Content-Encoding": "gzip"})
    assert status == 415 and "Content-Encoding" in answer["message"]
    status, answer, _ = send("POST", CM, "x" * 1000, **{"Content-Type": "application/cbor"})
    assert status == 415, answer


def test_pages_and_documents_outlive_a_restart(server):
    for i in range(3):
        assert server.call("POST", CM, {"metadata": {"name": f"p{i}"}})[0] == 201
    token = server.call("GET", f"{CM}?limit=1")[1]["metadata"]["continue"]

    def get(path, tag=None):
        c = server.connect()
        c.request("GET", path, None, {"If-None-Match": tag} if tag else {})
        r = c.getresponse()
        return r.status, r.headers.get("ETag"), len(r.read())

    status, tag, n = get("/openapi/v2")
    assert status == 200 and n > 100000
    server.stop()
    server.start()
    status, page = server.call("GET", f"{CM}?limit=1&continue={token}")
    assert status == 200 and page["items"][0]["metadata"]["name"] == "p1"
    assert server.call("GET", f"/api/v1/configmaps?continue={token}")[0] == 400
    assert get("/openapi/v2", tag) == (304, tag, 0)
