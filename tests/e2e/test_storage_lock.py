"""A node is lost, and the storage alone tells whether its VMs may run elsewhere: by the locks of their disks."""
import contextlib
import fcntl
import os
import signal
import struct
import time

import ferrytest as ft
import pytest
from conftest import own_cluster, running_elsewhere, start_writing
from lostnode import argv_of, copies, lose, outer, switch_on, watch_until_it_answers

NODES = 3
SILENCE = 4
PROOF = "LostNodeProof"


@pytest.fixture(scope="module")
def boxes(images):
    """Three nodes and no fence agent; locks are asked for after four seconds."""
    with own_cluster("storage-lock", NODES) as c:
        c.api.patch("FerryConfig", "ferry", {"spec": {"fencing": "StorageLock",
                                                      "storageLock": {"silenceSeconds": SILENCE}}})
        yield c


def claim(name, cls, mode="ReadWriteMany"):
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": [mode], "storageClassName": cls,
                     "resources": {"requests": {"storage": "64Mi"}}}}


@contextlib.contextmanager
def running(c, images, name, cls=None):
    """A VM that writes to a claim of that class, or to a disk of its own."""
    disks = [{"name": d, "disk": {"bus": "virtio"}} for d in ("empty", "data")]
    data = {"persistentVolumeClaim": {"claimName": name}} if cls else {"emptyDisk": {"capacity": "64Mi"}}
    volumes = [{"name": "empty", "emptyDisk": {"capacity": "8Mi"}}, {"name": "data", **data}]
    if cls:
        c.api.create(claim(name, cls, "ReadWriteOnce" if cls == "local" else "ReadWriteMany"))
    try:
        with running_elsewhere(c, images, name, disks=disks, volumes=volumes) as vmi:
            yield vmi
    finally:
        if cls:
            c.api.delete("PersistentVolumeClaim", name)


def wait_for(c, name, reason, timeout=30):
    vmi = c.api.wait("VirtualMachineInstance", name,
                     lambda v: (ft.condition(v, PROOF) or {}).get("reason") == reason, timeout)
    return ft.condition(vmi, PROOF)


def reasons(c, name):
    return [e["reason"] for e in c.api.list("Event") if e["involvedObject"]["name"] == name]


def nobody_else_said_so(c, node):
    assert not c.api.find("NodeFence", node)
    assert all(t["key"] != "node.kubernetes.io/out-of-service"
               for t in c.api.get("Node", node)["spec"].get("taints", []))


def disk_of(c, name):
    pv = c.api.get("PersistentVolume", c.api.get("PersistentVolumeClaim", name)["spec"]["volumeName"])
    return f"{c.state}/shared/{pv['spec']['csi']['volumeAttributes']['path']}/disk.img"


def locked_bytes(c, name):
    """Bytes of the disk that somebody holds a lock of, as another open of it sees them (F_OFD_GETLK)."""
    out = []
    with open(disk_of(c, name), "r+b") as f:
        for byte in range(100, 300):
            asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
            if struct.unpack("hhqqi4x", fcntl.fcntl(f, fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK:
                out.append(byte)
    return out


def stays(c, vmi, seconds):
    """The same VMI, and at most one QEMU."""
    name, end = vmi["metadata"]["name"], time.monotonic() + seconds
    while time.monotonic() < end:
        assert len(copies(c, name)) <= 1
        now = c.api.get("VirtualMachineInstance", name)
        assert now["metadata"]["uid"] == vmi["metadata"]["uid"] and ft.vmi_running(now)
        time.sleep(0.2)


def test_qemu_holds_its_locks_also_paused_and_after_a_move(boxes, images):
    """In these bytes: it reads and writes, and nobody else may write."""
    c, held = boxes, [100, 101, 201]
    with running(c, images, "held", "shared") as vmi:
        wait_for(c, "held", "LocksSeen")
        first = c.api.get("DiskWitness", "held")["spec"]
        assert locked_bytes(c, "held") == held
        for verb in ("pause", "unpause"):
            assert c.api.sub("virtualmachineinstances", "held", verb)[0] in (200, 202)
            c.api.wait("VirtualMachineInstance", "held",
                       lambda v, on=(verb == "pause"): bool(ft.condition(v, "Paused")) == on, 20)
            assert locked_bytes(c, "held") == held
        obj, _ = ft.move(c.api, "held")
        assert obj["status"]["phase"] == "Succeeded", obj["status"]
        assert locked_bytes(c, "held") == held
        seen = c.api.wait("DiskWitness", "held", lambda w: w["spec"]["epoch"] > first["epoch"] and
                          w["status"].get("epoch") == w["spec"]["epoch"] and w["status"]["state"] == "Held", 30)["spec"]
        assert seen["nodeName"] != vmi["status"]["nodeName"] == first["nodeName"] and seen["podUID"] != first["podUID"]
        assert seen["witness"] != seen["nodeName"]


def test_a_vm_whose_disk_is_locked_does_not_start_and_is_tried_again(boxes, images):
    """Whatever was believed before: two QEMUs never write one disk."""
    c, name = boxes, "second"
    with running(c, images, name, "shared"):
        c.api.patch("VirtualMachine", name, {"spec": {"runStrategy": "Halted"}})
        c.api.wait("VirtualMachineInstance", name, lambda v: v is None, 60)
        assert not locked_bytes(c, name)
        with open(disk_of(c, name), "r+b") as f:
            fcntl.fcntl(f, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 101, 1, 0))
            fcntl.fcntl(f, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 201, 1, 0))
            c.api.patch("VirtualMachine", name, {"spec": {"runStrategy": "Always"}})
            ft.poll(lambda: any('Failed to get "write" lock' in e["message"] for e in c.api.list("Event")), 60,
                    "QEMU says why it does not start")
            assert not copies(c, name)
        vmi = c.api.wait("VirtualMachineInstance", name, ft.vmi_running, 90)
        ft.Guest(ft.vmi_address(vmi)).wait(90)


