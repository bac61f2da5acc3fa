"""A migration network of its own: nodes tell their address in it, and memory goes nowhere else."""
import os
import signal

import ferrytest as ft
import pytest
from conftest import kernel_boot, migrations, node_of, other, own_cluster
from test_compat import explain

NET, LABEL = "10.99.0", "migration-network.ferry.dev/fast"
# the ports of moves, towards the addresses that nodes have for everything else
ONLY_THERE = """table inet onlythere {
  chain in { type filter hook prerouting priority -400; ip daddr 172.30.77.0/24 tcp dport 49152-49159 drop; }
}"""


@pytest.fixture(scope="module")
def wired():
    """Nodes that were told of a network and have no address in it yet."""
    with own_cluster("wired", node_args=f"--migration-network fast={NET}.0/24") as c:
        yield c


def plug(cluster, node):
    """The node gets its address; its agent is started again, as it looks when it starts."""
    lines = cluster.in_node(node, "ip", "-o", "-4", "addr", check=True, stdout=-1, text=True).stdout.splitlines()
    link = next(x.split()[1] for x in lines if " 172.30.77." in x)
    address = f"{NET}.{node[-1]}"
    cluster.in_node(node, "ip", "addr", "add", f"{address}/24", "dev", link, check=True)
    os.kill(cluster.pid(node), signal.SIGKILL)
    cluster.api.wait("Node", node, lambda n: n["metadata"]["labels"].get(LABEL) == address, 60)


def verdict(obj, node):
    return next(p for p in obj["status"]["ferry"]["placement"] if p["node"] == node)


def told_everywhere(cluster, node, message):
    """The same in all three places before anything moves: explain, a dry run, the condition.  None: it can go there."""
    api = cluster.api
    code, rows, text = explain(cluster, "netty", "--to", node)
    assert (code, rows[node]) == ((1, ["No", "MigrationNetwork", message]) if message else (0, ["Yes"])), text
    dry = verdict(api.create(ft.migration("netty-dry", "netty"), dry_run=True), node)
    assert (dry["allowed"], dry.get("message")) == (not message, message), dry
    want = f"0 of 1 other nodes can take the guest: {node} {message}" if message else "1 of 1 other nodes can take the guest"
    vmi = api.wait("VirtualMachineInstance", "netty", lambda v: ft.condition(v, "MigrationTargets")["message"] == want, 10)
    assert ft.condition(vmi, "LiveMigratable")["status"] == "True"
    assert not any("migrationJobUID" in key for p in api.list("Pod") if p["status"]["phase"] not in ("Succeeded", "Failed")
                   for key in p["metadata"].get("labels", {})), "no pod was made to find that out"


def test_moves_go_over_the_network_that_is_named(wired, images):
    api = wired.api
    assert all(LABEL not in n["metadata"]["labels"] for n in api.list("Node"))
    api.create(ft.vm("netty", "128Mi", kernel=kernel_boot(images)))
    vmi = api.wait("VirtualMachineInstance", "netty", ft.vmi_running, 60)
    guest = ft.Guest(ft.vmi_address(vmi))
    first = guest.wait(90)
    source = node_of(api, "netty")
    to = other(source)

    with pytest.raises(ft.ApiError) as e:
        with migrations(api, network="Not/One"):
            pass
    assert "spec.configuration.migrations.network" in str(e.value.body), e.value.body
    told_everywhere(wired, to, None)
    with migrations(api, network="fast"):
        told_everywhere(wired, to, "has no address in the migration network 'fast'")
        obj, _ = ft.move(api, "netty")
        assert (ft.phase(obj), obj["status"]["ferry"]["reason"]) == ("Failed", "NoCandidate"), obj["status"]
        v = verdict(obj, to)
        assert (v["reason"], v["lasting"]) == ("MigrationNetwork", True), v
        assert v["message"] == "has no address in the migration network 'fast'", v
        plug(wired, to)
        told_everywhere(wired, to, "cannot be reached: the node that the guest runs on has no address in the migration "
                                   "network 'fast'")
        obj, _ = ft.move(api, "netty")
        assert verdict(obj, to)["message"].startswith("cannot be reached: the node that the guest runs on has no"), obj
        plug(wired, source)
        told_everywhere(wired, to, None)
        for node in (source, to):
            wired.in_node(node, "nft", ONLY_THERE, check=True)
        for _ in range(2):  # there and back
            obj, _ = ft.move(api, "netty")
            assert ft.phase(obj) == "Succeeded", obj["status"]
            ms = obj["status"]["migrationState"]
            assert ms["targetNodeAddress"] == f"{NET}.{ms['targetNode'][-1]}", ms
            assert ms["migrationNetworkType"] == "Migration" and ms["migrationConfiguration"]["network"] == "fast", ms
            assert guest.wait(30)["bootID"] == first["bootID"]
    for node in (source, to):
        wired.in_node(node, "nft", "delete table inet onlythere", check=True)
    obj, _ = ft.move(api, "netty")
    ms = obj["status"]["migrationState"]
    assert ft.phase(obj) == "Succeeded" and ms["targetNodeAddress"].startswith("172.30.77."), ms
    assert ms["migrationNetworkType"] == "Pod", ms
    assert guest.wait(30)["bootID"] == first["bootID"]
