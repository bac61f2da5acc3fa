"""Claims of the class "local" go along with their VM where a setting says so, and are whole on one node always."""
import os
import signal
import subprocess

import ferrytest as ft
import pytest
from conftest import (WORK, check_goes_on, disks_told_everywhere, keep_logs, kernel_boot, migrations, node_of, other,
                      start_writing, wait_movable, wait_told)
from failpoints import Point

MIB = 1 << 20


def claim(name, volume_mode="Filesystem"):
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "volumeMode": volume_mode,
                     "resources": {"requests": {"storage": "48Mi"}}}}


def set_moves(api, value):
    api.patch("FerryConfig", "ferry", {"spec": {"localDiskMoves": value}})


@pytest.fixture
def allowed(cluster):
    set_moves(cluster.api, True)
    yield
    set_moves(cluster.api, None)


def local_disks_vm(images, name, file=None, **kw):
    disks = [{"name": d, "disk": {"bus": "virtio"}} for d in ("empty", "data")]
    volumes = [{"name": "empty", "emptyDisk": {"capacity": "8Mi"}},
               {"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    if file:
        disks.append({"name": "file", "disk": {"bus": "virtio"}})
        volumes.append({"name": "file", "hostDisk": {"path": file, "type": "DiskOrCreate", "capacity": "16Mi"}})
    return ft.vm(name, "128Mi", kernel=kernel_boot(images), disks=disks, volumes=volumes, **kw)


@pytest.fixture
def local_vm(cluster, images, make_vm):
    """local_vm(name) makes a VM that writes and checks a disk on a local claim; the claim goes at the end."""
    made = []

    def create(name, volume_mode="Filesystem", labels=None, **kw):
        cluster.api.create(claim(name, volume_mode))
        made.append(name)
        return start_writing(make_vm(name, manifest=local_disks_vm(images, name, labels=labels, **kw)))
    yield create
    for name in made:
        if cluster.api.find("VirtualMachine", name):
            cluster.api.delete("VirtualMachine", name)
            cluster.api.wait("VirtualMachine", name, lambda v: v is None, 60)
        pv = volume(cluster.api, name)["metadata"]["name"]
        cluster.api.delete("PersistentVolumeClaim", name)
        cluster.api.wait("PersistentVolume", pv, lambda v: v is None, 30)  # the class deletes what it made
        assert not any(f.startswith(pv) for n in (1, 2) for f in folders(cluster, f"node-{n}"))


def volume(api, name):
    return api.get("PersistentVolume", api.get("PersistentVolumeClaim", name)["spec"]["volumeName"])


def place(pv):
    """(node, folder) of a volume's data."""
    term, = pv["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    node, = term["matchExpressions"][0]["values"]
    return node, pv["spec"]["csi"]["volumeAttributes"]["path"]


def folders(cluster, node):
    """Everything that the class holds on a node, also what is only on its way there."""
    root = f"{cluster.state}/nodes/{node}/local"
    out = [f for f in os.listdir(root) if not f.startswith(".")]
    for _, dirs, _ in os.walk(f"{root}/.incoming"):
        out += dirs
    return out


@pytest.mark.parametrize("volume_mode", ["Filesystem", "Block"])
def test_a_local_claim_goes_along_and_back(cluster, local_vm, allowed, volume_mode):
    api, name = cluster.api, f"local-{volume_mode.lower()}"
    g = local_vm(name, volume_mode)
    boot = g.status()["bootID"]
    vmi = wait_movable(api, name)
    assert vmi["status"]["migrationMethod"] == "BlockMigration"
    first = place(volume(api, name))
    at = first
    for _ in range(2):
        source = node_of(api, name)
        assert at[0] == source
        obj, _ = ft.move(api, name)
        assert obj["status"]["phase"] == "Succeeded", obj["status"]
        check_goes_on(g, boot)
        assert node_of(api, name) == other(source)
        pv = api.wait("PersistentVolume", volume(api, name)["metadata"]["name"],
                      lambda v: not v["metadata"].get("annotations", {}).get("ferry.dev/left-behind"), 20)
        old, at = at, place(pv)
        assert at[0] == other(source) and at[1] != old[1]
        assert at[1] in folders(cluster, at[0])
        assert old[1] not in folders(cluster, old[0]), "the old copy goes"
        assert not os.listdir(f"{cluster.state}/nodes/{at[0]}/local/.incoming")
    assert at[0] == first[0]


def test_after_a_move_the_vm_starts_where_its_disk_is(cluster, local_vm, allowed):
    api = cluster.api
    g = local_vm("local-again")
    wait_movable(api, "local-again")
    obj, _ = ft.move(api, "local-again")
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    vmi = api.get("VirtualMachineInstance", "local-again")
    node, folder = place(volume(api, "local-again"))
    g.command("disk 0")
    assert api.sub("virtualmachines", "local-again", "restart")[0] == 202
    new = api.wait("VirtualMachineInstance", "local-again",
                   lambda v: v and v["metadata"]["uid"] != vmi["metadata"]["uid"] and ft.vmi_running(v), 90)
    assert new["status"]["nodeName"] == node == vmi["status"]["nodeName"]
    assert place(volume(api, "local-again")) == (node, folder)
    with open(f"{cluster.state}/nodes/{node}/local/{folder}/disk.img", "rb") as f:
        assert any(f.read(MIB)), "what the guest wrote before is there"


def test_by_default_it_is_refused_and_the_setting_named(cluster, local_vm):
    api = cluster.api
    local_vm("local-no")
    c = ft.condition(wait_movable(api, "local-no", "False"), "LiveMigratable")
    assert c["reason"] == "DisksNotLiveMigratable"
    assert c["message"].startswith("cannot migrate VMI: PVC local-no is not shared, live migration requires that all "
                                   "PVCs must be shared (using ReadWriteMany access mode)")
    assert "spec.localDiskMoves" in c["message"] and "MigrationPolicy" in c["message"]
    with pytest.raises(ft.ApiError) as e:
        api.create(ft.migration("m-local-no", "local-no"))
    assert "spec.localDiskMoves" in e.value.message


@pytest.fixture
def slow_policy(cluster):
    """Allows it for VMs with the label, and makes the copy of memory slow enough to be met in the middle."""
    api = cluster.api
    api.create({"apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy",
                "metadata": {"name": "slow-disks"},
                "spec": {"selectors": {"virtualMachineInstanceSelector": {"disks": "along"}},
                         "bandwidthPerMigration": "8Mi", "ferry": {"localDiskMoves": True}}})
    yield
    api.delete("MigrationPolicy", "slow-disks")


def begin_move(api, name):
    api.create(ft.migration(f"{name}-1", name))
    api.wait("VirtualMachineInstanceMigration", f"{name}-1", lambda v: ft.phase(v) in ("Running", *ft.FINAL), 60)


def check_untouched(cluster, name, before, source):
    assert place(volume(cluster.api, name)) == before
    assert before[1] in folders(cluster, source)
    pv = volume(cluster.api, name)["metadata"]["name"]
    ft.poll(lambda: not any(f.startswith(pv) for f in folders(cluster, other(source))), 30,
            "nothing of the volume is left at the target")


def test_a_cancelled_move_leaves_the_volume_as_it_was(cluster, local_vm, slow_policy):
    api = cluster.api
    g = local_vm("local-cancel", labels={"disks": "along"})
    boot = g.status()["bootID"]
    wait_movable(api, "local-cancel")
    g.command("dirty 64 400")
    source, before = node_of(api, "local-cancel"), place(volume(api, "local-cancel"))
    begin_move(api, "local-cancel")
    ft.poll(lambda: len(folders(cluster, other(source))) > 0, 20, "the target makes room")
    api.delete("VirtualMachineInstanceMigration", "local-cancel-1")
    api.wait("VirtualMachineInstanceMigration", "local-cancel-1", lambda v: v is None, 60)
    g.command("dirty 0")
    check_goes_on(g, boot)
    assert node_of(api, "local-cancel") == source
    check_untouched(cluster, "local-cancel", before, source)
    # nor is anything to be done before it starts anew (user-guide, volume migration)
    uid = api.get("VirtualMachineInstance", "local-cancel")["metadata"]["uid"]
    assert api.sub("virtualmachines", "local-cancel", "restart")[0] == 202
    vmi = api.wait("VirtualMachineInstance", "local-cancel",
                   lambda v: v and v["metadata"]["uid"] != uid and ft.vmi_running(v), 90)
    assert vmi["status"]["nodeName"] == source and place(volume(api, "local-cancel")) == before


@pytest.mark.parametrize("side", ["source", "target"])
def test_the_death_of_an_agent_in_the_middle_is_safe(cluster, local_vm, slow_policy, side):
    api, name = cluster.api, f"local-kill-{side}"
    g = local_vm(name, labels={"disks": "along"})
    boot = g.status()["bootID"]
    wait_movable(api, name)
    source, before = node_of(api, name), place(volume(api, name))
    begin_move(api, name)
    os.kill(cluster.pid(source if side == "source" else other(source)), signal.SIGKILL)
    obj = api.wait("VirtualMachineInstanceMigration", f"{name}-1", lambda v: ft.phase(v) in ft.FINAL, 120)
    check_goes_on(g, boot)
    if obj["status"]["phase"] == "Succeeded":
        pv = api.wait("PersistentVolume", volume(api, name)["metadata"]["name"],
                      lambda v: not v["metadata"].get("annotations", {}).get("ferry.dev/left-behind"), 30)
        assert place(pv)[0] == node_of(api, name) == other(source)
        assert before[1] not in folders(cluster, source)
    else:
        check_untouched(cluster, name, before, source)


# ---- at the exact moments of the switch ----

def test_too_little_room_is_told_before_anything_moves(cluster, local_vm, allowed):
    api, name = cluster.api, "roomless"
    local_vm(name)
    wait_movable(api, name)
    node, uid = node_of(api, name), api.get("VirtualMachineInstance", name)["metadata"]["uid"]
    to = other(node)
    wait_told(api, to, uid, "yes")
    disks_told_everywhere(cluster, name, to, "Yes", None)
    size = next(v["size"] for v in api.get("VirtualMachineInstance", name)["status"]["volumeStatus"] if v["name"] == "data")
    inside = ["nsenter", "-t", str(cluster.node_pid1(to)), "-m", "-r", "-p"]
    subprocess.run([*inside, "mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", "/run/ferry/state/local"], check=True)
    try:
        wait_told(api, to, uid, "no: ")
        disks_told_everywhere(cluster, name, to, "No", "has no place for the disks that go along: its storage for local "
                                                       f"volumes has no room for a disk of {size} B")
        obj, _ = ft.move(api, name, timeout=20)
        assert (ft.phase(obj), obj["status"]["ferry"]["reason"]) == ("Failed", "NoCandidate"), obj["status"]
    finally:
        subprocess.run([*inside, "umount", "-l", "/run/ferry/state/local"], check=True)
    wait_told(api, to, uid, "yes")
    obj, _ = ft.move(api, name)
    assert ft.phase(obj) == "Succeeded" and node_of(api, name) == to, obj["status"]


@pytest.fixture(scope="module")
def pointed(images):
    """A cluster whose processes can be held at failpoints."""
    with ft.own_net():
        c = ft.Cluster(f"{WORK}/disks", 2)
        c.down()
        for node in ("node-1", "node-2"):
            os.makedirs(f"{c.state}/nodes/{node}/failpoints", mode=0o700)
            os.makedirs(f"{c.state}/nodes/{node}/files", mode=0o755)
        os.environ["FERRY_FAILPOINTS"] = "/run/ferry/state/failpoints"
        try:
            c.up()
            c.api.patch("KubeVirt", "kubevirt", {"spec": {"configuration": {"developerConfiguration": {
                "featureGates": ["HostDisk"]}}}}, ns="kubevirt")
            c.api.patch("FerryConfig", "ferry", {"spec": {"localDiskMoves": True, "hostDiskPaths": ["/run/ferry/state/files"]}})
            yield c
            keep_logs(c, "disks")
        finally:
            del os.environ["FERRY_FAILPOINTS"]
            c.down()


def point(cluster, node, name):
    return Point(f"{cluster.state}/nodes/{node}/failpoints", name)


def kill_at(cluster, node, name, supervisor=None):
    """Kills the process that gets to a failpoint on this node, once.  With its supervisor stopped it stays away."""
    with point(cluster, node, name) as p:
        pid = p.wait(60)
        if supervisor:
            os.kill(supervisor, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)


def test_a_launcher_that_was_just_started_goes_with_its_pod(pointed, images):
    """The one before it died, and its pod ended before anybody could speak to the new one."""
    api, name = pointed.api, "just-started"
    api.create(ft.vm(name, "128Mi", kernel=kernel_boot(images)))
    vmi = api.wait("VirtualMachineInstance", name, ft.vmi_running, 60)
    ft.Guest(ft.vmi_address(vmi)).wait(90)
    target = other(vmi["status"]["nodeName"])
    pods = f"{pointed.state}/nodes/{target}/pods"
    before = os.listdir(pods)
    api.create(ft.migration(f"{name}-1", name))
    with point(pointed, target, "target.listens") as listens:
        first = listens.wait(60)
        with point(pointed, target, "launcher.begins") as begins:
            os.kill(first, signal.SIGKILL)
            second = begins.wait(30)
            obj = api.wait("VirtualMachineInstanceMigration", f"{name}-1", lambda v: ft.phase(v) in ft.FINAL, 60)
            assert obj["status"]["phase"] == "Failed", obj["status"]
            ft.poll(lambda: os.listdir(pods) == before, 30, "the target's pod goes")
            ft.poll(lambda: not os.path.exists(f"/proc/{second}"), 10, "its launcher has gone with it")
    api.delete("VirtualMachine", name)
    api.wait("VirtualMachine", name, lambda v: v is None, 60)


@pytest.mark.parametrize("point", ["target-agent.keeps", "target-agent.runs", "source-agent.gives", "agent.drops-file"])
def test_an_agent_that_dies_in_the_switch_loses_no_disk(pointed, images, point):
    """Once its disks are kept and before the guest is let go; once it runs and before anybody was told; before the old copy
    is ended; before its file goes.  With a claim and a file of the node."""
    api, name = pointed.api, point.replace(".", "-")
    api.create(claim(name))
    api.create(local_disks_vm(images, name, file=f"/run/ferry/state/files/{name}.img"))
    vmi = api.wait("VirtualMachineInstance", name, ft.vmi_running, 60)
    ft.Guest(ft.vmi_address(vmi)).wait(90)
    g = start_writing(ft.vmi_address(vmi))
    boot = g.status()["bootID"]
    wait_movable(api, name)
    source, before = node_of(api, name), place(volume(api, name))

    def files(node):
        return [f for f in os.listdir(f"{pointed.state}/nodes/{node}/files") if name in f or f.startswith(".")]
    assert files(source) == [f"{name}.img"]
    api.create(ft.migration(f"{name}-1", name))
    kill_at(pointed, other(source) if point.startswith("target") else source, point)
    obj = api.wait("VirtualMachineInstanceMigration", f"{name}-1", lambda v: ft.phase(v) in ft.FINAL, 60)
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    check_goes_on(g, boot)
    pv = api.wait("PersistentVolume", volume(api, name)["metadata"]["name"],
                  lambda v: not v["metadata"].get("annotations", {}).get("ferry.dev/left-behind"), 30)
    assert place(pv)[0] == node_of(api, name) == other(source)
    assert before[1] not in folders(pointed, source) and place(pv)[1] in folders(pointed, other(source))
    ft.poll(lambda: not files(source), 60, "the old file goes")
    assert files(other(source)) == [f"{name}.img"]
    assert os.stat(f"{pointed.state}/nodes/{other(source)}/files/{name}.img").st_nlink == 1
    api.wait("VirtualMachine", name,
             lambda v: [r["nodeName"] for r in v["status"]["ferry"]["hostDisks"]] == [other(source)], 20)
    api.delete("VirtualMachine", name)
    api.wait("VirtualMachine", name, lambda v: v is None, 60)
    api.delete("PersistentVolumeClaim", name)


def test_an_old_copy_goes_although_nobody_is_left_to_ask(pointed, images):
    """The source's agent dies before the file goes; until it is back its pod has been deleted by force, and the VM was
    started anew, so that neither pod nor VMI tells of the move."""
    api, name = pointed.api, "forced"
    api.create(claim(name))
    api.create(local_disks_vm(images, name, file=f"/run/ferry/state/files/{name}.img"))
    vmi = api.wait("VirtualMachineInstance", name, ft.vmi_running, 60)
    ft.Guest(ft.vmi_address(vmi)).wait(90)
    wait_movable(api, name)
    source, uid = node_of(api, name), vmi["metadata"]["uid"]
    pod = next(p["metadata"]["name"] for p in api.list("Pod") if p["spec"].get("nodeName") == source)
    supervisor = pointed.node_pid1(source)
    at = f"{pointed.state}/nodes/{source}"
    api.create(ft.migration(f"{name}-1", name))
    kill_at(pointed, source, "agent.drops-file", supervisor)
    try:
        api.wait("VirtualMachineInstanceMigration", f"{name}-1", lambda v: ft.phase(v) == "Succeeded", 60)
        api.delete("Pod", pod, gracePeriodSeconds=0)
        assert api.sub("virtualmachines", name, "restart")[0] == 202
        vmi = api.wait("VirtualMachineInstance", name,
                       lambda v: v and v["metadata"]["uid"] != uid and ft.vmi_running(v), 90)
        assert vmi["status"]["nodeName"] == other(source) and os.path.exists(f"{at}/files/{name}.img")
    finally:
        os.kill(supervisor, signal.SIGCONT)
    ft.poll(lambda: not os.path.exists(f"{at}/files/{name}.img"), 60, "the old file goes")
    ft.poll(lambda: not os.listdir(f"{at}/local/.host-files"), 20, "and what was to be done with it")
    assert os.path.exists(f"{pointed.state}/nodes/{other(source)}/files/{name}.img")
    assert ft.Guest(ft.vmi_address(vmi)).wait(90)
    api.delete("VirtualMachine", name)
    api.wait("VirtualMachine", name, lambda v: v is None, 60)
    api.delete("PersistentVolumeClaim", name)


def test_an_agent_that_dies_before_what_came_is_removed_leaves_nothing(pointed, images):
    """The target's, at the end of a pod whose move was cancelled: the next one does it.  A claim and a file of the node."""
    api, name = pointed.api, "drops-again"
    api.create(claim(name))
    api.create(local_disks_vm(images, name, file=f"/run/ferry/state/files/{name}.img"))
    vmi = api.wait("VirtualMachineInstance", name, ft.vmi_running, 60)
    ft.Guest(ft.vmi_address(vmi)).wait(90)
    g = start_writing(ft.vmi_address(vmi))
    boot, source = g.status()["bootID"], node_of(api, name)
    wait_movable(api, name)
    g.command("dirty 64 400")
    target, before = other(source), place(volume(api, name))
    at = f"{pointed.state}/nodes/{target}"
    pods = os.listdir(f"{at}/pods")
    with migrations(api, bandwidthPerMigration="16Mi"):
        begin_move(api, name)
        assert os.path.exists(f"{at}/files/{name}.img") and os.listdir(f"{at}/local/.host-files")
        api.delete("VirtualMachineInstanceMigration", f"{name}-1")
        kill_at(pointed, target, "agent.drops-disks")
    g.command("dirty 0")
    check_untouched(pointed, name, before, source)
    ft.poll(lambda: not os.path.exists(f"{at}/files/{name}.img") and not os.listdir(f"{at}/local/.host-files"), 30,
            "nothing of the file is left at the target")
    ft.poll(lambda: os.listdir(f"{at}/pods") == pods, 30, "nor of the pod")
    check_goes_on(g, boot)
    assert node_of(api, name) == source
    obj, _ = ft.move(api, name)
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    check_goes_on(g, boot)
    api.delete("VirtualMachine", name)
    api.wait("VirtualMachine", name, lambda v: v is None, 60)
    api.delete("PersistentVolumeClaim", name)
