"""Post-copy: the guest goes over before its memory does; the link between the halves may break; only a dead QEMU ends it."""
import contextlib
import os
import signal
import threading

import ferrytest as ft
import pytest
from conftest import kernel_boot, node_of, other, qemu_pids

IRRECOVERABLE = "VMI is irrecoverable due to failed post-copy migration"
# the ports of the few moves that run here at once (MIG_PORT and those after it): a wider range would hit the agents' own
# connections to the API server, which leave by ports of the same region
CUT = """table inet cut {
  chain in { type filter hook prerouting priority -400; tcp dport 49152-49159 drop; tcp sport 49152-49159 drop; }
  chain out { type filter hook output priority -400; tcp dport 49152-49159 drop; tcp sport 49152-49159 drop; }
}"""


@pytest.fixture
def policy(cluster):
    """A slow link and post-copy for the VMs of one label; what the others do stays as it is."""
    cluster.api.create({
        "apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy", "metadata": {"name": "postcopy"},
        "spec": {"allowPostCopy": True, "bandwidthPerMigration": "24Mi",
                 "selectors": {"virtualMachineInstanceSelector": {"test": "postcopy"}}}})
    yield
    cluster.api.delete("MigrationPolicy", "postcopy")


@pytest.fixture
def busy(cluster, images, make_vm, policy):
    """busy(name): a guest that writes faster than that link carries, and checks its memory."""
    def create(name, **kw):
        obj = ft.vm(name, "128Mi", kernel=kernel_boot(images), **kw)
        obj["spec"]["template"]["metadata"].setdefault("labels", {})["test"] = "postcopy"
        g = ft.Guest(make_vm(name, manifest=obj), timeout=30)
        g.command("dirty 32 40")
        g.command("verify 8")
        return g
    return create


def migration_state(vmi):
    return (vmi["status"].get("migrationState") or {}) if vmi else {}


def is_split(vmi):
    ms = migration_state(vmi)
    return ms.get("mode") == "PostCopy" and ms.get("targetNodeDomainDetected") and not ms.get("completed")


class Split:
    """Inside: the guest runs at the target, a part of its memory is at the source, and the link is cut."""

    def __init__(self, cluster, name, node=None):
        self.cluster, self.api, self.name = cluster, cluster.api, name
        self.source = node_of(self.api, name)
        self.node = node or self.source

    def __enter__(self):
        seen = threading.Event()

        def cut():  # at the instant that the agent tells of: the link has 1.3 s of memory to carry then
            api = ft.Api(self.cluster.kubeconfig)
            api.wait("VirtualMachineInstance", self.name, lambda v: migration_state(v).get("mode") == "PostCopy", 60)
            self.cluster.in_node(self.node, "nft", CUT, check=True)
            seen.set()
        self.thread = threading.Thread(target=cut)
        self.thread.start()
        self.migration = self.api.create(ft.migration(f"pc-{self.name}", self.name))
        assert seen.wait(60), "post-copy did not begin"
        self.api.wait("VirtualMachineInstance", self.name, is_split, 20)
        return self

    def mend(self):
        self.cluster.in_node(self.node, "nft", "delete table inet cut", check=True)

    def __exit__(self, *exc):
        self.thread.join()
        with contextlib.suppress(Exception):
            self.cluster.in_node(self.node, "nft", "delete table inet cut", stderr=-3)

    def end(self, timeout=60):
        try:
            return self.api.wait("VirtualMachineInstanceMigration", self.migration["metadata"]["name"],
                                 lambda v: ft.phase(v) in ft.FINAL, timeout)
        except TimeoutError as e:
            vmi = self.api.find("VirtualMachineInstance", self.name) or {}
            pods = [(p["metadata"]["name"], p["metadata"]["uid"], ft.phase(p)) for p in self.api.list("Pod")]
            raise TimeoutError(f"{e}; the VMI: {vmi.get('status')}; the pods: {pods}") from e


def check_whole(cluster, name, guest, first, obj, source):
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    ms = obj["status"]["migrationState"]
    assert ms["mode"] == "PostCopy" and ms["completed"] and not ms.get("failed"), ms
    vmi = cluster.api.wait("VirtualMachineInstance", name, lambda v: len(v["status"]["activePods"]) == 1, 20)
    assert vmi["status"]["nodeName"] == other(source)
    ft.poll(lambda: list(qemu_pids(cluster, name)) == [other(source)], 10, "one QEMU is left, on the target")
    before = guest.status()
    ft.poll(lambda: guest.status()["memChecks"] > before["memChecks"], 30, "the guest goes on checking")
    s = guest.status()
    assert s["bootID"] == first["bootID"] and s["memBad"] == 0, s


def test_a_guest_that_outruns_the_link_goes_over_and_back(cluster, busy):
    g = busy("pc-conv")
    first = g.status()
    for _ in range(2):
        source = node_of(cluster.api, "pc-conv")
        obj, _ = ft.move(cluster.api, "pc-conv", timeout=90)
        check_whole(cluster, "pc-conv", g, first, obj, source)
        st = obj["status"]["ferry"]
        assert st["pauseMs"] > 0 and st["percent"] == 100 and st["passes"] >= 3, st
    said = [e["message"] for e in cluster.api.list("Event") if e["involvedObject"]["name"] == "pc-conv"]
    assert any(m.startswith("Switching to post-copy: the guest writes faster") for m in said), said
    assert any("the rest of its memory follows" in m for m in said), said


def test_without_the_policy_it_stays_pre_copy(cluster, make_vm):
    make_vm("pc-none")
    obj, _ = ft.move(cluster.api, "pc-none")
    assert obj["status"]["migrationState"]["mode"] == "PreCopy"


