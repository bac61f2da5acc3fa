"""A node is emptied: VMs move, what cannot go is named, and a drain that was called off does not come back."""
import shutil
import subprocess
import time

import ferrytest as ft
import pytest
from conftest import node_of, other, qemu_pids


@pytest.fixture
def uncordoned(cluster):
    """Whatever a test does, both nodes are open again, and no VM is asked to leave."""
    yield
    for n in ("node-1", "node-2"):
        cluster.ferry("evacuate-cancel", "node", n, check=False)
        cluster.ferry("uncordon", n)


def together(api, names):
    """All on the node of the first."""
    node = node_of(api, names[0])
    for name in names[1:]:
        if node_of(api, name) != node:
            obj, _ = ft.move(api, name, addedNodeSelector={"kubernetes.io/hostname": node})
            assert obj["status"]["phase"] == "Succeeded", obj["status"]
    return node


def drain(cluster, node, *args, timeout=120):
    p = cluster.ferry("drain", node, *args, check=False, timeout=timeout)
    return p.returncode, p.stdout, p.stderr


def rows(text):
    """{VM: (WHAT, WHY)} of the table."""
    lines = [line.split(None, 2) for line in text.splitlines() if line.startswith("default/")]
    return {w[0]: (w[1], w[2]) for w in reversed(lines) if len(w) == 3}


def moves_of(api, name):
    return api.list("VirtualMachineInstanceMigration", f"kubevirt.io/vmi-name={name}")


def test_a_drain_moves_all_and_a_second_one_has_nothing_to_do(cluster, make_vm, uncordoned):
    api = cluster.api
    addresses = [make_vm("drain-a"), make_vm("drain-b")]
    node = together(api, ["drain-a", "drain-b"])
    probes = [ft.Probe(f"{a}:7777", *ft.GENTLE) for a in addresses]
    try:
        time.sleep(0.5)
        code, out, err = drain(cluster, node, "--dry-run")
        assert code == 0 and rows(out) == {"default/drain-a": ("Moves", f"to {other(node)}"),
                                           "default/drain-b": ("Moves", f"to {other(node)}")}, out + err
        assert not api.get("Node", node).get("spec", {}).get("unschedulable")
        assert node_of(api, "drain-a") == node_of(api, "drain-b") == node
        code, out, err = drain(cluster, node)
        assert code == 0, out + err
        assert f"node/{node} cordoned" in out and "2 moved, 0 shut down" in out, out
        assert node_of(api, "drain-a") == node_of(api, "drain-b") == other(node)
        time.sleep(0.5)
    finally:
        last = [p.stop() for p in probes]
    for w in last:
        assert not w["held"]["broken"] and w["new"]["failed"] == 0, w
    for name in ("drain-a", "drain-b"):
        vmi = api.get("VirtualMachineInstance", name)
        assert not vmi["status"].get("evacuationNodeName")
        ft.poll(lambda n=name: list(qemu_pids(cluster, n)) == [other(node)], 10, "one QEMU is left, on the target")
    assert api.get("Node", node)["spec"]["unschedulable"]
    code, out, err = drain(cluster, node, timeout=20)
    assert code == 0 and "already cordoned" in out and f"{node} has no VM" in out, out + err


def test_what_cannot_go_is_named_and_left_alone(cluster, make_vm, uncordoned):
    api = cluster.api
    kept = {"kubernetes.io/hostname": "node-1"}
    for name, spec in (("pinned", {"nodeSelector": kept}), ("stops", {"nodeSelector": kept, "eviction": "None"})):
        make_vm(name, **spec)
    before = {n: api.get("VirtualMachineInstance", n)["metadata"]["uid"] for n in ("pinned", "stops")}
    vmi = api.wait("VirtualMachineInstance", "pinned",  # and each of its moves is refused in these words
                   lambda v: (ft.condition(v, "LiveMigratable") or {}).get("status") == "False", 10)
    with pytest.raises(ft.ApiError) as e:
        api.create(ft.migration("m-pinned", "pinned"))
    text = ft.condition(vmi, "LiveMigratable")["message"]
    assert "kubernetes.io/hostname=node-1" in text and text in e.value.message, e.value
    code, out, err = drain(cluster, "node-1", "--dry-run", timeout=20)
    assert code == 1 and "nothing was changed" in out, out + err
    t = time.monotonic()
    code, out, err = drain(cluster, "node-1", timeout=30)
    assert code == 1 and time.monotonic() - t < 10, out + err
    assert "Blocked: 2 VMs are left on node-1" in err and "ferry uncordon node-1" in err, err
    what, why = rows(err)["default/pinned"]
    assert what == "Stays" and "node-2" in why and "kubernetes.io/hostname=node-1" in why, err
    assert rows(err)["default/stops"][0] == "ShutDown" and "--force" in rows(err)["default/stops"][1], err
    for name, uid in before.items():
        vmi = api.get("VirtualMachineInstance", name)
        assert vmi["metadata"]["uid"] == uid and ft.vmi_running(vmi)
        assert not vmi["status"].get("evacuationNodeName") and moves_of(api, name) == []
    code, out, err = drain(cluster, "node-1", "--force", timeout=60)
    assert code == 1 and "default/stops is shut down" in out, out + err
    assert "Blocked: 1 VM is left on node-1" in err and list(rows(err)) == ["default/pinned"], err


