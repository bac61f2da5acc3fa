"""How the memory of a move goes over: several connections, zstd, XBZRLE; what QEMU really does, and what status says."""
import contextlib
import os
import threading

import ferrytest as ft
import pytest
from conftest import kernel_boot, migrations, node_of, other, qemu_pids

CUT = """table inet cut {
  chain in { type filter hook prerouting priority -400; tcp dport 49152-49159 drop; tcp sport 49152-49159 drop; }
  chain out { type filter hook output priority -400; tcp dport 49152-49159 drop; tcp sport 49152-49159 drop; }
}"""


@pytest.fixture
def squeezed(cluster, make_vm, images):
    """squeezed(name, **settings): a guest that checks its memory, and a policy that asks for zstd for its moves."""
    made = []

    def create(name, **settings):
        cluster.api.create({
            "apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy", "metadata": {"name": name},
            "spec": {"experimental": {"compression": "zstd"}, **settings,
                     "selectors": {"virtualMachineInstanceSelector": {"test": name}}}})
        made.append(name)
        g = ft.Guest(make_vm(name, manifest=ft.vm(name, "128Mi", kernel=kernel_boot(images), labels={"test": name})),
                     timeout=30)
        g.command("verify 8")
        return g
    yield create
    for name in made:
        cluster.api.delete("MigrationPolicy", name)


def threads_of(cluster, name, node):
    """Names of the threads of the QEMU that is there."""
    out = []
    for pid in qemu_pids(cluster, name).get(node, []):
        with contextlib.suppress(OSError):
            for t in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{t}/comm", encoding="utf-8") as f:
                    out.append(f.read().strip())
    return out


def senders(cluster, name, node):
    return [t for t in threads_of(cluster, name, node) if t.startswith(("mig/src/send", "multifdsend"))]


def begin(cluster, name):
    """A move that is under way; the node that it leaves."""
    source = node_of(cluster.api, name)
    m = cluster.api.create(ft.migration(f"m-{name}", name))
    ft.poll(lambda: senders(cluster, name, source), 60, "its connections are there")
    return m["metadata"]["name"], source


def end(cluster, migration, timeout=90):
    return cluster.api.wait("VirtualMachineInstanceMigration", migration, lambda v: ft.phase(v) in ft.FINAL, timeout)


def check_here(cluster, name, guest, first, node):
    """One QEMU is left, on this node, and the guest in it has lost nothing."""
    vmi = cluster.api.wait("VirtualMachineInstance", name, lambda v: len(v["status"]["activePods"]) == 1, 30)
    assert vmi["status"]["nodeName"] == node
    ft.poll(lambda: list(qemu_pids(cluster, name)) == [node], 20, "one QEMU is left")
    n = guest.status()["memChecks"]
    ft.poll(lambda: guest.status()["memChecks"] > n, 30, "the guest goes on checking")
    s = guest.status()
    assert s["bootID"] == first["bootID"] and s["memBad"] == 0, s


def test_zstd_by_policy_there_and_back(cluster, squeezed):
    """With TLS and through the pods' firewalls; the limit that QEMU gets is below the policy's."""
    g = squeezed("zs-both", bandwidthPerMigration="64Mi")
    first = g.status()
    for _ in range(2):
        m, source = begin(cluster, "zs-both")
        assert len(senders(cluster, "zs-both", source)) <= 2
        obj = end(cluster, m)
        assert ft.phase(obj) == "Succeeded", obj["status"]
        used = obj["status"]["migrationState"]["migrationConfiguration"]
        assert used["experimental"] == {"compression": "zstd"}, used
        how = obj["status"]["ferry"]["method"]
        assert (how["reason"], how["channels"], how["compression"], how["xbzrleCacheBytes"]) == (
            "CompressionAsked", 2, "zstd", 0), how
        assert how["bandwidthBytes"] == how["maxBandwidthBytes"] == 54 << 20, how
        assert how["migrationUID"] == obj["metadata"]["uid"]
        check_here(cluster, "zs-both", g, first, other(source))
        cluster.api.delete("VirtualMachineInstanceMigration", m)
        cluster.api.wait("VirtualMachineInstanceMigration", m, lambda v: v is None, 30)


