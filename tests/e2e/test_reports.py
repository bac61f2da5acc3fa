"""What users of others reported and only real processes can show (docs/internals/reports.md has the whole list)."""
import contextlib
import os
import signal
import subprocess
import threading
import time

import ferrytest as ft
import pytest
from conftest import kernel_boot, migrations, node_of, other, qemu_pids
from test_drain import uncordoned  # noqa: F401 (a fixture)


class Percentages(threading.Thread):
    """What the VMI shows of its moves, in order, without repetitions; {uid of the move: [percent]}."""

    def __init__(self, cluster, name):
        super().__init__(daemon=True)
        self.api, self.name, self.seen, self.over = ft.Api(cluster.kubeconfig), name, {}, False
        self.start()

    def run(self):
        for _, _, vmi in self.api.watch("VirtualMachineInstance", self.name, timeout=60):
            st = vmi["status"]
            percent = ((st.get("ferry") or {}).get("migration") or {}).get("percent")
            uid = (st.get("migrationState") or {}).get("migrationUid")
            rows = self.seen.setdefault(uid, [])
            if percent is not None and rows[-1:] != [percent]:
                rows.append(percent)
            if self.over:
                return


@contextlib.contextmanager
def answers_soon(what):
    t = time.monotonic()
    yield
    assert time.monotonic() - t < 1, what


def refused(code, text, call):
    """One that says no at once, with this in its text."""
    with answers_soon(text), pytest.raises(ft.ApiError) as e:
        call()
    assert e.value.status == code and text in e.value.message, e.value


def sub(api, name, what, body=None):
    code, text, _ = api.sub("virtualmachineinstances", name, what, body)
    if code >= 300:
        raise ft.ApiError(code, text.decode())


