"""Nodes whose QEMUs are not the same file: at another path, and of another version.

The other ones are copies of the machine's QEMU beside Ferry's programs, which every node can see; one of them with a few
bytes changed, so that it says another version.  In all else it is honest.
"""
import os
import re
import shutil

import ferrytest as ft
import pytest
from conftest import kernel_boot, node_of, other, own_cluster, qemu_pids
from test_compat import explain

QEMU = "/usr/bin/qemu-system-x86_64"
# In qmp_query_version(): two numbers are loaded (major, minor), the third is stored, then the two.
VERSION = re.compile(rb"\x66\x0f\x6f\x05.{4}(\x48\x8d\x3d.{4}\x48\x89\x03)\x48\xc7\x40\x10.{4}\x0f\x11\x00", re.S)


def says(code, major, minor, micro):
    """The same function with these numbers: each is the low byte of a word that is zero, in as many bytes of code."""
    load = b"\xc6\x00" + bytes([major]) + b"\xc6\x40\x08" + bytes([minor]) + b"\x90"
    return load + code[1] + b"\x48\xc7\x40\x10" + micro.to_bytes(4, "little") + b"\x90\x90\x90"


@pytest.fixture(scope="module")
def other_qemu():
    """other_qemu(name, version=...): path of a QEMU that was installed somewhere else, with its firmware beside it."""
    made = []

    def make(name, version=None):
        prefix = f"{ft.BIN}/{name}"
        made.append(prefix)
        shutil.rmtree(prefix, ignore_errors=True)
        os.makedirs(f"{prefix}/bin")
        os.makedirs(f"{prefix}/share/qemu")
        with open(f"{prefix}/share/qemu/own.bin", "w") as f:
            f.write("firmware")
        with open(QEMU, "rb") as f:
            code = f.read()
        if version:
            hits = list(VERSION.finditer(code))
            if len(hits) != 1:
                pytest.skip("this QEMU tells its version in another way")
            at = hits[0]
            code = code[:at.start()] + says(at, *version) + code[at.end():]
        path = f"{prefix}/bin/qemu-system-x86_64"
        with open(path, "wb") as f:
            f.write(code)
        os.chmod(path, 0o755)
        return path
    yield make
    for prefix in made:
        shutil.rmtree(prefix, ignore_errors=True)


def start(cluster, images, node, name):
    """A VM that was started on that node and may go anywhere."""
    api = cluster.api
    api.patch("Node", other(node), {"spec": {"unschedulable": True}})
    try:
        api.create(ft.vm(name, "128Mi", kernel=kernel_boot(images)))
        vmi = api.wait("VirtualMachineInstance", name,
                       lambda v: ft.vmi_running(v) and "cpu" in v["status"].get("ferry", {}), 60)
    finally:
        api.patch("Node", other(node), {"spec": {"unschedulable": None}})
    assert vmi["status"]["nodeName"] == node
    return ft.Guest(ft.vmi_address(vmi))


def program(cluster, name):
    """{node: the file that the guest's QEMU there is}"""
    out = {}
    for node, pids in qemu_pids(cluster, name).items():
        with open(f"/proc/{pids[0]}/cmdline", "rb") as f:
            out[node] = f.read().split(b"\0")[0].decode()
    return out


def targets(api, name, message):
    return api.wait("VirtualMachineInstance", name,
                    lambda v: ft.condition(v, "MigrationTargets")["message"] == message, 20)


def test_a_guest_moves_between_qemus_at_different_paths(other_qemu, images):
    path = other_qemu("q1")
    with own_cluster("paths", node_args=f"node-2:--qemu node-2:{path}") as c:
        labels = [{k: v for k, v in n["metadata"]["labels"].items() if "hostname" not in k} for n in c.api.list("Node")]
        assert labels[0] == labels[1], "what a node can do does not depend on where its QEMU lies"
        g = start(c, images, "node-1", "roamer")
        boot = g.wait(90)["bootID"]
        targets(c.api, "roamer", "1 of 1 other nodes can take the guest")
        for node, file in (("node-2", path), ("node-1", QEMU)):
            obj, _ = ft.move(c.api, "roamer")
            assert ft.phase(obj) == "Succeeded" and node_of(c.api, "roamer") == node, obj["status"]
            assert g.wait(20)["bootID"] == boot
            assert program(c, "roamer") == {node: file}
        # it starts there too, and what is installed beside it is in the jail, and not to be written
        g = start(c, images, "node-2", "native")
        assert g.wait(90)["bootID"] and program(c, "native") == {"node-2": path}
        pid, = qemu_pids(c, "native")["node-2"]
        beside = os.path.dirname(os.path.dirname(path)) + "/share/qemu"
        with open(f"/proc/{pid}/root{beside}/own.bin", encoding="ascii") as f:
            assert f.read() == "firmware"
        with pytest.raises(OSError):
            open(f"/proc/{pid}/root{beside}/more.bin", "w", encoding="ascii")


def test_a_guest_moves_to_a_newer_qemu_and_not_back(other_qemu, images):
    path = other_qemu("q2", (10, 1, 0))
    with own_cluster("newer", node_args=f"node-2:--qemu node-2:{path}") as c:
        api = c.api
        assert api.get("Node", "node-2")["metadata"]["labels"]["ferry.dev/qemu-version"] == "10.1.0"
        old = api.get("Node", "node-1")["metadata"]["labels"]["ferry.dev/qemu-version"]
        g = start(c, images, "node-1", "riser")
        boot = g.wait(90)["bootID"]
        p = c.ferry("doctor", "--upgrade", "--qemu", path, check=False)
        assert p.returncode == 0 and "ok   default/riser" in p.stdout, p.stdout + p.stderr
        code, rows, text = explain(c, "riser")
        assert code == 0 and rows["node-2"] == ["Yes"], text
        obj, _ = ft.move(api, "riser")
        assert ft.phase(obj) == "Succeeded" and node_of(api, "riser") == "node-2", obj["status"]
        assert g.wait(20)["bootID"] == boot
        # as documented: a QEMU that is older takes it no more, in the same words everywhere, and before anything moves
        vmi = api.wait("VirtualMachineInstance", "riser", lambda v: v["status"]["ferry"]["qemuVersion"] == "10.1.0", 20)
        why = f"has QEMU {old}, older than the guest's 10.1.0"
        vmi = targets(api, "riser", f"0 of 1 other nodes can take the guest: node-1 {why}")
        movable = ft.condition(vmi, "LiveMigratable")
        assert (movable["status"], movable["reason"]) == ("False", "NodesNotLiveMigratable"), movable
        code, rows, text = explain(c, "riser")
        assert code == 1 and rows["node-1"] == ["No", "QEMUVersion", why], text
        made = api.create(ft.migration("riser-dry", "riser"), dry_run=True)["status"]["ferry"]
        place = next(q for q in made["placement"] if q["node"] == "node-1")
        assert (place["allowed"], place["lasting"], place["message"]) == (False, True, why), made
        with pytest.raises(ft.ApiError) as e:
            api.create(ft.migration("riser-back", "riser"))
        assert why in e.value.message
        p = c.ferry("doctor", "--upgrade", check=False)
        assert p.returncode == 1 and "FAIL default/riser: the guest has run under QEMU 10.1.0, which is newer" in p.stdout, (
            p.stdout + p.stderr)
        assert g.wait(20)["bootID"] == boot and node_of(api, "riser") == "node-2"
