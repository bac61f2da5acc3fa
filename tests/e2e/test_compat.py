"""Nodes of different CPUs: what a guest really sees, where it can go, and who says so before anything moves.

node-2 gives its guests neither aes nor avx2: its QEMU is told to leave them out.
"""
import json
import subprocess
import time

import ferrytest as ft
import pytest
from conftest import kernel_boot, node_of, own_cluster, qemu_pids

LEFT_OUT = ("aes", "avx2")


@pytest.fixture(scope="module")
def mixed():
    with own_cluster("mixed", 3, node_args=f"node-2:--cpu-without node-2:{','.join(LEFT_OUT)}") as c:
        yield c


@pytest.fixture
def run_on(mixed, images):
    """run_on(node, name, ...): a VM that was started there and may go anywhere."""
    made = []

    def create(node, name, **domain):
        others = [f"node-{i}" for i in range(1, 4) if f"node-{i}" != node]
        for n in others:
            mixed.api.patch("Node", n, {"spec": {"unschedulable": True}})
        try:
            obj = ft.vm(name, "128Mi", kernel=kernel_boot(images))
            obj["spec"]["template"]["spec"]["domain"].update(domain)
            made.append(name)
            mixed.api.create(obj)
            vmi = mixed.api.wait("VirtualMachineInstance", name,
                                 lambda v: ft.vmi_running(v) and "cpu" in v["status"].get("ferry", {}), 60)
        finally:
            for n in others:
                mixed.api.patch("Node", n, {"spec": {"unschedulable": None}})
        assert vmi["status"]["nodeName"] == node
        return vmi
    yield create
    for name in made:
        mixed.api.delete("VirtualMachine", name)
    for name in made:
        mixed.api.wait("VirtualMachine", name, lambda v: v is None, 60)


def cpu(model, *features):
    return {"cpu": {"cores": 1, "model": model, "features": [{"name": n, "policy": p} for n, p in features]}}


def seen(vmi):
    return vmi["status"]["ferry"]["cpu"]["features"]


def words(cluster, name):
    """{node: the -cpu of the guest's QEMU there}"""
    out = {}
    for node, pids in qemu_pids(cluster, name).items():
        with open(f"/proc/{pids[0]}/cmdline", "rb") as f:
            args = f.read().decode().split("\0")
        out[node] = args[args.index("-cpu") + 1]
    return out


def explain(cluster, name, *args):
    p = cluster.ferry("explain", "migration", name, *args, check=False)
    rows = {line.split()[0]: line.split(None, 3)[1:] for line in p.stdout.splitlines() if line.startswith("node-")}
    return p.returncode, rows, p.stdout + p.stderr


def test_a_passthrough_guest_goes_only_where_all_that_it_sees_is(mixed, run_on):
    api = mixed.api
    vmi = run_on("node-1", "all", **cpu("host-passthrough"))
    assert {"aes", "avx2", "sse2"} <= set(seen(vmi)), seen(vmi)
    vmi = api.wait("VirtualMachineInstance", "all", lambda v: ft.condition(v, "MigrationTargets"), 10)
    c = ft.condition(vmi, "MigrationTargets")
    assert (c["status"], c["reason"]) == ("True", "NodesFit"), c
    assert c["message"] == ("1 of 2 other nodes can take the guest: node-2 lacks the CPU features aes, avx2, which "
                            "the guest has"), c
    assert ft.condition(vmi, "LiveMigratable")["status"] == "True"
    code, rows, text = explain(mixed, "all")
    assert code == 0 and rows["node-3"][0] == "Yes", text
    assert rows["node-2"] == ["No", "CPUFeatures", "lacks the CPU features aes, avx2, which the guest has"], text
    t = time.monotonic()
    obj, _ = ft.move(api, "all", addedNodeSelector={"kubernetes.io/hostname": "node-2"}, timeout=20)
    assert time.monotonic() - t < 1.5
    assert obj["status"]["phase"] == "Failed" and obj["status"]["ferry"]["reason"] == "NoCandidate", obj["status"]
    assert "node-2: lacks the CPU features aes, avx2" in obj["status"]["ferry"]["message"], obj["status"]
    obj, _ = ft.move(api, "all")
    assert obj["status"]["phase"] == "Succeeded" and node_of(api, "all") == "node-3", obj["status"]
    assert seen(api.get("VirtualMachineInstance", "all")) == seen(vmi)


