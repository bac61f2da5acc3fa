"""The life of a VM with the Python client (PyPI: kubernetes): run by test_clients.py, which says what its environment is."""
import json
import os
import sys
import threading
import time
import traceback

import websocket
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError, ForbiddenError
from kubernetes.informer import SharedInformer

NS, USER, VM = (os.environ[k] for k in ("CLIENT_NAMESPACE", "CLIENT_USER_NAME", "CLIENT_VM"))
NAME = "life"
PHASES = ["Pending", "Scheduling", "Scheduled", "Running"]
RBAC = "rbac.authorization.k8s.io"


def connect(kubeconfig):
    return config.new_client_from_config(os.environ[kubeconfig])


class Store:
    """What a watch has told of one kind, from a list on: {name: object}, and all events."""

    def __init__(self, resource):
        self.resource = resource
        self.changed = threading.Condition()
        self.error = None
        first = resource.get(namespace=NS)
        self.objects = {o.metadata.name: o.to_dict() for o in first.items}
        self.events = []
        threading.Thread(target=self.follow, args=(first.metadata.resourceVersion,), daemon=True).start()

    def follow(self, version):
        try:
            while True:
                for event in self.resource.watch(namespace=NS, resource_version=version, timeout=60):
                    obj = event["raw_object"]
                    version = obj["metadata"]["resourceVersion"]
                    with self.changed:
                        self.events.append((event["type"], obj))
                        if event["type"] == "DELETED":
                            del self.objects[obj["metadata"]["name"]]
                        else:
                            self.objects[obj["metadata"]["name"]] = obj
                        self.changed.notify_all()
        except Exception as e:
            with self.changed:
                self.error = e
                self.changed.notify_all()

    def wait(self, test, what, seconds=90):
        """Until test({name: object}) is true; returns what it returned."""
        end = time.monotonic() + seconds
        with self.changed:
            while True:
                if self.error:
                    raise self.error
                found = test(self.objects)
                if found:
                    return found
                if not self.changed.wait(max(0, end - time.monotonic())) and time.monotonic() > end:
                    raise TimeoutError(f"{what}: not so after {seconds} s: {json.dumps(self.objects)[-2000:]}")

    def is_as_listed(self, seconds=20):
        end = time.monotonic() + seconds
        while True:
            listed = {o.metadata.name: o.to_dict() for o in self.resource.get(namespace=NS).items}
            with self.changed:
                if listed == self.objects:
                    return len(listed)
                if time.monotonic() > end:
                    raise AssertionError(f"listed {listed}\nwatched {self.objects}")
                self.changed.wait(0.5)