def test_a_cancel_ends_all_connections_and_the_next_move_works(cluster, squeezed):
    g = squeezed("zs-cancel", bandwidthPerMigration="20Mi")
    first = g.status()
    g.command("dirty 64 0")  # it would not end by itself
    m, source = begin(cluster, "zs-cancel")
    cluster.api.delete("VirtualMachineInstanceMigration", m)
    cluster.api.wait("VirtualMachineInstanceMigration", m, lambda v: v is None, 60)
    vmi = cluster.api.get("VirtualMachineInstance", "zs-cancel")
    assert vmi["status"]["migrationState"]["abortStatus"] == "Succeeded", vmi["status"]["migrationState"]
    ft.poll(lambda: not senders(cluster, "zs-cancel", source), 20, "no connection's thread is left")
    check_here(cluster, "zs-cancel", g, first, source)
    g.command("dirty 0 0")
    obj, _ = ft.move(cluster.api, "zs-cancel", timeout=90)
    assert ft.phase(obj) == "Succeeded", obj["status"]
    check_here(cluster, "zs-cancel", g, first, other(source))


def test_a_lost_link_ends_the_move_and_the_guest_runs_on(cluster, squeezed):
    g = squeezed("zs-cut", bandwidthPerMigration="20Mi")
    first = g.status()
    g.command("dirty 64 0")
    with migrations(cluster.api, progressTimeout=4):
        m, source = begin(cluster, "zs-cut")
        cluster.in_node(source, "nft", CUT, check=True)
        try:
            obj = end(cluster, m, 120)
            assert ft.phase(obj) == "Failed", obj["status"]
            check_here(cluster, "zs-cut", g, first, source)
        finally:
            cluster.in_node(source, "nft", "delete table inet cut", check=True)
    ft.poll(lambda: not senders(cluster, "zs-cut", source), 30, "no connection's thread is left")
    g.command("dirty 0 0")
    obj, _ = ft.move(cluster.api, "zs-cut", timeout=90)
    assert ft.phase(obj) == "Succeeded", obj["status"]
    check_here(cluster, "zs-cut", g, first, other(source))


def test_a_large_guest_goes_over_several_connections_where_processors_are_many(cluster, make_vm):
    make_vm("wide", memory="1Gi")
    source = node_of(cluster.api, "wide")
    seen, stop = set(), threading.Event()

    def look():
        while not stop.is_set():
            seen.update(senders(cluster, "wide", source))
            stop.wait(0.02)
    t = threading.Thread(target=look)
    t.start()
    try:
        obj, _ = ft.move(cluster.api, "wide")
    finally:
        stop.set()
        t.join()
    assert ft.phase(obj) == "Succeeded", obj["status"]
    how = obj["status"]["ferry"]["method"]
    n = min(max(os.cpu_count() // 2, 2), 8) if os.cpu_count() >= 4 else 0
    assert (how["reason"], how["channels"], how["compression"]) == (
        "Parallel" if n else "FewProcessors", n, "none"), how
    assert how["maxBandwidthBytes"] == 0, how  # line rate
    assert bool(seen) == bool(n), seen


def test_a_slow_link_sends_differences(cluster, make_vm):
    g = ft.Guest(make_vm("slow"), timeout=30)
    g.command("verify 8")
    first, source = g.status(), node_of(cluster.api, "slow")
    with migrations(cluster.api, bandwidthPerMigration="4Mi"):
        obj, _ = ft.move(cluster.api, "slow", timeout=180)
    assert ft.phase(obj) == "Succeeded", obj["status"]
    how = obj["status"]["ferry"]["method"]
    assert (how["reason"], how["channels"], how["xbzrleCacheBytes"]) == ("SlowLink", 0, 64 << 20), how
    assert how["bandwidthBytes"] == how["maxBandwidthBytes"] == 4 << 20, how
    check_here(cluster, "slow", g, first, other(source))
    obj, _ = ft.move(cluster.api, "slow")  # without it again: nothing is left of it in QEMU
    one = "Small" if os.cpu_count() >= 4 else "FewProcessors"
    assert ft.phase(obj) == "Succeeded" and obj["status"]["ferry"]["method"]["reason"] == one, obj["status"]
    check_here(cluster, "slow", g, first, source)
