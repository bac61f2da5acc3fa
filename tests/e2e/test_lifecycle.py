"""VMs start, stop, restart and pause, and say so in KubeVirt's words."""
import json
import select
import subprocess
import time

import ferrytest as ft
import pytest
from conftest import kernel_boot, qemu_pids


def status(api, name):
    return api.get("VirtualMachine", name)["status"]


def test_a_vm_runs_and_its_guest_answers(cluster, make_vm):
    address = make_vm("runs")
    api = cluster.api
    vmi = api.get("VirtualMachineInstance", "runs")
    st = vmi["status"]
    assert st["phase"] == "Running"
    assert st["interfaces"][0]["ipAddress"] == address and address.startswith("10.244.")
    assert list(st["activePods"].values()) == [st["nodeName"]]
    assert [p["phase"] for p in st["phaseTransitionTimestamps"]] == ["Pending", "Scheduling", "Scheduled", "Running"]
    assert ft.condition(vmi, "Ready")["status"] == "True"
    assert ft.condition(vmi, "LiveMigratable")["status"] == "True"
    assert "message" not in ft.condition(vmi, "LiveMigratable")
    vm = api.wait("VirtualMachine", "runs", lambda v: ft.printable(v) == "Running", 10)
    assert vm["status"]["created"] and vm["status"]["ready"]
    # a user's spec is the user's: nothing was written into it
    assert "firmware" in vm["spec"]["template"]["spec"]["domain"]
    assert "uuid" not in vm["spec"]["template"]["spec"]["domain"]["firmware"]
    pods = api.list("Pod", "kubevirt.io=virt-launcher,app=runs")
    assert len(pods) == 1 and pods[0]["metadata"]["name"].startswith("virt-launcher-runs-")


def test_stop_start_restart(cluster, make_vm):
    make_vm("cycle")
    api = cluster.api
    code, body, _ = api.sub("virtualmachines", "cycle", "stop")
    assert (code, body) == (202, b"")
    api.wait("VirtualMachineInstance", "cycle", lambda v: v is None, 60)
    vm = api.wait("VirtualMachine", "cycle", lambda v: ft.printable(v) == "Stopped", 10)
    assert vm["spec"]["runStrategy"] == "Halted"
    code, body, _ = api.sub("virtualmachines", "cycle", "stop")
    assert code == 409 and json.loads(body)["message"].endswith("VM is not running")
    code, _, _ = api.sub("virtualmachines", "cycle", "start")
    assert code == 202
    vmi = api.wait("VirtualMachineInstance", "cycle", ft.vmi_running, 60)
    first = ft.Guest(ft.vmi_address(vmi)).wait(90)["bootID"]
    code, body, _ = api.sub("virtualmachines", "cycle", "start")
    assert code == 409 and json.loads(body)["message"].endswith("VM is already running")
    uid = vmi["metadata"]["uid"]
    code, _, _ = api.sub("virtualmachines", "cycle", "restart")
    assert code == 202
    vmi = api.wait("VirtualMachineInstance", "cycle",
                   lambda v: v and v["metadata"]["uid"] != uid and ft.vmi_running(v), 60)
    assert ft.Guest(ft.vmi_address(vmi)).wait(90)["bootID"] != first


def test_the_address_stays_over_a_restart(cluster, make_vm):
    before = make_vm("sticky")
    api = cluster.api
    uid = api.get("VirtualMachineInstance", "sticky")["metadata"]["uid"]
    api.sub("virtualmachines", "sticky", "restart")
    vmi = api.wait("VirtualMachineInstance", "sticky",
                   lambda v: v and v["metadata"]["uid"] != uid and ft.vmi_running(v), 60)
    assert ft.vmi_address(vmi) == before