def test_a_machine_that_lost_its_power_is_told_by_its_disks(boxes, images):
    c = boxes
    with running(c, images, "dark", "shared") as vmi:
        node = vmi["status"]["nodeName"]
        argv = argv_of(outer(c, node))
        start_writing(ft.vmi_address(vmi))
        seen = wait_for(c, "dark", "LocksSeen")
        witness = c.api.get("DiskWitness", "dark")
        assert seen["status"] == "True" and node in seen["message"] and witness["spec"]["witness"] != node
        assert witness["spec"]["disks"] == ["data"] and witness["status"]["state"] == "Held", witness
        time.sleep(11)  # one that is younger may have a pod that was only not seen yet
        lose(c, node, "power")
        ran, answers, now = watch_until_it_answers(c, vmi, "dark", 60)
        print(f"power: silence {SILENCE} s: the guest runs after {ran:.1f} s, answers after {answers:.1f} s")
        assert now["status"]["nodeName"] != node and ran >= SILENCE - 1.5
        ft.poll(lambda: "DiskLocksTaken" in reasons(c, "dark"), 10, "an event says so")
        nobody_else_said_so(c, node)
        switch_on(c, node, argv)
        assert [n for n, _ in copies(c, "dark")] == [now["status"]["nodeName"]]
        wait_for(c, "dark", "LocksSeen")
        assert ft.Guest(ft.vmi_address(now)).status()["diskBad"] == 0


def test_a_guest_that_runs_on_has_its_locks(boxes, images):
    """Its agent is gone and its node silent; it is left alone until its QEMU has ended."""
    c = boxes
    with running(c, images, "cut-off", "shared") as vmi:
        node, agent = vmi["status"]["nodeName"], c.pid(vmi["status"]["nodeName"])
        wait_for(c, "cut-off", "LocksSeen")
        lose(c, node, "agent")
        try:
            why = wait_for(c, "cut-off", "DiskStillLocked")
            assert why["status"] == "False" and "its disk 'data' is still locked: the old copy runs" in why["message"]
            ft.poll(lambda: "DiskStillLocked" in reasons(c, "cut-off"), 10, "an event says so")
            stays(c, vmi, 8)
            assert ft.Guest(ft.vmi_address(vmi)).status()["bootID"]
            (_, qemu), = copies(c, "cut-off")
            os.kill(qemu, signal.SIGKILL)
            _, _, now = watch_until_it_answers(c, vmi, "cut-off", 60)
            assert now["status"]["nodeName"] != node
            nobody_else_said_so(c, node)
        finally:
            with contextlib.suppress(OSError):
                os.kill(agent, signal.SIGCONT)
        ft.poll(lambda: ft.condition(c.api.get("Node", node), "Ready")["status"] == "True", 60, f"{node} is Ready")
        assert [n for n, _ in copies(c, "cut-off")] == [now["status"]["nodeName"]]


@pytest.mark.parametrize("cls,reason", [(None, "NoSharedDisk"), ("local", "DiskOfOneNode")])
def test_a_guest_of_whose_disks_others_see_none_never_starts_elsewhere(boxes, images, cls, reason):
    c, name = boxes, f"alone-{cls or 'empty'}"
    with running(c, images, name, cls) as vmi:
        node = vmi["status"]["nodeName"]
        argv = argv_of(outer(c, node))
        assert wait_for(c, name, reason)["status"] == "False"
        assert not c.api.find("DiskWitness", name)
        lose(c, node, "power")
        try:
            c.api.wait("Node", node, lambda n: ft.condition(n, "Ready")["status"] == "Unknown", 30)
            stays(c, vmi, 6)
            assert ft.condition(c.api.get("VirtualMachineInstance", name), PROOF)["reason"] == reason
            assert not copies(c, name)
        finally:
            switch_on(c, node, argv)


def test_what_the_setting_may_be(boxes):
    for spec, why in (({"fencing": "Locks"}, "spec.fencing"),
                      ({"storageLock": {"silenceSeconds": 2}}, "spec.storageLock.silenceSeconds"),
                      ({"storageLock": {"silenceSeconds": "soon"}}, "spec.storageLock.silenceSeconds"),
                      ({"storageLock": 4}, "spec.storageLock")):
        with pytest.raises(ft.ApiError) as e:
            boxes.api.patch("FerryConfig", "ferry", {"spec": spec})
        assert e.value.status in (400, 422) and why in str(e.value), e.value
