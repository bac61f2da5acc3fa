"""Files of a node that are disks of VMs: which are allowed, and that a VM stays with its file."""
import os
import shutil
import signal

import ferrytest as ft
import pytest
from conftest import (ARRIVALS, arrivals, check_goes_on, disks_told_everywhere, kernel_boot, node_of, other, start_writing,
                      wait_movable, wait_told)

MIB = 1 << 20


def host_disk_vm(name, images, path, **kw):
    """The guest writes to its second disk."""
    disks = [{"name": d, "disk": {"bus": "virtio"}} for d in ("empty", "data")]
    volumes = [{"name": "empty", "emptyDisk": {"capacity": "8Mi"}}, {"name": "data", "hostDisk": {"path": path, **kw}}]
    return ft.vm(name, "128Mi", kernel=kernel_boot(images), disks=disks, volumes=volumes)


@pytest.fixture
def host_disks(cluster):
    """The gate and two folders: one that all nodes see, and one that each has for itself."""
    gates = {"spec": {"configuration": {"developerConfiguration": {"featureGates": ["HostDisk"]}}}}
    folders = ["/run/ferry/shared/host-disks", "/run/ferry/state/host-disks"]
    made = [f"{cluster.state}/{d}/host-disks" for d in ("shared", "nodes/node-1", "nodes/node-2")]
    for d in made:
        os.makedirs(d, mode=0o755)
    cluster.api.patch("KubeVirt", "kubevirt", gates, ns="kubevirt")
    cluster.api.patch("FerryConfig", "ferry", {"spec": {"hostDiskPaths": folders}})
    yield folders
    cluster.api.patch("FerryConfig", "ferry", {"spec": {"hostDiskPaths": None}})
    cluster.api.patch("KubeVirt", "kubevirt", {"spec": {"configuration": {"developerConfiguration": None}}}, ns="kubevirt")
    for d in made:
        shutil.rmtree(d)


def test_a_host_disk_that_all_nodes_see_moves_and_outlives_its_vm(cluster, make_vm, images, host_disks):
    api, name = cluster.api, "hd-shared"
    path = f"{host_disks[0]}/team/data.img"
    address = make_vm(name, manifest=host_disk_vm(name, images, path, type="DiskOrCreate", capacity="64Mi", shared=True))
    guest = ft.Guest(address)
    guest.command("disk 8388608")
    boot, source = guest.wait(10)["bootID"], node_of(api, name)
    obj, _ = ft.move(api, name)
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    s = guest.wait(10)
    assert s["bootID"] == boot and s["diskBad"] == 0 and node_of(api, name) == other(source)
    folder = f"{cluster.state}/shared/host-disks/team"
    ft.poll(lambda: os.listdir(folder) == ["data.img"], 10, "no token is left")
    api.delete("VirtualMachine", name)
    api.wait("VirtualMachine", name, lambda v: v is None, 60)
    assert os.path.getsize(f"{folder}/data.img") == 64 << 20, "the file is its user's"


def test_a_host_disk_of_one_node_stays_there_by_default(cluster, make_vm, images, host_disks):
    api, name = cluster.api, "hd-own"
    make_vm(name, manifest=host_disk_vm(name, images, f"{host_disks[1]}/data.img", type="DiskOrCreate", capacity="64Mi"))
    assert os.path.getsize(f"{cluster.state}/nodes/{node_of(api, name)}/host-disks/data.img") == 64 << 20
    c = api.wait("VirtualMachineInstance", name, lambda v: ft.condition(v, "LiveMigratable"), 10)
    c = ft.condition(c, "LiveMigratable")
    assert c["status"] == "False" and c["reason"] == "DisksNotLiveMigratable", c
    assert c["message"].startswith("cannot migrate VMI with non-shared HostDisk; its data lie on this node, and go along "
                                   "only if spec.localDiskMoves of the FerryConfig")
    with pytest.raises(ft.ApiError) as e:
        api.create(ft.migration("hd-own-move", name))
    assert "DisksNotLiveMigratable" in e.value.message