def test_a_guest_of_the_smaller_node_sees_the_same_everywhere_and_comes_back(mixed, run_on):
    api = mixed.api
    vmi = run_on("node-2", "small", **cpu("host-passthrough"))
    assert not set(LEFT_OUT) & set(seen(vmi)), seen(vmi)
    address = ft.vmi_address(vmi)
    boot = ft.Guest(address).wait(90)["bootID"]
    obj, _ = ft.move(api, "small", addedNodeSelector={"kubernetes.io/hostname": "node-1"})
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    there = words(mixed, "small")["node-1"]
    assert "aes=off" in there and "avx2=off" in there, there  # node-1 has them: this guest does not
    after = api.get("VirtualMachineInstance", "small")
    assert seen(after) == seen(vmi)
    obj, _ = ft.move(api, "small", addedNodeSelector={"kubernetes.io/hostname": "node-2"})
    assert obj["status"]["phase"] == "Succeeded" and node_of(api, "small") == "node-2", obj["status"]
    assert ft.Guest(address).wait(10)["bootID"] == boot


def test_what_qemu_drops_is_not_asked_of_the_target(mixed, run_on):
    """TCG has no pcid: forced, the guest does not get it, and it can move all the same."""
    vmi = run_on("node-2", "forced", **cpu("Nehalem", ("pcid", "force"), ("avx2", "optional")))
    assert "pcid" not in seen(vmi) and "avx2" not in seen(vmi) and "sse4.2" in seen(vmi), seen(vmi)
    assert "+pcid" in vmi["status"]["ferry"]["cpuModel"]
    obj, _ = ft.move(mixed.api, "forced")
    assert obj["status"]["phase"] == "Succeeded", obj["status"]


def test_a_model_that_a_node_cannot_give_is_not_started_there(mixed, images):
    api = mixed.api
    labels = api.get("Node", "node-2")["metadata"]["labels"]
    assert "cpu-model.node.kubevirt.io/Westmere" not in labels and "cpu-model.node.kubevirt.io/Nehalem" in labels
    assert "cpu-feature.node.kubevirt.io/avx2" not in labels
    assert labels["ferry.dev/qemu-version"].startswith("10.") and int(labels["ferry.dev/qemu-level"]) >= 1000
    obj = ft.vm("pinned", "128Mi", kernel=kernel_boot(images), nodeSelector={"kubernetes.io/hostname": "node-2"})
    obj["spec"]["template"]["spec"]["domain"].update(cpu("Westmere"))
    api.create(obj)
    try:
        api.wait("VirtualMachine", "pinned", lambda v: ft.printable(v) == "ErrorUnschedulable", 20)
    finally:
        api.delete("VirtualMachine", "pinned")


def test_the_targets_agent_refuses_by_name_what_labels_promise_wrongly(mixed, run_on):
    """node-2 claims more than its QEMU gives: nothing is sent, and the guest runs on where it was."""
    api = mixed.api
    run_on("node-1", "lied", **cpu("host-passthrough"))
    false = {f"cpu-feature.node.kubevirt.io/{f}": "true" for f in LEFT_OUT}
    api.patch("Node", "node-2", {"metadata": {"labels": false}})
    try:
        obj, _ = ft.move(api, "lied", addedNodeSelector={"kubernetes.io/hostname": "node-2"}, timeout=60)
    finally:
        api.patch("Node", "node-2", {"metadata": {"labels": {k: None for k in false}}})
    assert obj["status"]["phase"] == "Failed", obj["status"]
    assert "lacks the CPU features aes, avx2, which the guest has" in json.dumps(obj["status"]), obj["status"]
    assert not obj["status"].get("migrationState", {}).get("startTimestamp")
    assert node_of(api, "lied") == "node-1"
    ft.poll(lambda: list(qemu_pids(mixed, "lied")) == ["node-1"], 20, "the target is gone")