class Life:
    def __init__(self):
        self.admin, self.user = connect("CLIENT_ADMIN"), connect("CLIENT_USER")

    def namespace(self):
        client.CoreV1Api(self.admin).create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NS)))
        for role in ("admin", "kubevirt.io:migrate"):
            client.RbacAuthorizationV1Api(self.admin).create_namespaced_role_binding(NS, client.V1RoleBinding(
                metadata=client.V1ObjectMeta(name=role.replace(":", "-")),
                role_ref=client.V1RoleRef(api_group=RBAC, kind="ClusterRole", name=role),
                subjects=[client.RbacV1Subject(api_group=RBAC, kind="User", name=USER)]))

    def rights(self):
        self.dynamic = DynamicClient(self.user)

        def of(kind):
            return self.dynamic.resources.get(api_version="kubevirt.io/v1", kind=kind)
        self.vms, self.vmis = of("VirtualMachine"), of("VirtualMachineInstance")
        self.vmims = of("VirtualMachineInstanceMigration")
        try:
            self.vms.get(namespace="default")
            raise AssertionError("another namespace was listed")
        except ForbiddenError:
            pass
        ask = client.V1SelfSubjectAccessReview(spec=client.V1SelfSubjectAccessReviewSpec(
            resource_attributes=client.V1ResourceAttributes(namespace=NS, verb="create", group="kubevirt.io",
                                                            resource="virtualmachines")))
        assert client.AuthorizationV1Api(self.user).create_self_subject_access_review(ask).status.allowed

    def create(self):
        self.vm, self.vmi, self.vmim = (Store(r) for r in (self.vms, self.vmis, self.vmims))
        self.pods = SharedInformer(client.CoreV1Api(self.user).list_namespaced_pod, namespace=NS)
        self.pod_events = []
        for what in ("ADDED", "MODIFIED", "DELETED"):
            self.pods.add_event_handler(what, lambda obj, what=what: self.pod_events.append((what, obj.metadata.name)))
        self.pods.start()
        with open(VM) as f:
            made = self.vms.create(yaml.safe_load(f), namespace=NS)
        assert made.metadata.uid and made.spec.runStrategy == "Always"

    def is_vm(self, status):
        return self.vm.wait(lambda o: NAME in o and o[NAME].get("status", {}).get("printableStatus") == status,
                            f"the VM is {status}")

    def is_running(self, but=None):
        return self.vmi.wait(lambda o: NAME in o and o[NAME].get("status", {}).get("phase") == "Running" and
                             o[NAME]["metadata"]["uid"] != but and o[NAME], "the VMI runs")

    def running(self):
        self.is_running()
        phases = []
        for _, obj in self.vmi.events:
            phase = obj.get("status", {}).get("phase")
            if phase and phase not in phases:
                phases.append(phase)
        assert [p["phase"] for p in self.vmi.objects[NAME]["status"]["phaseTransitionTimestamps"]] == PHASES
        assert phases == [p for p in PHASES if p in phases] and phases[0] == "Pending", phases  # two may come in one write
        self.is_vm("Running")

    def patch(self):
        self.vms.patch({"metadata": {"labels": {"tier": "web"}, "annotations": {"why": "a merge"}}}, name=NAME,
                       namespace=NS, content_type="application/merge-patch+json")
        self.vms.patch([{"op": "test", "path": "/metadata/annotations/why", "value": "a merge"},
                        {"op": "remove", "path": "/metadata/annotations/why"}], name=NAME, namespace=NS,
                       content_type="application/json-patch+json")
        self.vm.wait(lambda o: o[NAME]["metadata"]["labels"] == {"tier": "web"} and
                     "why" not in o[NAME]["metadata"].get("annotations", {}), "the watch tells of the patches")
        assert [o.metadata.name for o in self.vms.get(namespace=NS, label_selector="tier=web").items] == [NAME]

    def conflict(self):
        old = self.vms.get(name=NAME, namespace=NS).to_dict()
        self.vms.patch({"metadata": {"labels": {"newer": "yes"}}}, name=NAME, namespace=NS,
                       content_type="application/merge-patch+json")
        old["metadata"]["labels"]["newer"] = "no"
        try:
            self.vms.replace(old, namespace=NS)
            raise AssertionError("an old version was taken")
        except ConflictError as e:
            assert "the object has been modified" in json.loads(e.body)["message"], e.body

    def apply(self):
        def apply(tier, manager, force):
            body = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                    "metadata": {"name": NAME, "namespace": NS, "annotations": {"example.org/tier": tier}}}
            return self.vms.server_side_apply(body, field_manager=manager, force_conflicts=force)
        apply("gold", "one", False)
        version = apply("gold", "one", False).metadata.resourceVersion
        try:
            apply("silver", "two", False)
            raise AssertionError("a conflict was not told")
        except ConflictError as e:
            assert 'conflict with "one"' in json.loads(e.body)["message"], e.body
        assert self.vms.get(name=NAME, namespace=NS).metadata.resourceVersion == version
        made = apply("silver", "two", True).to_dict()
        assert made["metadata"]["annotations"]["example.org/tier"] == "silver"
        assert "two" in [m["manager"] for m in made["metadata"]["managedFields"] if m["operation"] == "Apply"]

    def put(self, plural, what, body=None):
        return self.dynamic.request("put", f"/apis/subresources.kubevirt.io/v1/namespaces/{NS}/{plural}/{NAME}/{what}",
                                    body=body or {}, serialize=False)

    def pause(self):
        def paused(o):
            return any(c["type"] == "Paused" for c in o[NAME]["status"].get("conditions", []))
        assert self.put("virtualmachineinstances", "pause").status == 200
        self.vmi.wait(paused, "the VMI is paused")
        self.is_vm("Paused")
        assert self.put("virtualmachineinstances", "unpause").status == 200
        self.vmi.wait(lambda o: not paused(o), "the VMI is not paused")
        self.is_vm("Running")

    def console(self):
        c = self.user.configuration
        ws = websocket.create_connection(
            f"{c.host.replace('https', 'wss')}/apis/subresources.kubevirt.io/v1/namespaces/{NS}/virtualmachineinstances/"
            f"{NAME}/console", timeout=90, subprotocols=["plain.kubevirt.io"],
            sslopt={"ca_certs": c.ssl_ca_cert, "certfile": c.cert_file, "keyfile": c.key_file})
        assert ws.getsubprotocol() == "plain.kubevirt.io"
        said = b""
        end = time.monotonic() + 90
        while b"tick " not in said:
            assert time.monotonic() < end, said
            said += ws.recv()
        ws.close()

    def migrate(self):
        before = self.is_running()
        self.vmims.create({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
                           "metadata": {"generateName": "by-python-"}, "spec": {"vmiName": NAME}}, namespace=NS)
        move = self.vmim.wait(lambda o: next((m for m in o.values() if m.get("status", {}).get("phase") in
                                              ("Succeeded", "Failed")), None), "the move ends", 180)
        assert move["status"]["phase"] == "Succeeded", move
        after = self.moved(before)
        assert after["status"]["migrationState"]["completed"] and after["metadata"]["uid"] == before["metadata"]["uid"]

    def moved(self, before):
        return self.vmi.wait(lambda o: o[NAME]["status"]["nodeName"] != before["status"]["nodeName"] and o[NAME],
                             "the VMI is elsewhere", 180)

    def evict(self):
        before = self.is_running()
        core = client.CoreV1Api(self.user)
        pod, = [p.metadata.name for p in core.list_namespaced_pod(NS, label_selector=f"vm.kubevirt.io/name={NAME}").items
                if p.status.phase == "Running" and p.spec.node_name == before["status"]["nodeName"]]
        try:
            core.create_namespaced_pod_eviction(pod, NS, client.V1Eviction(metadata=client.V1ObjectMeta(name=pod)))
            raise AssertionError("the pod of a VM that can move was evicted")
        except ApiException as e:
            assert e.status == 429 and "evacuation" in json.loads(e.body)["message"], e.body
        self.moved(before)
        self.vmim.wait(lambda o: sum(m.get("status", {}).get("phase") == "Succeeded" for m in o.values()) == 2,
                       "the evacuation's move succeeded", 60)

    def stop(self):
        assert self.put("virtualmachines", "stop").status == 202
        self.vmi.wait(lambda o: NAME not in o, "the VMI is gone")
        self.is_vm("Stopped")
        assert self.vm.objects[NAME]["spec"]["runStrategy"] == "Halted"

    def start(self):
        assert self.put("virtualmachines", "start").status == 202
        self.is_running()

    def restart(self):
        uid = self.is_running()["metadata"]["uid"]
        assert self.put("virtualmachines", "restart", {"gracePeriodSeconds": 0}).status == 202
        self.is_running(but=uid)
        self.is_vm("Running")

    def compare(self):
        counts = [s.is_as_listed() for s in (self.vm, self.vmi, self.vmim)]
        assert counts == [1, 1, 2], counts
        end = time.monotonic() + 20
        while True:
            listed = {p.metadata.name: p.metadata.resource_version for p in client.CoreV1Api(self.user).list_namespaced_pod(NS).items}
            cached = {p.metadata.name: p.metadata.resource_version for p in self.pods.cache.list()}
            if listed == cached and listed:
                return
            assert time.monotonic() < end, (listed, cached)
            time.sleep(0.2)

    def delete(self):
        assert [s.is_as_listed() for s in (self.vm, self.vmi, self.vmim)] == [1, 1, 0]  # moves end with their VMI
        self.vms.delete(name=NAME, namespace=NS, body={"propagationPolicy": "Foreground"})
        self.vm.wait(lambda o: not o, "the VM is gone")
        self.vmi.wait(lambda o: not o, "the VMI is gone")
        assert [kind for kind, _ in self.vm.events][-1] == "DELETED"
        assert ("DELETED", next(n for what, n in self.pod_events)) in self.pod_events
        assert all(s.is_as_listed() == 0 for s in (self.vm, self.vmi))
        self.pods.stop()


def main():
    life = Life()
    for step in os.environ["CLIENT_STEPS"].split():
        try:
            getattr(life, step)()
        except Exception:
            print(f"FAIL {step}: {traceback.format_exc()}", flush=True)
            return 1
        print(f"ok {step}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