def test_a_drain_that_is_called_off_does_not_come_back(cluster, make_vm, uncordoned):
    api = cluster.api
    make_vm("called")
    node = node_of(api, "called")
    cluster.ferry("cordon", other(node))
    code, out, err = drain(cluster, node, "--timeout", "4", timeout=30)
    assert code == 1 and "when the time was over" in err and f"ferry evacuate-cancel node {node}" in err, out + err
    assert rows(err)["default/called"] == ("Waits", f"{other(node)}: the node is cordoned"), err
    assert api.get("VirtualMachineInstance", "called")["status"]["evacuationNodeName"] == node
    p = cluster.ferry("uncordon", node)
    assert "still asked to leave" in p.stdout
    p = cluster.ferry("evacuate-cancel", "node", node)
    assert p.stdout == "VMI default/called was canceled evacuation\n"
    ft.poll(lambda: moves_of(api, "called") == [], 5, "the evacuation's migration is gone")
    cluster.ferry("uncordon", other(node))
    time.sleep(3)
    vmi = api.get("VirtualMachineInstance", "called")
    assert moves_of(api, "called") == [] and not vmi["status"].get("evacuationNodeName")
    assert vmi["status"]["nodeName"] == node and ft.vmi_running(vmi)


def test_the_taint_is_taken_off_not_cancelled(cluster, make_vm, uncordoned):
    api = cluster.api
    make_vm("tainted")
    node = node_of(api, "tainted")
    cluster.ferry("cordon", other(node))
    before = api.get("Node", node).get("spec", {}).get("taints") or []
    taint = {"key": "kubevirt.io/drain", "effect": "NoSchedule"}
    api.patch("Node", node, {"spec": {"taints": [*before, taint]}})
    try:
        ft.poll(lambda: moves_of(api, "tainted"), 10, "the taint asks for a move")
        p = cluster.ferry("evacuate-cancel", "vm", "tainted", check=False)
        assert p.returncode == 1, p.stdout
        assert f'Node "{node}" has NodeDrainTaintKey "kubevirt.io/drain:NoSchedule"' in p.stderr, p.stderr
    finally:
        api.patch("Node", node, {"spec": {"taints": before or None}})
    ft.poll(lambda: moves_of(api, "tainted") == [], 5, "the evacuation's migration is gone")
    cluster.ferry("uncordon", other(node))
    time.sleep(3)
    assert moves_of(api, "tainted") == [] and node_of(api, "tainted") == node
    code, body, _ = api.sub("virtualmachineinstances", "tainted", "evacuate/cancel")
    assert (code, body) == (200, b"")


def evict(api, name):
    """(code, message) of an eviction of the pod that runs the VM."""
    node = node_of(api, name)
    pod = next(p for p in api.list("Pod", f"vm.kubevirt.io/name={name}") if p["spec"].get("nodeName") == node)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"]}}
    try:
        api.call("POST", api.path("Pod", pod["metadata"]["name"]) + "/eviction", body)
    except ft.ApiError as e:
        return e.status, e.message, e.body
    return 201, "", {}


@pytest.fixture
def attempts(cluster):
    """Two tries of an evacuation within an hour, for the time of a test."""
    cluster.api.patch("FerryConfig", "ferry", {"spec": {"evacuationAttempts": 2}})
    yield 2
    cluster.api.patch("FerryConfig", "ferry", {"spec": {"evacuationAttempts": None}})