def test_disks_that_move_keep_it_pre_copy_and_that_is_said(cluster, make_vm, images, policy):
    vols = [{"name": "e", "emptyDisk": {"capacity": "16Mi"}}]
    obj = ft.vm("pc-disk", "128Mi", kernel=kernel_boot(images), volumes=vols,
                disks=[{"name": "e", "disk": {"bus": "virtio"}}])
    obj["spec"]["template"]["metadata"].setdefault("labels", {})["test"] = "postcopy"
    make_vm("pc-disk", manifest=obj)
    done, _ = ft.move(cluster.api, "pc-disk")
    assert done["status"]["phase"] == "Succeeded" and done["status"]["migrationState"]["mode"] == "PreCopy"
    said = [e["message"] for e in cluster.api.list("Event") if e["involvedObject"]["name"] == "pc-disk"]
    assert "Post-copy is not used: disks move with the VM." in said, said


def test_a_lost_link_is_mended_and_nothing_is_lost(cluster, busy):
    g = busy("pc-link")
    first = g.status()
    with Split(cluster, "pc-link") as s:
        # nothing goes over any more: after five seconds of silence both halves know it
        vmi = cluster.api.wait("VirtualMachineInstance", "pc-link",
                               lambda v: v["status"]["ferry"]["migration"]["stage"] == "postcopy-paused", 20)
        assert vmi["status"]["phase"] == "Running" and not migration_state(vmi).get("failed")
        s.mend()
        obj = s.end()
    check_whole(cluster, "pc-link", g, first, obj, s.source)
    said = [e["message"] for e in cluster.api.list("Event") if e["involvedObject"]["name"] == "pc-link"]
    assert any(m.startswith("The migration link was lost in post-copy") for m in said), said
    assert "The migration link is back." in said, said


def test_a_cancel_comes_too_late_and_does_no_harm(cluster, busy):
    g = busy("pc-cancel")
    first = g.status()
    with Split(cluster, "pc-cancel") as s:
        cluster.api.delete("VirtualMachineInstanceMigration", s.migration["metadata"]["name"])
        cluster.api.wait("VirtualMachineInstance", "pc-cancel", lambda v: migration_state(v).get("abortRequested"), 10)
        s.mend()
        vmi = cluster.api.wait("VirtualMachineInstance", "pc-cancel", lambda v: migration_state(v).get("completed"), 60)
    assert not migration_state(vmi).get("failed")
    assert vmi["status"]["nodeName"] == other(s.source)
    assert g.status()["bootID"] == first["bootID"]


def answers(api):
    with contextlib.suppress(OSError):
        return api.find("Node", "node-1") is not None


@pytest.mark.parametrize("who", ["source", "target", "apiserver", "controller"])
def test_the_death_of_a_daemon_in_post_copy_is_survived(cluster, busy, who):
    g = busy(f"pc-{who}")
    first = g.status()
    with Split(cluster, f"pc-{who}") as s:
        name = {"source": s.source, "target": other(s.source)}.get(who, who)
        os.kill(cluster.pid(name), signal.SIGKILL)
        s.mend()
        ft.poll(lambda: answers(cluster.api), 30, "the API answers")
        obj = s.end(90)
    check_whole(cluster, f"pc-{who}", g, first, obj, s.source)


@pytest.mark.parametrize("side", ["source", "target"])
def test_the_death_of_a_launcher_in_post_copy_is_survived(cluster, busy, side):
    name = f"pc-l{side}"
    g = busy(name)
    first = g.status()
    with Split(cluster, name) as s:
        node = s.source if side == "source" else other(s.source)
        pids = [p for p in ft.descendants(cluster.node_pid1(node)) if ft.comm(p).startswith("ferry-launcher")
                and any(q in ft.descendants(cluster.node_pid1(node)) for q in qemu_pids(cluster, name).get(node, []))]
        assert pids
        os.kill(pids[0], signal.SIGKILL)
        s.mend()
        obj = s.end(90)
    check_whole(cluster, name, g, first, obj, s.source)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("strategy", ["RerunOnFailure", "Once"])
def test_a_dead_qemu_in_post_copy_is_told_and_the_run_strategy_decides(cluster, busy, side, strategy):
    name = f"pc-{side[:3]}-{strategy.lower()[:5]}"
    g = busy(name, run_strategy=strategy)
    first = g.status()
    api = cluster.api
    with Split(cluster, name) as s:
        uid = api.get("VirtualMachineInstance", name)["metadata"]["uid"]
        node = s.source if side == "source" else other(s.source)
        os.kill(qemu_pids(cluster, name)[node][0], signal.SIGKILL)
        obj = s.end()
        assert obj["status"]["phase"] == "Failed", obj["status"]
        if strategy == "Once":
            vmi = api.wait("VirtualMachineInstance", name, lambda v: ft.phase(v) == "Failed", 30)
            assert migration_state(vmi)["failureReason"] == IRRECOVERABLE, vmi["status"]
            assert vmi["metadata"]["uid"] == uid
            ft.poll(lambda: not qemu_pids(cluster, name), 20, "no half is left")
            return
        api.wait("VirtualMachineInstance", name,
                 lambda v: v and v["metadata"]["uid"] != uid and ft.vmi_running(v), 60)
        s.mend()
        assert g.wait(90)["bootID"] != first["bootID"]
    said = [e["message"] for e in api.list("Event") if e["involvedObject"]["name"] == name]
    assert IRRECOVERABLE in said or any(IRRECOVERABLE in m for m in said), said
