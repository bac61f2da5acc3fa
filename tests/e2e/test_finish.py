"""Finish a move that is under way, whatever pause that takes: asked of the migration, done by its source."""
import os
import signal

import ferrytest as ft
import pytest
from conftest import kernel_boot, migrations, node_of, other, qemu_pids

ASKED = {"metadata": {"annotations": {"ferry.dev/finish": "pause"}}}
VMIM = "VirtualMachineInstanceMigration"


@pytest.fixture
def narrow(cluster):
    """A link that such guests outrun; nothing else is allowed that would end their moves."""
    with migrations(cluster.api, bandwidthPerMigration="12Mi"):
        yield


@pytest.fixture
def busy(make_vm):
    """busy(name): a guest that rewrites 48 MiB as fast as it can, and checks a part of its memory."""
    def create(name, **kw):
        g = ft.Guest(make_vm(name, memory="160Mi", **kw), timeout=20)
        g.command("dirty 48 0")
        ft.poll(lambda: g.status()["dirtied"] > 48 * 256, 60, "it has been around them once")
        g.command("verify 16")
        return g
    return create


def ferry_state(vmi):
    return (vmi["status"].get("ferry") or {}).get("migration") or {}


def diverges(api, vm, migration):
    """Its memory has gone over once, and there is no end in sight; the VMI may still show the move before it."""
    uid = migration["metadata"]["uid"]
    return api.wait("VirtualMachineInstance", vm,
                    lambda v: (v["status"].get("migrationState") or {}).get("migrationUid") == uid and
                    ferry_state(v).get("forecast") == "Diverges", 60)


def ended(api, name, timeout=60):
    return api.wait(VMIM, name, lambda v: ft.phase(v) in ft.FINAL, timeout)


def messages(api, *names):
    return [e["message"] for e in api.list("Event") if e["involvedObject"]["name"] in names]


def check_guest(g, before):
    after = g.wait(30)
    assert after["bootID"] == before["bootID"] and after["memBad"] == 0
    ft.poll(lambda: g.status()["memChecks"] > after["memChecks"], 30, "it goes on checking")
    assert g.status()["memBad"] == 0


def check_finished(obj, source):
    st = obj["status"]
    assert st["phase"] == "Succeeded", st
    ms = st["migrationState"]
    assert (ms["mode"], ms["sourceNode"], ms["targetNode"]) == ("Paused", source, other(source)), ms
    assert st["ferry"]["finishRequested"] is True and st["ferry"]["pauseMs"] > 0, st["ferry"]


def test_a_move_that_would_not_end_is_finished_on_request(cluster, busy, narrow):
    """As a person does it: ferry migrate finish; asked twice is as once, and what is over says so."""
    api, vm = cluster.api, "wanted"
    g = busy(vm)
    before = g.status()
    source = node_of(api, vm)
    made = api.create(ft.migration("wanted-1", vm))
    diverges(api, vm, made)
    first = cluster.ferry("migrate", "finish", vm)
    assert "VM wanted: the guest is paused while the rest of its memory goes over" in first.stdout, first.stdout
    again = cluster.ferry("migrate", vm, "--finish")
    assert "asked for before" in again.stdout or "switched over already" in again.stdout, again.stdout
    obj = ended(api, "wanted-1", 30)  # at this rate what can be left takes 6 s
    check_finished(obj, source)
    check_guest(g, before)
    said = messages(api, vm, "wanted-1")
    assert any("as was asked for" in m for m in said), said
    assert sum("is asked to finish the migration with a pause" in m for m in said) == 1, said
    # what stands is shown while it stands
    modes = {(o["status"].get("migrationState") or {}).get("mode")
             for _, _, o in api.watch(VMIM, "wanted-1", made["metadata"]["resourceVersion"], 2) if ft.phase(o) == "Running"}
    assert "Paused" in modes, modes
    head, row = cluster.ferry("get", "vmim", "wanted-1", "-o", "wide").stdout.splitlines()
    assert head.split()[5] == "MODE" and row.split()[5] == "Paused", (head, row)
    over = cluster.ferry("migrate", "finish", vm, check=False)
    assert over.returncode == 1 and "Found no migration to finish for wanted: its moves are over" in over.stderr, over
    with pytest.raises(ft.ApiError) as e:
        api.patch(VMIM, "wanted-1", {"metadata": {"annotations": {"ferry.dev/finish": None}}})
        api.patch(VMIM, "wanted-1", ASKED)
    assert e.value.status == 422 and "the migration is over: Succeeded" in str(e.value.body), e.value.body
    assert cluster.ferry("migrate", "finish", "nobody", check=False).returncode == 1
    assert cluster.ferry("migrate", "finish", vm, "--to", "node-1", check=False).returncode == 2