def test_host_disks_that_are_refused(cluster, images, host_disks):
    api = cluster.api
    with pytest.raises(ft.ApiError) as e:
        api.create(host_disk_vm("hd-bad", images, "/etc/shadow", type="Disk"))
    assert e.value.status == 422 and e.value.body["details"]["causes"][0]["field"].endswith("volumes[1].hostDisk.path")
    assert "not below a folder that spec.hostDiskPaths of the FerryConfig allows" in e.value.message
    os.symlink("/etc/shadow", f"{cluster.state}/shared/host-disks/link.img")
    for name, path, why in (("hd-missing", "none.img", "there is no file"), ("hd-link", "link.img", "link.img")):
        api.create(host_disk_vm(name, images, f"{host_disks[0]}/{path}", type="Disk"))
        try:
            vmi = api.wait("VirtualMachineInstance", name,
                           lambda v: v and (ft.condition(v, "Synchronized") or {}).get("status") == "False", 30)
            assert why in ft.condition(vmi, "Synchronized")["message"]
            assert not ft.vmi_running(vmi)
        finally:
            api.delete("VirtualMachine", name)
            api.wait("VirtualMachine", name, lambda v: v is None, 60)


def set_strategy(api, name, strategy):
    api.patch("VirtualMachine", name, {"spec": {"runStrategy": strategy}})
    if strategy == "Halted":
        api.wait("VirtualMachineInstance", name, lambda v: v is None, 60)


def set_cordoned(api, node, on):
    api.patch("Node", node, {"spec": {"unschedulable": True if on else None}})


def record(api, name):
    return api.get("VirtualMachine", name)["status"].get("ferry", {}).get("hostDisks", [])


def why_not_scheduled(api, name, text):
    vmi = api.wait("VirtualMachineInstance", name,
                   lambda v: v and text in (ft.condition(v, "PodScheduled") or {}).get("message", ""), 20)
    assert ft.condition(vmi, "PodScheduled")["reason"] == "Unschedulable" and not vmi["status"].get("nodeName")
    vm = api.wait("VirtualMachine", name, lambda v: v["status"].get("printableStatus") == "ErrorUnschedulable", 10)
    assert text in ft.condition(vm, "PodScheduled")["message"]


def test_a_vm_starts_where_its_file_is_or_waits(cluster, make_vm, images, host_disks):
    api, name = cluster.api, "hd-pinned"
    path = f"{host_disks[1]}/data.img"
    address = make_vm(name, manifest=host_disk_vm(name, images, path, type="DiskOrCreate", capacity="64Mi"))
    node = node_of(api, name)
    api.wait("VirtualMachine", name, lambda v: record(api, name) == [{"path": path, "nodeName": node}], 10)
    start_writing(address).command("disk 0")
    set_strategy(api, name, "Halted")
    here, there = (f"{cluster.state}/nodes/{n}/host-disks" for n in (node, other(node)))
    with open(f"{here}/data.img", "rb") as f:
        written = f.read()
    assert any(written)
    set_cordoned(api, node, True)
    try:
        set_strategy(api, name, "Always")
        why_not_scheduled(api, name, f"hostDisk 'data': its file '{path}' is on node '{node}', which is cordoned")
        assert not os.listdir(there)
    finally:
        set_cordoned(api, node, False)
    vmi = api.wait("VirtualMachineInstance", name, ft.vmi_running, 60)
    assert vmi["status"]["nodeName"] == node
    ft.Guest(ft.vmi_address(vmi)).wait(90)
    with open(f"{here}/data.img", "rb") as f:
        assert f.read() == written, "it is the file that it was"
    assert "affinity" not in api.get("VirtualMachine", name)["spec"]["template"]["spec"]
    # the user's own words against it
    set_strategy(api, name, "Halted")
    selector = {"kubernetes.io/hostname": other(node)}
    api.patch("VirtualMachine", name, {"spec": {"template": {"spec": {"nodeSelector": selector}}}})
    set_strategy(api, name, "Always")
    why_not_scheduled(api, name, f"which the VM's own nodeSelector does not allow (kubernetes.io/hostname={other(node)})")
    assert not os.listdir(there)