def test_an_evacuation_that_cannot_work_is_given_up_and_asked_anew(cluster, make_vm, uncordoned, attempts):
    api = cluster.api
    # by its affinity, which only a try finds out: a nodeSelector makes the VM one that cannot move at all
    make_vm("stuck", affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}]}}})
    assert evict(api, "stuck")[0] == 429

    def tries():
        return (api.get("VirtualMachineInstance", "stuck")["status"].get("ferry") or {}).get("evacuation") or {}
    ft.poll(lambda: tries().get("reason") == "AttemptsExhausted", 60, "two tries have failed")
    assert len(tries()["failedTimes"]) == attempts and tries()["node"] == "node-1"
    assert "2 attempts within an hour failed; the last one: " in tries()["message"]
    events = [e for e in api.list("Event") if e["reason"] == "EvacuationBlocked"]
    assert [e["involvedObject"]["name"] for e in events] == ["stuck"], events
    n = len(moves_of(api, "stuck"))
    code, message, _ = evict(api, "stuck")
    assert code == 429 and 'Evacuation of VMI "default/stuck" is blocked: 2 attempts' in message, message
    code, out, err = drain(cluster, "node-1", timeout=30)
    assert code == 1 and rows(err)["default/stuck"][0] == "Stays", err
    assert "2 attempts within an hour failed" in err and "ferry evacuate-cancel" in err, err
    time.sleep(3)
    assert len(moves_of(api, "stuck")) == n and ft.vmi_running(api.get("VirtualMachineInstance", "stuck"))
    cluster.ferry("evacuate-cancel", "vmi", "stuck")
    ft.poll(lambda: not tries().get("reason"), 10, "it is forgotten")
    assert evict(api, "stuck")[0] == 429
    ft.poll(lambda: len(moves_of(api, "stuck")) > n, 10, "asked anew, it is tried again")


def test_a_disruption_budget_keeps_what_an_eviction_would_shut_down(cluster, make_vm, uncordoned):
    api = cluster.api
    make_vm("kept", eviction="None")
    node, uid = node_of(api, "kept"), api.get("VirtualMachineInstance", "kept")["metadata"]["uid"]
    api.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "kept"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}})
    try:
        pdb = api.wait("PodDisruptionBudget", "kept", lambda b: b and b["status"].get("currentHealthy") == 1, 30)
        assert pdb["status"]["disruptionsAllowed"] == 0 and pdb["status"]["desiredHealthy"] == 1, pdb
        code, message, body = evict(api, "kept")
        assert (code, message) == (429, "Cannot evict pod as it would violate the pod's disruption budget.")
        assert body["details"]["causes"] == [{
            "reason": "DisruptionBudget",
            "message": "The disruption budget kept needs 1 healthy pods and has 1 currently"}], body
        code, out, err = drain(cluster, node, "--force", "--timeout", "3", timeout=30)
        assert code == 1 and "disruption budget" in out + err, out + err
        assert api.get("VirtualMachineInstance", "kept")["metadata"]["uid"] == uid
        api.patch("PodDisruptionBudget", "kept", {"spec": {"minAvailable": 0}})
        api.wait("PodDisruptionBudget", "kept", lambda b: b["status"]["disruptionsAllowed"] == 1, 10)
        code, out, err = drain(cluster, node, "--force", timeout=60)
        assert "default/kept is shut down" in out, out + err
    finally:
        api.delete("PodDisruptionBudget", "kept")
    with pytest.raises(ft.ApiError) as e:
        api.create({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "wrong"},
                    "spec": {"minAvailable": "120%", "maxUnavailable": -1, "selector": {}}})
    assert e.value.status == 422 and "cannot be both set" in e.value.message, e.value


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
def test_kubectl_drain_moves_the_vms_and_ends_well(cluster, make_vm, uncordoned):
    api = cluster.api
    address = make_vm("drained")
    node, boot = node_of(api, "drained"), ft.Guest(address).status()["bootID"]
    p = subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig, "drain", node, "--ignore-daemonsets",
                        "--delete-emptydir-data", "--force", "--timeout=120s"], text=True, timeout=150,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert p.returncode == 0, p.stdout
    # the last word of kubectl up to 1.20 is another one
    assert f"node/{node} drained" in p.stdout or f"node/{node} evicted" in p.stdout, p.stdout
    assert node_of(api, "drained") == other(node) and ft.Guest(address).status()["bootID"] == boot
