"""VMs move; their clients notice the pause and nothing else; every move ends and says why."""
import contextlib
import json
import os
import signal
import socket
import time

import ferrytest as ft
import pytest
from conftest import kernel_boot, migrations, new_cluster, node_of, other, qemu_pids

PHASES = ["Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "Succeeded"]


def check_moved(cluster, name, obj, source):
    api = cluster.api
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    ms = obj["status"]["migrationState"]
    assert ms["completed"] and not ms.get("failed")
    assert (ms["sourceNode"], ms["targetNode"]) == (source, other(source))
    assert ms["migrationUid"] == obj["metadata"]["uid"]
    assert [p["phase"] for p in obj["status"]["phaseTransitionTimestamps"]] == PHASES
    vmi = api.wait("VirtualMachineInstance", name, lambda v: len(v["status"]["activePods"]) == 1, 20)
    assert vmi["status"]["nodeName"] == other(source)
    assert vmi["metadata"]["labels"]["kubevirt.io/nodeName"] == other(source)
    ft.poll(lambda: list(qemu_pids(cluster, name)) == [other(source)], 10, "one QEMU is left, on the target")


def test_moves_keep_address_and_connections(cluster, make_vm):
    """The figures of gaps and retransmissions are the bench's (`./run bench stream`); here nothing may be lost."""
    address = make_vm("mover")
    api = cluster.api
    api.create(ft.service("mover"))
    svc = api.get("Service", "mover")["spec"]["clusterIP"]
    first = ft.Guest(address).status()

    def answers():  # the nodes program a Service a moment after it is made, and refuse until then
        with contextlib.suppress(OSError), socket.create_connection((svc, 7777), 1):
            return True
    ft.poll(answers, 10, "the Service answers")
    probes = [ft.Probe(f"{address}:7777", *ft.GENTLE, "--udp-rate", "100"), ft.Probe(f"{svc}:7777", *ft.GENTLE)]
    windows = []
    try:
        time.sleep(0.5)
        for _ in range(4):
            source = node_of(api, "mover")
            obj, _ = ft.move(api, "mover")
            check_moved(cluster, "mover", obj, source)
            windows.append(probes[0].mark())
            # the pause that is told is one that a client has seen
            pause, gap = obj["status"]["ferry"]["pauseMs"], windows[-1]["held"]["longestGapMs"]
            assert 0 < pause <= gap + 20, (pause, gap)  # a request each 10 ms
        time.sleep(0.5)
    finally:
        last = [p.stop() for p in probes]
        api.delete("Service", "mover")
    for w in windows + last:
        assert not w["held"]["broken"], w
        assert w["new"]["failed"] == 0, w
    assert probes[0].udp_back == probes[0].udp_sent, last[0]
    s = ft.Guest(address).status()
    assert s["bootID"] == first["bootID"] and not ft.kernel_complains(s, first), s["kernelText"]


def test_a_guest_that_checks_its_memory_finds_it_whole_after_every_move(cluster, make_vm):
    """Its own test: under emulation such a guest is too busy to answer others within their time-outs."""
    g = ft.Guest(make_vm("checks"), timeout=20)
    g.command("verify 16")
    first = g.status()
    for _ in range(4):
        source = node_of(cluster.api, "checks")
        obj, _ = ft.move(cluster.api, "checks")
        check_moved(cluster, "checks", obj, source)
    n = g.status()["memChecks"]
    ft.poll(lambda: g.status()["memChecks"] > n, 20, "it goes on checking")
    s = g.status()
    assert s["bootID"] == first["bootID"] and s["memBad"] == 0 and n > first["memChecks"]
    assert not ft.kernel_complains(s, first), s["kernelText"]


def test_the_declared_pause_is_learnt_warned_of_and_told(cluster, make_vm):
    """A limit that these nodes cannot keep ends no move: it is warned of, and each overrun is counted."""
    make_vm("pausing")
    api = cluster.api

    def settings(**value):
        api.patch("KubeVirt", "kubevirt", {"spec": {"configuration": value}}, ns="kubevirt")

    def said(reason):
        return [e["message"] for e in api.list("Event")
                if e["involvedObject"]["name"] == "pausing" and e["reason"] == reason]
    settings(developerConfiguration={"featureGates": ["MigrationStallDetection"]}, migrations={"maxDowntimeMs": 1})
    try:
        for _ in range(3):  # there, back, and there again: now this direction's cost is known
            obj, _ = ft.move(api, "pausing")
            assert obj["status"]["phase"] == "Succeeded", obj["status"]
        ft.poll(lambda: said("PauseLimitExceeded"), 5, "the overrun is told")
        assert any("1 ms were declared" in m for m in said("PauseLimitExceeded"))
        assert any(m.startswith("maxDowntimeMs is 1, and a pause on the way to node") for m in said("PauseLimitBelowFloor"))
        f = obj["status"]["ferry"]
        assert f["pauseMs"] > 1
        assert 0 < f["permissionUs"] < 1000 * (f["pauseMs"] + 1), f
    finally:
        settings(developerConfiguration=None, migrations=None)


def test_a_move_by_subresource(cluster, make_vm):
    make_vm("subm")
    api = cluster.api
    source = node_of(api, "subm")
    code, body, _ = api.sub("virtualmachines", "subm", "migrate")
    assert (code, body) == (202, b"")
    found = api.list("VirtualMachineInstanceMigration", "kubevirt.io/vmi-name=subm")
    assert len(found) == 1 and found[0]["metadata"]["name"].startswith("kubevirt-migrate-vm-")
    obj = api.wait("VirtualMachineInstanceMigration", found[0]["metadata"]["name"],
                   lambda v: ft.phase(v) in ft.FINAL, 60)
    check_moved(cluster, "subm", obj, source)


def test_a_guest_that_has_moved_reboots_and_powers_off_as_before(cluster, make_vm):
    """A reset of the machine and of each device, on a QEMU that got their state from another."""
    address = make_vm("again")
    api = cluster.api
    for _ in range(2):  # the second move is of a guest that has booted on a target
        obj, _ = ft.move(api, "again")
        assert obj["status"]["phase"] == "Succeeded", obj["status"]
        vmi = api.get("VirtualMachineInstance", "again")
        before = ft.Guest(address).wait(20)["bootID"]
        ft.Guest(address).last_word("reboot")
        ft.poll(lambda: ft.Guest(address).wait(90)["bootID"] != before, 90, "the guest boots again")
        now = api.get("VirtualMachineInstance", "again")
        assert now["metadata"]["uid"] == vmi["metadata"]["uid"] and ft.vmi_running(now)
        assert now["status"]["nodeName"] == vmi["status"]["nodeName"]
    obj, _ = ft.move(api, "again")
    api.sub("virtualmachines", "again", "stop")
    api.wait("VirtualMachineInstance", "again", lambda v: v is None or ft.phase(v) == "Succeeded", 30)
    api.wait("VirtualMachine", "again", lambda v: ft.printable(v) == "Stopped", 30)


def test_a_stopped_vm_and_a_second_move_are_refused(cluster, make_vm):
    make_vm("twice", run_strategy="Halted", wait=False)
    api = cluster.api
    code, body, _ = api.sub("virtualmachines", "twice", "migrate")
    assert code in (404, 409), body
    with pytest.raises(ft.ApiError) as e:
        api.create(ft.migration("m-none", "twice"))
    assert e.value.status == 400 and 'the VMI "default/twice" does not exist' in e.value.message
    api.sub("virtualmachines", "twice", "start")
    vmi = api.wait("VirtualMachineInstance", "twice", ft.vmi_running, 60)
    ft.Guest(ft.vmi_address(vmi)).wait(90)
    first = api.create(ft.migration("m-first", "twice"))
    with pytest.raises(ft.ApiError) as e:
        api.create(ft.migration("m-second", "twice"))
    assert e.value.status == 400
    assert (f"in-flight migration detected. Active migration job ({first['metadata']['uid']}) is currently already "
            "in progress for VMI twice.") in e.value.message
    obj = api.wait("VirtualMachineInstanceMigration", "m-first", lambda v: ft.phase(v) in ft.FINAL, 60)
    assert obj["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize("selector", [{"kubernetes.io/hostname": "node-9"}, {"no/such": "label"}])
def test_a_move_that_no_wait_can_help_fails_at_once_with_a_reason_per_node(cluster, make_vm, selector):
    name = "never" + str(len(json.dumps(selector)))
    make_vm(name)
    t = time.monotonic()
    obj, _ = ft.move(cluster.api, name, addedNodeSelector=selector, timeout=20)
    assert time.monotonic() - t < 1.5
    assert obj["status"]["phase"] == "Failed"
    text = json.dumps(obj["status"])
    assert "node-1" in text and "node-2" in text, text
    vmi = cluster.api.get("VirtualMachineInstance", name)
    assert vmi["status"]["phase"] == "Running" and len(vmi["status"]["activePods"]) == 1


def test_a_move_to_a_cpu_that_is_not_there_is_refused_at_once(cluster, make_vm):
    """The other node loses what it says of its CPU; its agent says it again when it starts."""
    make_vm("nocpu")
    api = cluster.api
    to = other(node_of(api, "nocpu"))
    labels = api.get("Node", to)["metadata"]["labels"]
    gone = {k: None for k in labels if k.startswith(("cpu-", "host-model-"))}
    assert gone
    api.patch("Node", to, {"metadata": {"labels": gone}})
    try:
        vmi = api.wait("VirtualMachineInstance", "nocpu",
                       lambda v: ft.condition(v, "LiveMigratable")["status"] == "False", 5)
        why = ft.condition(vmi, "LiveMigratable")
        assert why["reason"] == "NodesNotLiveMigratable" and f"{to} lacks the CPU features" in why["message"], why
        with pytest.raises(ft.ApiError) as e:
            ft.move(api, "nocpu", timeout=20)
        assert e.value.status == 400 and why["message"] in e.value.message, e.value
        made = api.create(ft.migration("m-nocpu", "nocpu"), dry_run=True)["status"]["ferry"]
        assert made["reason"] == "NoCandidate" and f"{to}: lacks the CPU features" in made["message"], made
    finally:
        os.kill(cluster.pid(to), signal.SIGTERM)
        api.wait("Node", to, lambda n: set(gone) <= set(n["metadata"]["labels"]), 20)
        api.wait("Node", to, lambda n: n["metadata"]["labels"].get("kubevirt.io/schedulable") == "true", 20)
    api.wait("VirtualMachineInstance", "nocpu", lambda v: ft.condition(v, "LiveMigratable")["status"] == "True", 5)
    obj, _ = ft.move(api, "nocpu")
    assert obj["status"]["phase"] == "Succeeded", obj["status"]


def test_explain_tells_each_node_before_anything_moves(cluster, make_vm):
    make_vm("asks")
    api = cluster.api
    source = node_of(api, "asks")
    to = other(source)

    def explain(*args):
        p = cluster.ferry("explain", "migration", "asks", *args, check=False)
        rows = {line.split()[0]: line.split()[1:3] for line in p.stdout.splitlines() if line.startswith("node-")}
        return p.returncode, rows, p.stdout + p.stderr

    code, rows, text = explain()
    assert code == 0 and rows == {source: ["Source", "Source"], to: ["Yes"]}, text
    assert "VM asks can move now: 1 of 1 other nodes can take it." in text
    code, rows, text = explain("--to", source)
    assert code == 1 and list(rows) == [source] and f"VM asks runs on {source} already." in text, text
    code, rows, text = explain("--to", "node-9")
    assert code == 1 and "there is no such node" in text, text
    api.patch("Node", to, {"spec": {"unschedulable": True}})
    try:
        code, rows, text = explain()
        assert code == 1 and rows[to] == ["Wait", "NodeUnschedulable"], text
    finally:
        api.patch("Node", to, {"spec": {"unschedulable": None}})
    made = api.create(ft.migration("m-asks", "asks", addedNodeSelector={"no/such": "label"}), dry_run=True)
    assert made["status"]["ferry"]["reason"] == "NoCandidate"
    assert [p["node"] for p in made["status"]["ferry"]["placement"] if p.get("lasting")] == sorted([source, to])
    p = cluster.ferry("explain", "migration", "not-there", check=False)
    assert p.returncode == 1 and 'the VMI "default/not-there" does not exist' in p.stderr, p.stderr
    assert api.list("VirtualMachineInstanceMigration", "kubevirt.io/vmi-name=asks") == []
    assert node_of(api, "asks") == source
    obj, _ = ft.move(api, "asks")
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    assert obj["status"]["migrationState"]["targetNode"] == to


def test_cancel_in_every_phase_leaves_the_guest_where_it_was(cluster, make_vm):
    address = make_vm("cancel", memory="512Mi")
    api = cluster.api
    g = ft.Guest(address)
    boot = g.status()["bootID"]
    g.command("dirty 128 0")  # keeps the copy going
    for phase in ["", "Scheduling", "PreparingTarget", "Running"]:
        source = node_of(api, "cancel")
        name = f"cancel-{phase.lower() or 'new'}"
        made = api.create(ft.migration(name, "cancel"))
        seen = made.get("status", {}).get("phase", "")
        if phase:
            for _, _, obj in api.watch("VirtualMachineInstanceMigration", name, made["metadata"]["resourceVersion"], 20):
                seen = obj.get("status", {}).get("phase", "")
                if seen == phase or seen in ft.FINAL or PHASES.index(seen) >= PHASES.index(phase):
                    break
        api.delete("VirtualMachineInstanceMigration", name)
        api.wait("VirtualMachineInstanceMigration", name, lambda v: v is None, 45)
        s = ft.Guest(address).wait(10)
        assert s["bootID"] == boot
        vmi = api.wait("VirtualMachineInstance", "cancel", lambda v: len(v["status"]["activePods"]) == 1, 20)
        ft.poll(lambda: len(qemu_pids(cluster, "cancel")) == 1, 10, "one QEMU is left")
        if vmi["status"]["nodeName"] != source:
            assert phase == "Running", f"cancelled in {phase!r}, yet it moved"
    g.command("dirty 0")


def busy_guest(make_vm, name):
    """A guest that rewrites 256 MiB as fast as it can, and has been around them three times."""
    g = ft.Guest(make_vm(name, memory="512Mi"), timeout=20)
    g.command("dirty 256 0")
    ft.poll(lambda: g.status()["dirtied"] > 3 * 256 * 256, 60, "it has been around three times")
    return g


def test_a_guest_that_writes_too_fast_goes_with_a_pause_where_that_is_allowed(cluster, make_vm):
    api = cluster.api
    g = busy_guest(make_vm, "patient")
    g.command("verify 16")
    before = g.status()
    with migrations(api, progressTimeout=2, allowWorkloadDisruption=True):
        source = node_of(api, "patient")
        obj, _ = ft.move(api, "patient", timeout=120)
    check_moved(cluster, "patient", obj, source)
    st = obj["status"]
    assert st["migrationState"]["mode"] == "Paused", st
    assert st["ferry"]["pauseMs"] > 300, st["ferry"]  # more than a move may cost by itself
    after = g.status()
    assert after["bootID"] == before["bootID"] and after["memBad"] == 0 and after["memChecks"] > before["memChecks"]
    events = [e["message"] for e in api.list("Event") if e["involvedObject"]["name"] == "patient"]
    assert any("the guest is paused while the last" in m for m in events), events


def test_settings_of_moves_reach_qemu(cluster, make_vm):
    """Without TLS and with auto-converge a move works as well, and says what was in force."""
    api = cluster.api
    make_vm("plain")
    with migrations(api, disableTLS=True, allowAutoConverge=True):
        source = node_of(api, "plain")
        obj, _ = ft.move(api, "plain")
    check_moved(cluster, "plain", obj, source)
    used = obj["status"]["migrationState"]["migrationConfiguration"]
    assert used["disableTLS"] is True and used["allowAutoConverge"] is True, used
    head, *rows = cluster.ferry("get", "vmim", obj["metadata"]["name"], "-o", "wide").stdout.splitlines()
    assert head.split() == ["NAME", "PHASE", "VMI", "SOURCE", "TARGET", "MODE", "STAGE", "PERCENT", "PAUSE-MS", "REASON"]
    assert rows[0].split()[1:8] == ["Succeeded", "plain", source, other(source), "PreCopy", "completed", "100"], rows


def test_a_policy_counts_more_than_the_settings_and_is_named(cluster, make_vm):
    """Of two that match, the one with more labels holds; one that is refused says every fault."""
    api = cluster.api

    def policy(name, labels, **settings):
        return {"apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy", "metadata": {"name": name},
                "spec": {"selectors": {"namespaceSelector": {"kubernetes.io/metadata.name": api.ns}, **labels},
                         **settings}}
    with pytest.raises(ft.ApiError) as e:
        api.create(policy("wrong", {}, bandwidthPerMigration="-1", completionTimeoutPerGiB=-1, maxDowntimeMs=5))
    assert e.value.status == 422
    assert [c["field"] for c in e.value.body["details"]["causes"]] == [
        "spec.completionTimeoutPerGiB", "spec.maxDowntimeMs", "spec.bandwidthPerMigration"], e.value.body
    make_vm("ruled")
    labels = api.get("VirtualMachineInstance", "ruled")["metadata"]["labels"]
    own = {"virtualMachineInstanceSelector": {"kubevirt.io/nodeName": labels["kubevirt.io/nodeName"]}}
    api.create(policy("a-broad", {}, allowAutoConverge=False))
    api.create(policy("b-narrow", own, allowWorkloadDisruption=True, bandwidthPerMigration="512Mi"))
    try:
        out = cluster.ferry("get", "migrationpolicies").stdout.split("\n")
        assert out[0].split() == ["NAME", "AGE"] and [x.split()[0] for x in out[1:3]] == ["a-broad", "b-narrow"], out
        with migrations(api, allowAutoConverge=True, bandwidthPerMigration="256Mi"):
            source = node_of(api, "ruled")
            first, _ = ft.move(api, "ruled")
            check_moved(cluster, "ruled", first, source)
            second, _ = ft.move(api, "ruled")  # from the other node, which b-narrow does not name
            check_moved(cluster, "ruled", second, other(source))
    finally:
        for name in ("a-broad", "b-narrow"):
            api.delete("MigrationPolicy", name)

    def used(move):
        ms = move["status"]["migrationState"]
        c = ms["migrationConfiguration"]
        return (ms["migrationPolicyName"], c["allowAutoConverge"], c["allowWorkloadDisruption"],
                c["bandwidthPerMigration"])
    assert used(first) == ("b-narrow", True, True, "512Mi")
    assert used(second) == ("a-broad", False, False, "256Mi")


def test_a_guest_that_writes_too_fast_is_given_up_with_figures_and_runs_on(cluster, make_vm):
    api = cluster.api
    g = busy_guest(make_vm, "busy")
    before = g.status()["bootID"]
    with migrations(api, progressTimeout=2):
        source = node_of(api, "busy")
        obj, _ = ft.move(api, "busy", timeout=120)
    st = obj["status"]
    assert st["phase"] == "Failed", st
    assert st["migrationState"]["failureReason"] == "Live migration has been aborted"  # KubeVirt's words
    assert (st["ferry"]["plane"], st["ferry"]["reason"]) == ("data", "ProgressTimeout"), st["ferry"]
    assert "MiB are left, the guest changes" in st["ferry"]["message"], st["ferry"]
    assert node_of(api, "busy") == source
    assert g.status()["bootID"] == before
    ft.poll(lambda: list(qemu_pids(cluster, "busy")) == [source], 10, "the target is gone")


def test_the_target_qemu_dies_and_the_source_goes_on(cluster, make_vm):
    address = make_vm("tdies", memory="512Mi")
    api = cluster.api
    g = ft.Guest(address)
    boot = g.status()["bootID"]
    g.command("dirty 128 0")
    source = node_of(api, "tdies")
    made = api.create(ft.migration("tdies-1", "tdies"))
    api.wait("VirtualMachineInstanceMigration", "tdies-1", lambda v: ft.phase(v) == "Running", 30)
    for pid in qemu_pids(cluster, "tdies").get(other(source), []):
        os.kill(pid, signal.SIGKILL)
    obj = api.wait("VirtualMachineInstanceMigration", "tdies-1", lambda v: ft.phase(v) in ft.FINAL, 60)
    assert obj["status"]["phase"] == "Failed"
    assert obj["status"]["migrationState"]["failureReason"]
    assert ft.Guest(address).wait(10)["bootID"] == boot
    assert node_of(api, "tdies") == source
    g.command("dirty 0")
    obj, _ = ft.move(api, "tdies")
    assert obj["status"]["phase"] == "Succeeded"


def test_a_single_node_says_at_once_that_there_is_nowhere_to_go(images):
    with ft.own_net():
        c = new_cluster("single", 1)
        try:
            c.api.create(ft.vm("alone", "128Mi", kernel=kernel_boot(images)))
            c.api.wait("VirtualMachineInstance", "alone", ft.vmi_running, 60)
            t = time.monotonic()
            obj, _ = ft.move(c.api, "alone", timeout=20)
            assert time.monotonic() - t < 1.5
            assert obj["status"]["phase"] == "Failed" and "node-1" in json.dumps(obj["status"])
        finally:
            c.down()