def traces_of(cluster, node):
    """What pods can leave on a node: processes, links, namespaces, folders, tables."""
    pid1 = cluster.node_pid1(node)

    def inside(*argv):
        return subprocess.run(["nsenter", "-t", str(pid1), "-n", "-m", "-r", *argv], capture_output=True, text=True,
                              check=True).stdout
    return {"processes": sorted(c for c in map(ft.comm, ft.descendants(pid1)) if c),
            "links": sorted(line.split(": ")[1] for line in inside("ip", "-o", "link").splitlines()),
            "routes": sorted(inside("ip", "route").splitlines()),
            "tables": sorted(inside("nft", "list", "tables").splitlines()),
            "folders": sorted(inside("find", "/run/ferry/run", "-mindepth", "2", "-maxdepth", "2").splitlines())}


def test_a_vm_that_moved_and_was_deleted_leaves_nothing_on_its_nodes(cluster, make_vm):
    api = cluster.api
    ft.poll(lambda: not api.list("Pod"), 60, "no pod is left")
    before = {n: traces_of(cluster, n) for n in ("node-1", "node-2")}
    make_vm("clean")
    source = api.get("VirtualMachineInstance", "clean")["status"]["nodeName"]
    obj, _ = ft.move(api, "clean")
    assert obj["status"]["phase"] == "Succeeded"
    # also while it runs elsewhere: no helper of it is left (kubevirt#11895)
    ft.poll(lambda: traces_of(cluster, source) == before[source], 20, "the source is as it was", 0.5)
    api.delete("VirtualMachine", "clean")
    api.wait("VirtualMachine", "clean", lambda v: v is None, 60)
    ft.poll(lambda: not api.list("Pod"), 60, "no pod is left")
    assert {n: traces_of(cluster, n) for n in ("node-1", "node-2")} == before


def test_pause_and_unpause(cluster, make_vm):
    address = make_vm("naps")
    api = cluster.api
    code, _, _ = api.sub("virtualmachineinstances", "naps", "pause")
    assert code == 200
    vmi = api.wait("VirtualMachineInstance", "naps", lambda v: ft.condition(v, "Paused"), 10)
    c = ft.condition(vmi, "Paused")
    assert (c["status"], c["reason"], c["message"]) == ("True", "PausedByUser", "VMI was paused by user")
    api.wait("VirtualMachine", "naps", lambda v: ft.printable(v) == "Paused", 10)
    with pytest.raises(OSError):
        ft.Guest(address).command("status", 1)
    code, body, _ = api.sub("virtualmachineinstances", "naps", "pause")
    assert code == 409 and json.loads(body)["message"].endswith("VMI is already paused")
    code, _, _ = api.sub("virtualmachineinstances", "naps", "unpause")
    assert code == 200
    api.wait("VirtualMachineInstance", "naps", lambda v: not ft.condition(v, "Paused"), 10)
    assert ft.Guest(address).wait(20)
    code, body, _ = api.sub("virtualmachineinstances", "naps", "unpause")
    assert code == 409 and json.loads(body)["message"].endswith("VMI is not paused")


@pytest.mark.parametrize("strategy,after_poweroff", [("Always", "again"), ("RerunOnFailure", "stopped"),
                                                     ("Once", "stopped"), ("Manual", "stopped")])
def test_run_strategies_after_the_guest_powers_off(cluster, make_vm, strategy, after_poweroff):
    name = "rs-" + strategy.lower()
    api = cluster.api
    if strategy == "Manual":
        make_vm(name, run_strategy=strategy, wait=False)
        api.wait("VirtualMachine", name, lambda v: ft.printable(v) == "Stopped", 10)
        assert api.find("VirtualMachineInstance", name) is None
        assert api.sub("virtualmachines", name, "start")[0] == 202
        vmi = api.wait("VirtualMachineInstance", name, ft.vmi_running, 60)
        address = ft.vmi_address(vmi)
        ft.Guest(address).wait(90)
    else:
        address = make_vm(name, run_strategy=strategy)
    uid = api.get("VirtualMachineInstance", name)["metadata"]["uid"]
    ft.Guest(address).last_word("poweroff")
    if after_poweroff == "again":
        api.wait("VirtualMachineInstance", name,
                 lambda v: v and v["metadata"]["uid"] != uid and ft.vmi_running(v), 60)
    else:
        api.wait("VirtualMachine", name, lambda v: ft.printable(v) == "Stopped", 30)
        vmi = api.find("VirtualMachineInstance", name)
        assert vmi is None or vmi["status"]["phase"] == "Succeeded"


