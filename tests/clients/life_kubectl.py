"""The life of a VM with kubectl, 1.20 or newer: run by test_clients.py, which says what its environment is.

CLIENT_KUBECTL is the program.  What it cannot do itself (subresources, evictions of one pod) it sends as it is, with --raw.
"""
import json
import os
import re
import subprocess
import sys
import threading
import time
import traceback

NS, USER, VM, WORK = (os.environ[k] for k in ("CLIENT_NAMESPACE", "CLIENT_USER_NAME", "CLIENT_VM", "CLIENT_WORK"))
KUBECTL = os.environ["CLIENT_KUBECTL"]
NAME = "life"
PHASES = ["Pending", "Scheduling", "Scheduled", "Running"]
SUB = f"/apis/subresources.kubevirt.io/v1/namespaces/{NS}"


class Failed(Exception):
    pass


def command(*args, who="CLIENT_USER"):
    return [KUBECTL, "--kubeconfig", os.environ[who], "--cache-dir", os.path.join(WORK, "cache"), *args]


def kubectl(*args, who="CLIENT_USER", stdin=None, code=0, env=None, seconds=120):
    """What it said, of both streams; code: how it has to end."""
    p = subprocess.run(command(*args, who=who), input=stdin, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       timeout=seconds, env={**os.environ, **(env or {})})
    if p.returncode != code:
        raise Failed(f"kubectl {' '.join(args)} ended with {p.returncode}, not {code}: {p.stdout}")
    return p.stdout


def get(what):
    p = subprocess.run(command("get", what, "-o", "json"), text=True, capture_output=True, timeout=60)
    if p.returncode:
        raise Failed(p.stderr)
    return json.loads(p.stdout)


class Store:
    """What `kubectl get --watch` has told of a kind: {name: object}, and the kinds of its events."""

    def __init__(self, what):
        self.what = what
        self.objects, self.events, self.phases = {}, [], []
        self.changed = threading.Condition()
        self.p = subprocess.Popen(command("get", what, "--watch", "--output-watch-events", "-o", "json"), text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        decoder, text = json.JSONDecoder(), ""
        while True:
            piece = os.read(self.p.stdout.fileno(), 1 << 16).decode(errors="surrogateescape")
            if not piece:
                with self.changed:
                    self.changed.notify_all()
                return
            text += piece
            while text.lstrip():
                try:
                    event, end = decoder.raw_decode(text.lstrip())
                except ValueError:
                    break  # the rest is to come
                text = text.lstrip()[end:]
                self.take(event["type"], event["object"])

    def take(self, kind, obj):
        with self.changed:
            name = obj["metadata"]["name"]
            self.events.append((kind, name))
            phase = obj.get("status", {}).get("phase")
            if phase and phase not in self.phases:
                self.phases.append(phase)
            if kind == "DELETED":
                self.objects.pop(name, None)
            else:
                self.objects[name] = obj
            self.changed.notify_all()

    def wait(self, test, what, seconds=90):
        end = time.monotonic() + seconds
        with self.changed:
            while True:
                found = test(self.objects)
                if found:
                    return found
                if self.p.poll() is not None:
                    raise Failed(f"{what}: the watch of {self.what} ended with {self.p.returncode}")
                if not self.changed.wait(max(0, end - time.monotonic())) and time.monotonic() > end:
                    raise TimeoutError(f"{what}: not so after {seconds} s: {json.dumps(self.objects)[-2000:]}")

    def is_as_listed(self, seconds=20):
        end = time.monotonic() + seconds
        while True:
            listed = {o["metadata"]["name"]: o for o in get(self.what)["items"]}
            with self.changed:
                if {k: shown(v) for k, v in listed.items()} == {k: shown(v) for k, v in self.objects.items()}:
                    return len(listed)
                if time.monotonic() > end:
                    raise AssertionError(f"listed {listed}\nwatched {self.objects}")
                self.changed.wait(0.5)


def shown(obj):
    """kubectl 1.21 and later leave managedFields out of what they print, of a list and of a watch alike."""
    return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "managedFields"}}