def ask_all_that_can_be_asked(cluster, name):
    """Of a VM that moves (cloud-hypervisor#7111): each is allowed, or refused with a reason, within a second."""
    api = cluster.api
    refused(400, "in-flight migration detected", lambda: api.create(ft.migration("again", name)))
    refused(501, "not supported", lambda: api.call(
        "PUT", f"/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/{name}/addvolume",
        {"name": "x", "disk": {}, "volumeSource": {"persistentVolumeClaim": {"claimName": "x"}}}))
    refused(422, "not supported by Ferry yet", lambda: api.call(
        "POST", "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinesnapshots", {"metadata": {"name": "s"}}))
    with answers_soon("more memory waits for the next start"):
        api.patch("VirtualMachine", name, {"spec": {"template": {"spec": {"domain": {"memory": {"guest": "160Mi"}}}}}})
    refused(409, "cannot pause a VM that is migrating", lambda: sub(api, name, "pause"))
    p = subprocess.Popen([f"{cluster.bin}/ferry", "console", name, "--kubeconfig", cluster.kubeconfig],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    with answers_soon("a console"):
        out, _ = p.communicate(b"\x1d", 10)
    assert p.returncode == 0, out


def evict_all(api, name, seconds):
    """Every pod of the VM, each tenth of a second (kubevirt#2196): what was answered."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction"}
    codes, end = set(), time.monotonic() + seconds
    while time.monotonic() < end:
        pods = [p["metadata"]["name"] for p in api.list("Pod", f"vm.kubevirt.io/name={name}") if ft.phase(p) == "Running"]
        for pod in pods:
            with contextlib.suppress(ft.ApiError):
                api.call("POST", api.path("Pod", pod) + "/eviction", {**body, "metadata": {"name": pod}})
                codes.add((pod, "granted"))
        codes.add(len(pods))
        time.sleep(0.1)
    return codes


def stage(vmi):
    return ((vmi["status"].get("ferry") or {}).get("migration") or {}).get("stage")


@pytest.fixture(scope="module")
def frozen(cluster, images):
    """(name, first status, source) of a VM whose move is cancelled, and whose target stands still for good.

    It stands still before the source connects: QEMU then waits for the handshake, where it hears of no cancel.  Its own
    fixture, because the end takes half a minute and others need not wait for that.
    """
    api, name = cluster.api, "frozen"
    api.create(ft.vm(name, "128Mi", kernel=kernel_boot(images)))
    vmi = api.wait("VirtualMachineInstance", name, ft.vmi_running, 60)
    first, source = ft.Guest(ft.vmi_address(vmi)).wait(90), vmi["status"]["nodeName"]
    api.create(ft.migration("frozen-1", name))
    api.wait("VirtualMachineInstance", name, lambda v: (v["status"].get("migrationState") or {}).get("targetNodeAddress"), 30)
    pid, = qemu_pids(cluster, name)[other(source)]
    os.kill(pid, signal.SIGSTOP)
    api.wait("VirtualMachineInstanceMigration", "frozen-1", lambda v: ft.phase(v) == "Running", 30)
    api.delete("VirtualMachineInstanceMigration", "frozen-1")
    yield name, first, source
    api.delete("VirtualMachine", name)
    api.wait("VirtualMachine", name, lambda v: v is None, 60)


def test_a_vm_that_moves_is_asked_everything_cancelled_and_moved_again(cluster, make_vm, uncordoned, frozen):  # noqa: F811
    api, name = cluster.api, "asked-all"
    g = ft.Guest(make_vm(name), timeout=20)
    first, source = g.status(), node_of(api, name)
    shown = Percentages(cluster, name)
    with migrations(api, bandwidthPerMigration="8Mi"):
        g.command("dirty 48 0")  # the first one does not end by itself
        m1 = api.create(ft.migration("asked-1", name))
        api.wait("VirtualMachineInstance", name, lambda v: stage(v) == "memory", 30)
        ask_all_that_can_be_asked(cluster, name)
        codes = evict_all(api, name, 1.5)
        assert codes == {2}, codes
        cluster.ferry("evacuate-cancel", "vmi", name)
        assert ft.phase(api.get("VirtualMachineInstanceMigration", "asked-1")) == "Running"
        begun = time.monotonic()
        api.delete("VirtualMachineInstanceMigration", "asked-1")
        api.wait("VirtualMachineInstanceMigration", "asked-1", lambda v: v is None, 30)
        assert time.monotonic() - begun < 5, "the cancel"
        g.command("dirty 0")
        begun = time.monotonic()
        m2 = api.create(ft.migration("asked-2", name))  # kubevirt#5373: what is left of the first is no obstacle
        api.wait("VirtualMachineInstanceMigration", "asked-2", lambda v: ft.phase(v) == "Running", 30)
        assert time.monotonic() - begun < 5, "the next move"
        obj = api.wait("VirtualMachineInstanceMigration", "asked-2", lambda v: ft.phase(v) in ft.FINAL, 60)
    assert obj["status"]["phase"] == "Succeeded" and node_of(api, name) == other(source), obj["status"]
    assert g.wait(10)["bootID"] == first["bootID"]
    shown.over = True
    assert ft.condition(api.get("VirtualMachine", name), "RestartRequired")["status"] == "True"
    for m in (m1, m2):
        rows = shown.seen[m["metadata"]["uid"]]
        assert rows == sorted(rows), "a percentage fell"
    assert len(rows) >= 3 and rows[-1] == 100 and 100 not in shown.seen[m1["metadata"]["uid"]], shown.seen


def test_a_target_that_stands_still_for_good_is_given_up(cluster, frozen):
    """lxc/incus#2517: both ends waited for each other, for ever, and nobody could delete the operation."""
    api = cluster.api
    name, first, source = frozen
    api.wait("VirtualMachineInstanceMigration", "frozen-1", lambda v: v is None, 60)
    ft.poll(lambda: list(qemu_pids(cluster, name)) == [source], 15, "the frozen target is gone")
    g = ft.Guest(ft.vmi_address(api.get("VirtualMachineInstance", name)), timeout=20)
    assert g.status()["bootID"] == first["bootID"] and node_of(api, name) == source
    obj, _ = ft.move(api, name)
    assert ft.phase(obj) == "Succeeded", obj["status"]
