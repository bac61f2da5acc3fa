"""Any process of Ferry may be killed while VMs run and while one moves: the guests go on.  So may a disk fill up."""
import contextlib
import os
import re
import signal
import subprocess
import time

import ferrytest as ft
import pytest
from conftest import kernel_boot, migrations, node_of, other, own_cluster, qemu_pids

LONG = bool(os.environ.get("FERRY_TEST_LONG"))


def kill(cluster, what, node):
    if what in ("apiserver", "controller"):
        pid = cluster.pid(what)
    elif what == "agent":
        pid = cluster.pid(node)
    else:
        pids = [p for p in ft.descendants(cluster.node_pid1(node)) if ft.comm(p) == "ferry-launcher"[:15]]
        assert pids, "no launcher"
        for p in pids:
            os.kill(p, signal.SIGKILL)
        return
    os.kill(pid, signal.SIGKILL)


def api_back(cluster):
    def answers():
        try:
            cluster.api.list("Node")
            return True
        except OSError:
            return False
    ft.poll(answers, 20, "the API server answers again")


@pytest.mark.parametrize("what", ["apiserver", "controller", "agent", "launcher"])
def test_killing_a_process_does_not_touch_a_running_guest(cluster, make_vm, what):
    name = f"kill-{what}"
    address = make_vm(name)
    before = ft.Guest(address).status()
    probe = ft.Probe(f"{address}:7777", *ft.GENTLE)
    time.sleep(0.3)
    kill(cluster, what, node_of(cluster.api, name))
    time.sleep(1)
    w = probe.stop()
    assert not w["held"]["broken"] and w["new"]["failed"] == 0, w
    api_back(cluster)
    after = ft.Guest(address).wait(10)
    assert after["bootID"] == before["bootID"]
    # and it can still be managed: it moves
    source = node_of(cluster.api, name)

    def moves():
        obj, _ = ft.move(cluster.api, name, timeout=60)
        return obj
    obj = moves()
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    assert node_of(cluster.api, name) == other(source)
    assert ft.Guest(address).wait(10)["bootID"] == before["bootID"]


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("what", ["apiserver", "controller", "agent", "launcher"])
def test_killing_a_process_while_a_guest_moves(cluster, make_vm, what, side):
    if side == "target" and what in ("apiserver", "controller"):
        pytest.skip("there is one of them")
    name = f"mk-{what}-{side}"
    address = make_vm(name, memory="512Mi")
    api = cluster.api
    g = ft.Guest(address)
    g.command("verify 8")
    before = g.status()
    g.command("dirty 96 200")
    source = node_of(api, name)
    api.create(ft.migration(f"{name}-1", name))
    api.wait("VirtualMachineInstanceMigration", f"{name}-1",
             lambda v: ft.phase(v) in ("Running", *ft.FINAL), 30)
    kill(cluster, what, source if side == "source" else other(source))
    api_back(cluster)
    g.command("dirty 0")
    obj = api.wait("VirtualMachineInstanceMigration", f"{name}-1", lambda v: ft.phase(v) in ft.FINAL, 120)
    after = ft.Guest(address).wait(20)
    assert after["bootID"] == before["bootID"] and after["memBad"] == 0
    ft.poll(lambda: sum(len(v) for v in qemu_pids(cluster, name).values()) == 1, 30, "exactly one QEMU is left")
    where = list(qemu_pids(cluster, name))[0]
    vmi = api.wait("VirtualMachineInstance", name, lambda v: v["status"]["nodeName"] == where, 20)
    assert (where != source) == (obj["status"]["phase"] == "Succeeded"), (where, obj["status"])
    assert vmi["status"]["phase"] == "Running"


def test_qemu_killed_means_failed_and_the_run_strategy_decides(cluster, make_vm):
    make_vm("qdies")
    api = cluster.api
    uid = api.get("VirtualMachineInstance", "qdies")["metadata"]["uid"]
    for pids in qemu_pids(cluster, "qdies").values():
        for p in pids:
            os.kill(p, signal.SIGKILL)
    vmi = api.wait("VirtualMachineInstance", "qdies",
                   lambda v: v and v["metadata"]["uid"] != uid and ft.vmi_running(v), 60)
    ft.Guest(ft.vmi_address(vmi)).wait(90)


@contextlib.contextmanager
def little_room(cluster, node, size):
    """Where a node keeps the disks of its pods there is hardly any room."""
    inside = ["nsenter", "-t", str(cluster.node_pid1(node)), "-m", "-r", "-p"]
    where = "/run/ferry/state/pods"
    subprocess.run([*inside, "mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", where], check=True)
    try:
        yield
    finally:
        subprocess.run([*inside, "umount", "-l", where], check=True)