def test_who_moves_a_file_by_hand_corrects_the_record(cluster, make_vm, images, host_disks):
    api, name = cluster.api, "hd-by-hand"
    path = f"{host_disks[1]}/data.img"
    make_vm(name, manifest=host_disk_vm(name, images, path, type="DiskOrCreate", capacity="64Mi"))
    node = node_of(api, name)
    set_strategy(api, name, "Halted")
    here, there = (f"{cluster.state}/nodes/{n}/host-disks/data.img" for n in (node, other(node)))
    os.rename(here, there)
    # it is missed, and no empty one is made in its place
    set_strategy(api, name, "Always")
    api.wait("VirtualMachineInstance", name, lambda v: v and "where the VM has used it: it is not made anew" in
             (ft.condition(v, "Synchronized") or {}).get("message", ""), 30)
    assert not os.path.exists(here)
    set_strategy(api, name, "Halted")
    api.patch("VirtualMachine", name, {"status": {"ferry": {"hostDisks": [{"path": path, "nodeName": other(node)}]}}},
              sub="status")
    set_strategy(api, name, "Always")
    vmi = api.wait("VirtualMachineInstance", name, ft.vmi_running, 60)
    assert vmi["status"]["nodeName"] == other(node) and not os.path.exists(here)
    # without a record it may start anywhere, and what is not there is made
    set_strategy(api, name, "Halted")
    os.unlink(there)
    api.patch("VirtualMachine", name, {"status": {"ferry": {"hostDisks": None}}}, sub="status")
    assert record(api, name) == []
    set_strategy(api, name, "Always")
    vmi = api.wait("VirtualMachineInstance", name, ft.vmi_running, 60)
    assert os.path.getsize(f"{cluster.state}/nodes/{vmi['status']['nodeName']}/host-disks/data.img") == 64 * MIB
    # and a volume that is not the spec's any more is forgotten
    api.wait("VirtualMachine", name, lambda v: record(api, name), 10)
    set_strategy(api, name, "Halted")
    api.patch("VirtualMachine", name, {"spec": {"template": {"spec": {"volumes": [
        {"name": "empty", "emptyDisk": {"capacity": "8Mi"}},
        {"name": "data", "hostDisk": {"path": f"{host_disks[1]}/other.img", "type": "DiskOrCreate", "capacity": "64Mi"}}]}}}})
    api.wait("VirtualMachine", name, lambda v: record(api, name) == [], 10)


def test_a_node_opens_no_file_that_the_record_gives_to_another(cluster, make_vm, images, host_disks):
    """Whatever placed the pod: the agent asks the API server itself."""
    api, name = cluster.api, "hd-misplaced"
    path = f"{host_disks[1]}/data.img"
    make_vm(name, manifest=host_disk_vm(name, images, path, type="DiskOrCreate", capacity="64Mi"))
    node = node_of(api, name)
    set_strategy(api, name, "Halted")
    # the scheduler is led astray: the other node says that it is this one
    api.patch("Node", node, {"spec": {"unschedulable": True}})
    api.patch("Node", other(node), {"metadata": {"labels": {"kubernetes.io/hostname": node}}})
    try:
        set_strategy(api, name, "Always")
        vmi = api.wait("VirtualMachineInstance", name, lambda v: v and ft.phase(v) == "Failed", 60)
        assert not ft.vmi_running(vmi)
        assert not os.listdir(f"{cluster.state}/nodes/{other(node)}/host-disks")
    finally:
        api.patch("Node", other(node), {"metadata": {"labels": {"kubernetes.io/hostname": other(node)}}})
        api.patch("Node", node, {"spec": {"unschedulable": None}})
    api.wait("VirtualMachineInstance", name, lambda v: ft.vmi_running(v) and v["status"]["nodeName"] == node, 90)


# ---- where local disks may move ----

def set_moves(api, value):
    api.patch("FerryConfig", "ferry", {"spec": {"localDiskMoves": value}})


@pytest.fixture
def allowed(cluster):
    set_moves(cluster.api, True)
    yield
    set_moves(cluster.api, None)


def below(cluster, node):
    """Everything below a node's folder, hidden names too."""
    root = f"{cluster.state}/nodes/{node}/host-disks"
    return sorted(os.path.relpath(os.path.join(d, n), root) for d, dirs, files in os.walk(root) for n in dirs + files)


def records_left(cluster, node):
    root = f"{cluster.state}/nodes/{node}/local/.host-files"
    return os.listdir(root) if os.path.isdir(root) else []