class Life:
    def namespace(self):
        kubectl("create", "namespace", NS, who="CLIENT_ADMIN")
        for role in ("admin", "kubevirt.io:migrate"):
            kubectl("create", "rolebinding", role.replace(":", "-"), "-n", NS, f"--clusterrole={role}", f"--user={USER}",
                    who="CLIENT_ADMIN")

    def rights(self):
        assert "Forbidden" in kubectl("get", "vms", "-n", "default", code=1)
        assert "yes" in kubectl("auth", "can-i", "create", "vms")
        assert "no" in kubectl("auth", "can-i", "create", "vms", "-n", "default", code=1)

    def create(self):
        self.vm, self.vmi, self.vmim = Store("vm"), Store("vmi"), Store("vmim")
        assert kubectl("apply", "-f", VM).strip() == f"virtualmachine.kubevirt.io/{NAME} created"

    def is_vm(self, status):
        return self.vm.wait(lambda o: NAME in o and o[NAME].get("status", {}).get("printableStatus") == status,
                            f"the VM is {status}")

    def is_running(self, but=None):
        return self.vmi.wait(lambda o: NAME in o and o[NAME].get("status", {}).get("phase") == "Running" and
                             o[NAME]["metadata"]["uid"] != but and o[NAME], "the VMI runs")

    def running(self):
        self.is_running()
        assert [p["phase"] for p in self.vmi.objects[NAME]["status"]["phaseTransitionTimestamps"]] == PHASES
        # Two may come in one write, and the watch may begin late; but none comes twice or out of turn.
        assert self.vmi.phases == [p for p in PHASES if p in self.vmi.phases], self.vmi.phases
        kubectl("wait", "--for=condition=Ready", f"vm/{NAME}", "--timeout=60s")
        self.is_vm("Running")

    def daily(self):
        """What one does all day."""
        assert re.search(rf"^{NAME} +\S+ +Running +True", kubectl("get", "vm"), re.M)
        assert re.search(rf"^{NAME} +\S+ +Running +10\.", kubectl("get", "vmi", "-o", "wide"), re.M)
        assert "virtualmachineinstances" in kubectl("api-resources", "--api-group=kubevirt.io", "-o", "name")
        assert "runStrategy" in kubectl("explain", "vm.spec") and "evictionStrategy" in kubectl("explain", "vmi.spec", "--recursive")
        assert f"Name:         {NAME}" in kubectl("describe", "vm", NAME)
        version = get(f"vm/{NAME}")["metadata"]["resourceVersion"]
        assert kubectl("apply", "-f", VM).strip() == f"virtualmachine.kubevirt.io/{NAME} unchanged"
        assert kubectl("diff", "-f", VM) == ""
        assert get(f"vm/{NAME}")["metadata"]["resourceVersion"] == version
        with open(os.path.join(WORK, "editor"), "w") as f:
            f.write("#!/bin/sh\nexec sed -i 's/^  annotations:/&\\n    edited: \"yes\"/' \"$1\"\n")
        os.chmod(f.name, 0o755)
        assert "edited" in kubectl("edit", "vm", NAME, env={"KUBE_EDITOR": f.name})
        assert get(f"vm/{NAME}")["metadata"]["annotations"]["edited"] == "yes"
        assert kubectl("diff", "-f", VM) == ""  # what others wrote beside the file's fields is no difference
        kubectl("annotate", "vm", NAME, "edited-")
        kubectl("create", "configmap", "notes", "--from-literal=a=b")
        kubectl("delete", "configmap", "notes")

    def patch(self):
        kubectl("label", "vm", NAME, "tier=web")
        kubectl("patch", "vm", NAME, "--type=merge", "-p", '{"metadata":{"annotations":{"why":"a merge"}}}')
        kubectl("patch", "vm", NAME, "--type=json", "-p", '[{"op":"test","path":"/metadata/annotations/why","value":"a merge"},'
                                                          '{"op":"remove","path":"/metadata/annotations/why"}]')
        self.vm.wait(lambda o: o[NAME]["metadata"].get("labels") == {"tier": "web"} and
                     "why" not in o[NAME]["metadata"]["annotations"], "the watch tells of the patches")
        assert kubectl("get", "vm", "-l", "tier=web", "-o", "name").strip() == f"virtualmachine.kubevirt.io/{NAME}"

    def conflict(self):
        old = get(f"vm/{NAME}")
        kubectl("label", "vm", NAME, "newer=yes")
        old["metadata"]["labels"]["newer"] = "no"
        assert "the object has been modified" in kubectl("replace", "-f", "-", stdin=json.dumps(old), code=1)

    def apply(self):
        def apply(tier, manager, *more, code=0):
            return kubectl("apply", "--server-side", "--validate=false", "--field-manager", manager, *more, "-f", "-", code=code, stdin=json.dumps(
                {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                 "metadata": {"name": NAME, "namespace": NS, "annotations": {"example.org/tier": tier}}}))
        assert "serverside-applied" in apply("gold", "one")
        assert 'conflict with "one"' in apply("silver", "two", code=1)
        assert get(f"vm/{NAME}")["metadata"]["annotations"]["example.org/tier"] == "gold"
        assert "serverside-applied" in apply("silver", "two", "--force-conflicts")
        assert get(f"vm/{NAME}")["metadata"]["annotations"]["example.org/tier"] == "silver"
        # The file that was applied first is as it was, for kubectl, too.
        assert kubectl("apply", "-f", VM).strip() == f"virtualmachine.kubevirt.io/{NAME} unchanged"

    def put(self, what, body=None):
        kubectl("replace", "--raw", f"{SUB}/{what}", "-f", "-", stdin=json.dumps(body or {}))

    def pause(self):
        def paused(o):
            return any(c["type"] == "Paused" for c in o[NAME]["status"].get("conditions", []))
        self.put(f"virtualmachineinstances/{NAME}/pause")
        self.vmi.wait(paused, "the VMI is paused")
        self.is_vm("Paused")
        self.put(f"virtualmachineinstances/{NAME}/unpause")
        self.vmi.wait(lambda o: not paused(o), "the VMI is not paused")
        self.is_vm("Running")

    def moved(self, before):
        return self.vmi.wait(lambda o: o[NAME]["status"]["nodeName"] != before["status"]["nodeName"] and o[NAME],
                             "the VMI is elsewhere", 180)

    def migrate(self):
        before = self.is_running()
        made = kubectl("create", "-f", "-", "-o", "name", stdin=json.dumps(
            {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
             "metadata": {"generateName": "by-kubectl-"}, "spec": {"vmiName": NAME}}))
        assert made.startswith("virtualmachineinstancemigration.kubevirt.io/by-kubectl-"), made
        move = self.vmim.wait(lambda o: next((m for m in o.values() if m.get("status", {}).get("phase") in
                                              ("Succeeded", "Failed")), None), "the move ends", 180)
        assert move["status"]["phase"] == "Succeeded", move
        after = self.moved(before)
        assert after["status"]["migrationState"]["completed"] and after["metadata"]["uid"] == before["metadata"]["uid"]
        assert re.search(r"^by-kubectl-\S+ +Succeeded +life", kubectl("get", "vmim"), re.M)

    def evict(self):
        before = self.is_running()
        pod, = [p["metadata"]["name"] for p in get("pods")["items"]
                if p["status"].get("phase") == "Running" and p["spec"].get("nodeName") == before["status"]["nodeName"]]
        said = kubectl("create", "--raw", f"/api/v1/namespaces/{NS}/pods/{pod}/eviction", "-f", "-", code=1, stdin=json.dumps(
            {"apiVersion": os.environ["CLIENT_EVICTION"], "kind": "Eviction", "metadata": {"name": pod, "namespace": NS}}))
        assert "evacuation" in said, said
        self.moved(before)
        self.vmim.wait(lambda o: sum(m.get("status", {}).get("phase") == "Succeeded" for m in o.values()) == 2,
                       "the evacuation's move succeeded", 60)

    def stop(self):
        self.put(f"virtualmachines/{NAME}/stop")
        self.vmi.wait(lambda o: NAME not in o, "the VMI is gone")
        self.is_vm("Stopped")
        assert self.vm.objects[NAME]["spec"]["runStrategy"] == "Halted"

    def start(self):
        self.put(f"virtualmachines/{NAME}/start")
        self.is_running()

    def restart(self):
        uid = self.is_running()["metadata"]["uid"]
        self.put(f"virtualmachines/{NAME}/restart", {"gracePeriodSeconds": 0})
        self.is_running(but=uid)
        self.is_vm("Running")

    def compare(self):
        counts = [s.is_as_listed() for s in (self.vm, self.vmi, self.vmim)]
        assert counts == [1, 1, 2], counts

    def delete(self):
        assert [s.is_as_listed() for s in (self.vm, self.vmi, self.vmim)] == [1, 1, 0]  # moves end with their VMI
        kubectl("delete", "-f", VM, "--timeout=90s")
        self.vm.wait(lambda o: not o, "the VM is gone")
        self.vmi.wait(lambda o: not o, "the VMI is gone")
        assert self.vm.events[-1] == ("DELETED", NAME) and self.vm.is_as_listed() == self.vmi.is_as_listed() == 0


def main():
    life, ok = Life(), True
    for step in os.environ["CLIENT_STEPS"].split():
        if step == "console":
            print("skip console: kubectl opens no websocket of this protocol", flush=True)
            continue
        try:
            getattr(life, step)()
        except Exception:
            print(f"FAIL {step}: {traceback.format_exc()}", flush=True)
            ok = False
            break
        print(f"ok {step}", flush=True)
    for store in (getattr(life, s, None) for s in ("vm", "vmi", "vmim")):
        if store and store.p.poll() is None:
            store.p.kill()
            store.p.wait()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