def test_asked_too_early_it_is_done_when_memory_goes_over(cluster, busy, narrow):
    api, vm = cluster.api, "early"
    g = busy(vm)
    before = g.status()
    source = node_of(api, vm)
    api.patch("Node", other(source), {"spec": {"unschedulable": True}})
    try:
        api.create(ft.migration("early-1", vm))
        api.wait(VMIM, "early-1", lambda v: (v["status"].get("ferry") or {}).get("stage") == "WaitingForNode", 20)
        for value in ("now", ""):
            with pytest.raises(ft.ApiError) as e:
                api.patch(VMIM, "early-1", {"metadata": {"annotations": {"ferry.dev/finish": value}}})
            cause = e.value.body["details"]["causes"][0]
            assert (e.value.status, cause["field"]) == (422, "metadata.annotations[ferry.dev/finish]"), e.value.body
        out = cluster.ferry("migrate", "finish", vm).stdout
        assert "as soon as its memory begins to go over; the move is Scheduling now" in out, out
        assert "asked for before" in cluster.ferry("migrate", "finish", vm).stdout
    finally:
        api.patch("Node", other(source), {"spec": {"unschedulable": None}})
    obj = ended(api, "early-1")
    check_finished(obj, source)
    assert obj["status"]["ferry"]["passes"] <= 3, obj["status"]["ferry"]  # QEMU counts the switch as two
    check_guest(g, before)


def test_created_so_with_disks_to_copy_it_waits_for_the_memory(cluster, images, busy, narrow):
    """An emptyDisk goes along; it is copied while the guest runs, and only then it stands."""
    api, vm = cluster.api, "withdisk"
    g = busy(vm, manifest=ft.vm(vm, "160Mi", kernel=kernel_boot(images),
                                disks=[{"name": "scratch", "disk": {"bus": "virtio"}}],
                                volumes=[{"name": "scratch", "emptyDisk": {"capacity": "64Mi"}}]))
    before = g.status()
    source = node_of(api, vm)
    m = ft.migration("withdisk-1", vm)
    m["metadata"].update(ASKED["metadata"])
    api.create(m)
    obj = ended(api, "withdisk-1")
    check_finished(obj, source)
    assert obj["status"]["ferry"]["disks"][0]["remainingBytes"] == 0, obj["status"]["ferry"]
    check_guest(g, before)


def test_who_was_asked_dies_and_the_next_one_does_it(cluster, busy, narrow):
    """SIGKILL right after the request, of one process after the other; the guest moves there and back."""
    api, vm = cluster.api, "killed"
    g = busy(vm)
    before = g.status()

    def launchers(source):
        return [p for p in ft.descendants(cluster.node_pid1(source)) if ft.comm(p) == "ferry-launcher"[:15]]
    victims = {"agent": lambda source: [cluster.pid(source)], "launcher": launchers,
               "controller": lambda source: [cluster.pid("controller")]}
    for what, pids in victims.items():
        source, name = node_of(api, vm), f"killed-{what}"
        diverges(api, vm, api.create(ft.migration(name, vm)))
        doomed = pids(source)
        assert doomed, what
        api.patch(VMIM, name, ASKED)
        for p in doomed:
            os.kill(p, signal.SIGKILL)
        obj = ended(api, name)
        if what == "launcher" and obj["status"]["phase"] == "Failed":
            # it died while the guest stood: nobody was left who would have let it go, so it went on where it was
            assert node_of(api, vm) == source
        else:
            check_finished(obj, source)
        check_guest(g, before)
        ft.poll(lambda: sum(len(v) for v in qemu_pids(cluster, vm).values()) == 1, 30, "exactly one QEMU is left")


def test_in_post_copy_there_is_nothing_to_do_and_that_is_said(cluster, busy):
    api, vm = cluster.api, "split"
    g = busy(vm)
    before = g.status()
    with migrations(api, bandwidthPerMigration="24Mi", allowPostCopy=True):
        api.create(ft.migration("split-1", vm))
        api.wait("VirtualMachineInstance", vm,
                 lambda v: (v["status"].get("migrationState") or {}).get("mode") == "PostCopy", 60)
        api.patch(VMIM, "split-1", ASKED)
        out = cluster.ferry("migrate", "finish", vm).stdout
        assert "nothing to do: post-copy has begun" in out, out
        ft.poll(lambda: any("nothing to do to finish the migration with a pause: post-copy has begun" in m
                            for m in messages(api, vm)), 10, "the event is there")
        obj = ended(api, "split-1", 120)
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    assert obj["status"]["migrationState"]["mode"] == "PostCopy", obj["status"]
    check_guest(g, before)