def test_a_host_disk_goes_along_and_back(cluster, make_vm, images, host_disks, allowed):
    api, name = cluster.api, "hd-along"
    path = f"{host_disks[1]}/team/data.img"
    g = start_writing(make_vm(name, manifest=host_disk_vm(name, images, path, type="DiskOrCreate", capacity="48Mi")))
    boot = g.status()["bootID"]
    assert wait_movable(api, name)["status"]["migrationMethod"] == "BlockMigration"
    for _ in range(2):
        source = node_of(api, name)
        obj, _ = ft.move(api, name)
        assert obj["status"]["phase"] == "Succeeded", obj["status"]
        check_goes_on(g, boot)
        target = node_of(api, name)
        assert target == other(source)
        ft.poll(lambda s=source: below(cluster, s) == ["team"], 30, "the old file goes")
        assert below(cluster, target) == ["team", "team/data.img"]
        st = os.stat(f"{cluster.state}/nodes/{target}/host-disks/team/data.img")
        assert (st.st_size, st.st_mode & 0o777, st.st_uid, st.st_nlink) == (48 * MIB, 0o600, 0, 1)
        api.wait("VirtualMachine", name, lambda v, t=target: record(api, name) == [{"path": path, "nodeName": t}], 20)
        ft.poll(lambda s=source: not records_left(cluster, s), 30, "the source's agent has forgotten it")
    obj, _ = ft.move(api, name)
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    # it starts anew where its file is
    g.command("disk 0")
    target, uid = node_of(api, name), api.get("VirtualMachineInstance", name)["metadata"]["uid"]
    assert api.sub("virtualmachines", name, "restart")[0] == 202
    vmi = api.wait("VirtualMachineInstance", name,
                   lambda v: v and v["metadata"]["uid"] != uid and ft.vmi_running(v), 90)
    assert vmi["status"]["nodeName"] == target
    with open(f"{cluster.state}/nodes/{target}/host-disks/team/data.img", "rb") as f:
        assert any(f.read(MIB)), "what the guest wrote before is there"
    # although the VM was restarted before its source had tidied up: the instance waits for that
    assert below(cluster, other(target)) == ["team"]


def test_a_file_in_the_way_is_refused_and_untouched(cluster, make_vm, images, host_disks, allowed):
    api, name = cluster.api, "hd-in-the-way"
    g = start_writing(make_vm(name, manifest=host_disk_vm(name, images, f"{host_disks[1]}/data.img", type="DiskOrCreate",
                                                          capacity="48Mi")))
    boot = g.status()["bootID"]
    wait_movable(api, name)
    source = node_of(api, name)
    there = f"{cluster.state}/nodes/{other(source)}/host-disks/data.img"
    uid = api.get("VirtualMachineInstance", name)["metadata"]["uid"]
    with open(there, "wb") as f:
        f.write(b"somebody else's")
    # the node's own look is told before (the test below); here it says what is not so
    wait_told(api, other(source), uid, "no: ")
    api.patch("Node", other(source), {"metadata": {"annotations": {ARRIVALS + uid: "yes"}}})
    obj, _ = ft.move(api, name)
    assert obj["status"]["phase"] == "Failed", obj["status"]
    why = obj["status"]["ferry"]["message"]
    assert f"node {other(source)}: " in why and "there is a file" in why and "never written over one" in why, why
    check_goes_on(g, boot)
    assert node_of(api, name) == source
    ft.poll(lambda: not records_left(cluster, other(source)), 30, "the target's agent has forgotten it")
    assert below(cluster, other(source)) == ["data.img"]
    with open(there, "rb") as f:
        assert f.read() == b"somebody else's"
    os.unlink(there)
    wait_told(api, other(source), uid, "yes")
    obj, _ = ft.move(api, name)
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    check_goes_on(g, boot)