@pytest.mark.parametrize("when", ["copied", "written"])
def test_a_disk_that_does_not_fit_at_the_target_ends_the_move_and_not_the_guest(cluster, make_vm, when):
    """Its copy fills the target's file system: at once, or by what the guest writes when both are in step."""
    api, name = cluster.api, f"full-{when}"
    # it takes its first disk for the one it starts from, and writes to the last
    address = make_vm(name, disks=[{"name": n, "disk": {"bus": "virtio"}} for n in "de"],
                      volumes=[{"name": n, "emptyDisk": {"capacity": "32Mi"}} for n in "de"])
    g = ft.Guest(address, timeout=20)
    before = g.status()
    size = {"copied": 8, "written": 1}[when] << 20

    def writes(size, rounds):
        n = g.status()["diskChecks"]
        g.command(f"disk {size}")
        ft.poll(lambda: g.status()["diskChecks"] - n > rounds * size / 4096, 90, "the guest has written its disk")
    writes(size, 1)
    source = node_of(api, name)
    with migrations(api, bandwidthPerMigration="8Mi"), little_room(cluster, other(source), "3m"):
        api.create(ft.migration(name, name))
        if when == "written":
            def copies(m):
                return ft.phase(m) in ft.FINAL or m["status"].get("ferry", {}).get("stage") == "memory"
            m = api.wait("VirtualMachineInstanceMigration", name, copies, 30)
            assert ft.phase(m) not in ft.FINAL, m["status"]
            g.command(f"disk {8 << 20}")
        m = api.wait("VirtualMachineInstanceMigration", name, lambda m: ft.phase(m) in ft.FINAL, 60)
        f = m["status"]["ferry"]
        assert ft.phase(m) == "Failed" and f["reason"] == "DiskCopyFailed", m["status"]
        assert "disk 'e'" in f["message"] and "No space left on device" in f["message"], f
        ft.poll(lambda: list(qemu_pids(cluster, name)) == [source], 20, "the copy is gone")
    vmi = api.get("VirtualMachineInstance", name)
    assert vmi["status"]["phase"] == "Running" and vmi["status"]["nodeName"] == source
    writes(1 << 20, 2)
    obj, _ = ft.move(api, name, name=f"{name}-again")
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    writes(1 << 20, 2)
    after = g.status()
    assert after["bootID"] == before["bootID"] and after["diskBad"] == 0 and after["memBad"] == 0, after


def unknown_flows(cluster, node, name):
    """What the guest's pod does with a flow that its ports do not say."""
    uid, = [p["metadata"]["uid"] for p in cluster.api.list("Pod") if p["spec"].get("nodeName") == node and
            ft.phase(p) == "Running" and p["metadata"]["labels"].get("vm.kubevirt.io/name") == name]
    inside = ["nsenter", "-t", str(cluster.node_pid1(node)), "-m", "-r"]
    where = "/run/ferry/run/netns"
    ns, = [x for x in subprocess.run([*inside, "ls", where], capture_output=True, text=True, check=True).stdout.split()
           if uid in x]
    return subprocess.run([*inside, "nsenter", f"--net={where}/{ns}", "nft", "list", "chain", "ip", "vmnet", "unknown"],
                          capture_output=True, text=True, check=True).stdout


def test_the_agent_after_a_move_and_another_move_that_failed_judges_unknown_flows(cluster, make_vm, images):
    """A pod that came by a move takes all of them in until it is settled, and the next agent makes its network as it was
    made at first."""
    api, name = cluster.api, "settled"
    manifest = ft.vm(name, "128Mi", kernel=kernel_boot(images))
    interface, = manifest["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"]
    interface["ports"] = [{"port": 7777}, {"port": 7778}]
    g = ft.Guest(make_vm(name, manifest=manifest))
    boot = g.status()["bootID"]
    assert ft.phase(ft.move(api, name)[0]) == "Succeeded"
    node = node_of(api, name)
    assert "reject" in unknown_flows(cluster, node, name)
    with migrations(api, bandwidthPerMigration="8Mi"):
        api.create(ft.migration(f"{name}-2", name))
        api.wait("VirtualMachineInstanceMigration", f"{name}-2", lambda v: ft.phase(v) in ("Running", *ft.FINAL), 30)
        api.delete("VirtualMachineInstanceMigration", f"{name}-2")
        api.wait("VirtualMachineInstance", name, lambda v: v["status"]["migrationState"].get("failed"), 60)
    found = cluster.log(node).count("New -> Starting on Found")
    kill(cluster, "agent", node)
    ft.poll(lambda: cluster.log(node).count("New -> Starting on Found") > found, 30, "the next agent has found it")
    # whatever it does in the network for what it has found comes before what it does for a new pod
    make_vm("comes-later", nodeSelector={"kubernetes.io/hostname": node})
    assert "reject" in unknown_flows(cluster, node, name)
    assert g.wait(10)["bootID"] == boot and node_of(api, name) == node


SILENT = """table inet silent {
  chain in { type filter hook prerouting priority -400; tcp dport 49152-49159 drop; }
}"""


def test_a_target_that_falls_silent_while_it_is_connected_to_holds_nobody(images):
    """QEMU hears of no cancel there, and begins no other move before that connection has ended."""
    with own_cluster("silent", 3) as c:
        c.api.create(ft.vm("held", "128Mi", kernel=kernel_boot(images)))
        vmi = c.api.wait("VirtualMachineInstance", "held", ft.vmi_running, 60)
        source = vmi["status"]["nodeName"]
        dead, alive = sorted({"node-1", "node-2", "node-3"} - {source})
        before = ft.Guest(ft.vmi_address(vmi)).wait(90)
        c.in_node(dead, "nft", SILENT, check=True)
        c.api.create(ft.migration("first", "held", addedNodeSelector={"kubernetes.io/hostname": dead}))
        ft.poll(lambda: re.search(r"Starting -> Moving on Accepted", c.log(source)), 30, "QEMU connects")
        c.api.delete("VirtualMachineInstanceMigration", "first")
        c.api.wait("VirtualMachineInstanceMigration", "first", lambda v: v is None, 5)
        obj, phases = ft.move(c.api, "held", "second", addedNodeSelector={"kubernetes.io/hostname": alive})
        assert ft.phase(obj) == "Succeeded", obj["status"]
        assert phases["Succeeded"] < 6, phases  # the kernel's own time-out is 7 s
        assert "still open, ended" in c.log(source)
        now = ft.Guest(ft.vmi_address(vmi)).status()
        assert now["bootID"] == before["bootID"]