def test_a_guest_that_no_other_node_can_take_says_so_and_the_matrix_tells_why(mixed, run_on):
    api = mixed.api
    run_on("node-1", "alone", **cpu("host-passthrough"))
    gone = {"machine-type.node.kubevirt.io/" +
            api.get("VirtualMachineInstance", "alone")["status"]["machine"]["type"]: None}
    api.patch("Node", "node-3", {"metadata": {"labels": gone}})
    try:
        vmi = api.wait("VirtualMachineInstance", "alone",
                       lambda v: (ft.condition(v, "LiveMigratable") or {}).get("status") == "False", 10)
        c = ft.condition(vmi, "LiveMigratable")
        assert c["reason"] == "NodesNotLiveMigratable" and "node-2 lacks the CPU features aes, avx2" in c["message"], c
        assert "node-3 has a QEMU without the machine type pc-q35" in c["message"], c
        with pytest.raises(ft.ApiError) as e:
            api.create(ft.migration("m-alone", "alone"))
        assert e.value.status == 400 and "lacks the CPU features aes, avx2" in e.value.message, e.value
        code, rows, text = explain(mixed, "alone")
        assert code == 1 and rows["node-2"][:2] == ["No", "CPUFeatures"], text
        assert rows["node-3"][:2] == ["No", "MachineType"], text
    finally:
        api.patch("Node", "node-3", {"metadata": {"labels": {k: "true" for k in gone}}})
    api.wait("VirtualMachineInstance", "alone", lambda v: ft.condition(v, "LiveMigratable")["status"] == "True", 10)


def test_an_older_qemu_does_not_get_the_state_of_a_newer_one(mixed, run_on):
    api = mixed.api
    run_on("node-1", "newer", **cpu("Nehalem"))
    before = api.get("Node", "node-3")["metadata"]["labels"]
    old = {"ferry.dev/qemu-version": "9.2.1", "ferry.dev/qemu-level": "902"}
    api.patch("Node", "node-3", {"metadata": {"labels": old}})
    try:
        code, rows, text = explain(mixed, "newer")
        assert rows["node-3"][:2] == ["No", "QEMUVersion"] and "has QEMU 9.2.1, older than the guest's 10." in text, text
        obj, _ = ft.move(api, "newer")
        assert obj["status"]["phase"] == "Succeeded" and node_of(api, "newer") == "node-2", obj["status"]
    finally:
        api.patch("Node", "node-3", {"metadata": {"labels": {k: before[k] for k in old}}})


def test_models_in_common_are_listed(mixed):
    p = mixed.ferry("cpu-models", check=False)
    assert p.returncode == 0 and "\nNehalem" in p.stdout and "\nWestmere" not in p.stdout, p.stdout
    assert "avx2   not node-2" in p.stdout, p.stdout
    p = mixed.ferry("cpu-models", "--all", "node-1", "node-2", check=False)
    assert any(line.split() == ["Westmere", "1/2", "not", "node-2"] for line in p.stdout.splitlines()), p.stdout
    p = mixed.ferry("cpu-models", "node-1", "node-3", check=False)
    assert "\nWestmere" in p.stdout and "same CPU features" in p.stdout, p.stdout
    p = mixed.ferry("cpu-models", "node-9", check=False)
    assert p.returncode == 1 and "there is no node 'node-9'" in p.stderr, p.stderr


def test_doctor_tells_whom_another_qemu_would_strand(mixed, run_on):
    run_on("node-1", "stays", **cpu("Nehalem"))
    p = mixed.ferry("doctor", "--upgrade", check=False)
    assert p.returncode == 0 and "ok   default/stays" in p.stdout, p.stdout + p.stderr
    # Debian's package has a second one, whose CPUs are of 32 bits.
    p = mixed.ferry("doctor", "--upgrade", "--qemu", "/usr/bin/qemu-system-i386", check=False)
    assert p.returncode == 1 and "FAIL default/stays: it lacks the CPU features " in p.stdout, p.stdout + p.stderr
    assert "1 of 1 running VMs could not move" in p.stdout, p.stdout
    p = mixed.ferry("doctor", "--upgrade", "--qemu", "/bin/false", check=False)
    assert p.returncode == 1 and "'/bin/false': QEMU ended while it was asked" in p.stderr, p.stdout + p.stderr