def test_what_is_in_the_way_is_told_before_anything_moves(cluster, make_vm, images, host_disks, allowed):
    api, name = cluster.api, "hd-foretold"
    path = f"{host_disks[1]}/team/data.img"
    make_vm(name, manifest=host_disk_vm(name, images, path, type="DiskOrCreate", capacity="48Mi"), guest=False)
    wait_movable(api, name)
    node, uid = node_of(api, name), api.get("VirtualMachineInstance", name)["metadata"]["uid"]
    to = other(node)
    folder = f"{cluster.state}/nodes/{to}/host-disks"
    wait_told(api, to, uid, "yes")
    disks_told_everywhere(cluster, name, to, "Yes", None)
    assert not os.listdir(folder), "a look makes nothing"
    # a file of that name, and what a real move says then
    os.makedirs(f"{folder}/team")
    with open(f"{folder}/team/data.img", "wb"):
        pass
    wait_told(api, to, uid, "no: ")
    disks_told_everywhere(cluster, name, to, "No", f"has no place for the disks that go along: there is a file '{path}' on this "
                                             "node already, and a disk that moves here is never written over one")
    obj, _ = ft.move(api, name, timeout=20)
    f = obj["status"]["ferry"]
    assert (ft.phase(obj), f["reason"]) == ("Failed", "NoCandidate") and "there is a file" in f["message"], obj["status"]
    assert [p for p in api.list("Pod") if p["metadata"]["labels"].get("kubevirt.io/migrationJobUID")
            == obj["metadata"]["uid"]] == [], "no pod was made for it"
    os.unlink(f"{folder}/team/data.img")
    wait_told(api, to, uid, "yes")
    # a folder that others may write, and none at all
    os.chmod(folder, 0o777)
    wait_told(api, to, uid, "no: ")
    disks_told_everywhere(cluster, name, to, "No", "has no place for the disks that go along: folder "
                                             f"'{host_disks[1]}' has to be root's own, and nobody else's to write")
    os.rename(folder, folder + ".away")
    try:
        wait_told(api, to, uid, "no: cannot open")
        disks_told_everywhere(cluster, name, to, "No", f"has no place for the disks that go along: cannot open '{host_disks[1]}': "
                                                 "No such file or directory")
    finally:
        os.rename(folder + ".away", folder)
        os.chmod(folder, 0o755)
    wait_told(api, to, uid, "yes")
    # an agent that is silent is not taken at its last word
    os.kill(cluster.pid(to), signal.SIGSTOP)
    try:
        api.wait("Node", to, lambda n: ft.condition(n, "Ready")["status"] != "True", 90)
        vmi = api.wait("VirtualMachineInstance", name,
                       lambda v: ft.condition(v, "MigrationTargets")["status"] == "False", 10)
        assert ft.condition(vmi, "MigrationTargets")["message"].endswith(
            f"{to} is not ready, so that it is not known whether it has a place for the disks that go along"), vmi
    finally:
        os.kill(cluster.pid(to), signal.SIGCONT)
    api.wait("Node", to, lambda n: ft.condition(n, "Ready")["status"] == "True", 60)
    # nobody's files are told of but those of VMs, and nothing is left of a VM that is gone
    assert set(arrivals(api, to)) == {"looks", uid} and "looks" in arrivals(api, node)
    api.delete("VirtualMachine", name)
    api.wait("Node", to, lambda n: set(arrivals(api, to)) == {"looks"}, 20)


@pytest.fixture
def slow_policy(cluster):
    """Allows it for VMs with the label, and makes the copy of memory slow enough to be met in the middle."""
    api = cluster.api
    api.create({"apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy",
                "metadata": {"name": "slow-host-disks"},
                "spec": {"selectors": {"virtualMachineInstanceSelector": {"disks": "hd-along"}},
                         "bandwidthPerMigration": "8Mi", "ferry": {"localDiskMoves": True}}})
    yield
    api.delete("MigrationPolicy", "slow-host-disks")


@pytest.mark.parametrize("killed", [None, "target", "source"])
def test_a_move_that_does_not_end_leaves_nothing(cluster, make_vm, images, host_disks, slow_policy, killed):
    """Cancelled, also after the death of an agent in the middle: the file is where it was, and nowhere else."""
    api, name = cluster.api, f"hd-kill-{killed}".lower()
    manifest = host_disk_vm(name, images, f"{host_disks[1]}/a/b/data.img", type="DiskOrCreate", capacity="48Mi")
    manifest["spec"]["template"]["metadata"]["labels"]["disks"] = "hd-along"
    g = start_writing(make_vm(name, manifest=manifest))
    boot = g.status()["bootID"]
    wait_movable(api, name)
    g.command("dirty 64 400")
    source = node_of(api, name)
    before = below(cluster, source)
    # a folder of somebody's that the file would be in
    os.makedirs(f"{cluster.state}/nodes/{other(source)}/host-disks/a", mode=0o755)
    api.create(ft.migration(f"{name}-1", name))
    api.wait("VirtualMachineInstanceMigration", f"{name}-1", lambda v: ft.phase(v) in ("Running", *ft.FINAL), 60)
    made = below(cluster, other(source))
    assert "a/b/data.img" in made and any(".ferry-incoming." in f for f in made), made
    if killed:
        os.kill(cluster.pid(source if killed == "source" else other(source)), signal.SIGKILL)
    api.delete("VirtualMachineInstanceMigration", f"{name}-1")
    api.wait("VirtualMachineInstanceMigration", f"{name}-1", lambda v: v is None, 120)
    g.command("dirty 0")
    check_goes_on(g, boot)
    assert node_of(api, name) == source and below(cluster, source) == before
    ft.poll(lambda: below(cluster, other(source)) == ["a"], 60, "nothing that the target has made is left")
    ft.poll(lambda: not records_left(cluster, other(source)), 30, "the target's agent has forgotten it")