def test_deleting_a_vm_leaves_nothing(cluster, make_vm):
    make_vm("gone")
    api = cluster.api
    assert qemu_pids(cluster, "gone")
    api.delete("VirtualMachine", "gone")
    api.wait("VirtualMachine", "gone", lambda v: v is None, 60)

    def left():
        out = [f"{k} {o['metadata']['name']}" for k in ("VirtualMachineInstance", "Pod", "PortBinding", "Allocation")
               for o in api.list(k) if "gone" in json.dumps(o["metadata"]) or "\"gone\"" in json.dumps(o.get("spec", {}))]
        return out + [str(p) for p in qemu_pids(cluster, "gone").values()]
    ft.poll(lambda: not left(), 20, f"everything of the VM is gone: {left()}")


def test_start_paused(cluster, make_vm):
    make_vm("sp", startStrategy="Paused", guest=False, wait=False)
    api = cluster.api
    vmi = api.wait("VirtualMachineInstance", "sp", lambda v: ft.vmi_running(v) and ft.condition(v, "Paused"), 60)
    assert api.sub("virtualmachineinstances", "sp", "unpause")[0] == 200
    assert ft.Guest(ft.vmi_address(vmi)).wait(90)


def test_a_guest_that_listens_shuts_down_long_before_the_grace_period_ends(cluster, make_vm):
    make_vm("listens", terminationGracePeriodSeconds=60)
    api = cluster.api
    t = time.monotonic()
    api.sub("virtualmachines", "listens", "stop")
    api.wait("VirtualMachineInstance", "listens", lambda v: v is None, 50)
    assert time.monotonic() - t < 30


def test_a_graceful_stop_is_bounded_by_the_grace_period(cluster, make_vm, images):
    deaf = kernel_boot(images, f"{ft.KERNEL_ARGS} tiny.heartbeat=1 tiny.nopower=1")
    make_vm("slow", manifest=ft.vm("slow", "128Mi", kernel=deaf, terminationGracePeriodSeconds=2))
    api = cluster.api
    t = time.monotonic()
    api.sub("virtualmachines", "slow", "stop")
    api.wait("VirtualMachineInstance", "slow", lambda v: v is None, 30)
    assert 2 <= time.monotonic() - t < 10


class Console:
    """`ferry console` as a person uses it."""

    def __init__(self, cluster, name):
        self.p = subprocess.Popen([f"{cluster.bin}/ferry", "console", name, "--kubeconfig", cluster.kubeconfig],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.out = b""

    def type(self, text):
        self.p.stdin.write(text)
        self.p.stdin.flush()

    def answers(self, word):
        """The guest's shell works out what comes after the word."""
        end, sent, want = time.monotonic() + 20, 0, f"{word}-42".encode()
        while time.monotonic() < end and want not in self.out:
            if time.monotonic() - sent > 2:
                self.type(f"\necho {word}-$((40+2))\n".encode())
                sent = time.monotonic()
            if select.select([self.p.stdout], [], [], 0.5)[0]:
                self.out += self.p.stdout.read1(4096)
        assert want in self.out, self.out[-500:]

    def leave(self):
        self.type(b"\x1d")
        return self.p.wait(10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.p.kill()
        self.p.wait()


def test_console_talks_to_the_guest(cluster, make_vm, images):
    make_vm("con", manifest=ft.vm("con", "128Mi", kernel=kernel_boot(images, ft.KERNEL_ARGS)))
    with Console(cluster, "con") as c:
        c.answers("forty")
        assert c.leave() == 0


def test_a_console_stays_open_while_its_guest_moves(cluster, make_vm, images):
    make_vm("con-moves", manifest=ft.vm("con-moves", "128Mi", kernel=kernel_boot(images, ft.KERNEL_ARGS)))
    with Console(cluster, "con-moves") as c:
        c.answers("before")
        for word in ("there", "back"):
            obj, _ = ft.move(cluster.api, "con-moves")
            assert obj["status"]["phase"] == "Succeeded", obj["status"]
            c.answers(word)
        assert c.leave() == 0
