"""Disks: containerDisk, emptyDisk, cloud-init, claims of both classes; hostile images are refused."""
import contextlib
import json
import os
import shutil
import subprocess
import time

import ferrytest as ft
import ociimage
import pytest
from conftest import TINY, WORK, keep_logs, kernel_boot, node_of, other, wait_movable

DISK = [{"name": "root", "bootOrder": 1, "disk": {"bus": "virtio"}}]


def claim(name, size="64Mi", cls="shared", mode="ReadWriteMany", volume_mode="Filesystem"):
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": [mode], "storageClassName": cls, "volumeMode": volume_mode,
                     "resources": {"requests": {"storage": size}}}}


def container_disk(name, image, extra_disks=(), extra_volumes=(), **kw):
    return ft.vm(name, "256Mi", disks=[*DISK, *extra_disks],
                 volumes=[{"name": "root", "containerDisk": {"image": image}}, *extra_volumes], **kw)


@pytest.mark.parametrize("kind", ["disk", "qcow2"])
def test_a_container_disk_boots_and_moves(cluster, make_vm, disk_images, kind):
    name = f"cd-{kind}"
    address = make_vm(name, manifest=container_disk(name, f"oci:{disk_images}/{kind}"))
    boot = ft.Guest(address).status()["bootID"]
    vmi = cluster.api.get("VirtualMachineInstance", name)
    assert ft.condition(vmi, "LiveMigratable")["status"] == "True"
    assert vmi["status"]["migrationMethod"] == "BlockMigration"
    g = ft.Guest(address)
    g.command("disk 1048576")  # writes to the overlay, which must move along
    obj, _ = ft.move(cluster.api, name)
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    s = ft.Guest(address).wait(10)
    assert s["bootID"] == boot and s["diskBad"] == 0 and s["diskChecks"] > 0


def digest_of(api, name):
    images = api.get("VirtualMachineInstance", name)["status"]["ferry"]["images"]
    return {i["volumeName"]: i["digest"] for i in images}["root"]


def test_a_tag_that_moves_changes_no_vm_until_its_spec_does(cluster, make_vm, images):
    """Not by a restart, not by a move; the digest is the VM's (kubevirt/kubevirt#15967)."""
    api = cluster.api
    folder, second = f"{images}/tagged", f"{images}/tagged-2"
    first_digest = ociimage.make(folder, [(f"{TINY}/disk.img", "/disk/disk.img")], tag="v1")
    longer = f"{images}/longer.img"
    shutil.copyfile(f"{TINY}/disk.img", longer)
    os.truncate(longer, os.path.getsize(longer) + 1048576)
    second_digest = ociimage.make(second, [(longer, "/disk/disk.img")], tag="v1")
    assert first_digest != second_digest
    make_vm("tagged", manifest=container_disk("tagged", f"oci:{folder}:v1"))
    assert digest_of(api, "tagged") == first_digest
    # the tag v1 is another image from now on, as v2 is
    shutil.copytree(f"{second}/blobs", f"{folder}/blobs", dirs_exist_ok=True)
    with open(f"{second}/index.json") as f:
        index = json.load(f)
    index["manifests"].append({**index["manifests"][0], "annotations": {"org.opencontainers.image.ref.name": "v2"}})
    with open(f"{folder}/index.json", "w") as f:
        json.dump(index, f)

    def again():
        uid = api.get("VirtualMachineInstance", "tagged")["metadata"]["uid"]
        assert api.sub("virtualmachines", "tagged", "restart")[0] == 202
        vmi = api.wait("VirtualMachineInstance", "tagged",
                       lambda v: v and v["metadata"]["uid"] != uid and ft.vmi_running(v), 60)
        ft.Guest(ft.vmi_address(vmi)).wait(90)
        return digest_of(api, "tagged")
    assert again() == first_digest
    obj, _ = ft.move(api, "tagged")
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    assert digest_of(api, "tagged") == first_digest
    vm = api.get("VirtualMachine", "tagged")
    assert vm["status"]["ferry"]["images"][0]["digest"] == first_digest
    vm["spec"]["template"]["spec"]["volumes"][0]["containerDisk"]["image"] = f"oci:{folder}:v2"
    api.patch("VirtualMachine", "tagged", {"spec": {"template": {"spec": {
        "volumes": vm["spec"]["template"]["spec"]["volumes"]}}}})
    assert again() == second_digest


def test_empty_disk_and_cloud_init(cluster, make_vm, disk_images):
    """Beside two more images, one of them as a cdrom (kubevirt/kubevirt#9824)."""
    extra = [{"name": "e", "disk": {"bus": "virtio"}}, {"name": "more", "disk": {"bus": "virtio"}},
             {"name": "drivers", "cdrom": {"bus": "sata"}}, {"name": "ci", "cdrom": {"bus": "sata"}}]
    vols = [{"name": "e", "emptyDisk": {"capacity": "32Mi"}},
            {"name": "more", "containerDisk": {"image": f"oci:{disk_images}/qcow2"}},
            {"name": "drivers", "containerDisk": {"image": f"oci:{disk_images}/disk"}},
            {"name": "ci", "cloudInitNoCloud": {"userData": "#cloud-config\n{}\n"}}]
    address = make_vm("empty", manifest=container_disk("empty", f"oci:{disk_images}/disk", extra, vols))
    g = ft.Guest(address)
    assert g.status()["disk"] == "/dev/vdb"
    g.command("disk 4194304")
    ft.poll(lambda: g.status()["diskChecks"] > 50, 20, "the guest writes to its empty disk")
    obj, _ = ft.move(cluster.api, "empty")
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    n = g.wait(10)["diskChecks"]
    ft.poll(lambda: g.status()["diskChecks"] > n, 20, "it goes on after the move")
    assert g.status()["diskBad"] == 0


def test_a_claim_of_the_shared_class(cluster, make_vm, disk_images):
    api = cluster.api
    api.create(claim("shared-pvc"))
    try:
        extra = [{"name": "data", "disk": {"bus": "virtio"}}]
        vols = [{"name": "data", "persistentVolumeClaim": {"claimName": "shared-pvc"}}]
        address = make_vm("shared-vm", manifest=container_disk("shared-vm", f"oci:{disk_images}/disk", extra, vols))
        pvc = api.wait("PersistentVolumeClaim", "shared-pvc", lambda p: p["status"].get("phase") == "Bound", 10)
        pv = api.get("PersistentVolume", pvc["spec"]["volumeName"])
        g = ft.Guest(address)
        g.command("disk 8388608")
        obj, _ = ft.move(api, "shared-vm")
        assert obj["status"]["phase"] == "Succeeded", obj["status"]
        assert g.wait(10)["diskBad"] == 0
    finally:
        api.delete("VirtualMachine", "shared-vm")
        api.wait("VirtualMachine", "shared-vm", lambda v: v is None, 60)
        api.delete("PersistentVolumeClaim", "shared-pvc")
    # the class deletes what it made
    api.wait("PersistentVolume", pv["metadata"]["name"], lambda v: v is None, 30)
    left = [d for d in os.listdir(f"{cluster.state}/shared") if pv["spec"]["csi"]["volumeAttributes"]["path"] == d]
    assert not left


def in_box(cluster, node, *args):
    """A program that sees the files as the node does; its exit code."""
    return subprocess.run(["nsenter", "-t", str(cluster.node_pid1(node)), "-m", "-r", *args], check=False).returncode


def test_a_shared_claim_is_believed_only_when_both_nodes_see_the_same(cluster, make_vm, images):
    """Its access mode says ReadWriteMany; a node whose folder is another one is found out before a byte moves."""
    api, name = cluster.api, "proven"
    api.create(claim(name))
    hidden = target = None
    try:
        disks = [{"name": "data", "disk": {"bus": "virtio"}}]
        vols = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        address = make_vm(name, manifest=ft.vm(name, "128Mi", kernel=kernel_boot(images), disks=disks, volumes=vols))
        boot = ft.Guest(address).status()["bootID"]
        pvc = api.get("PersistentVolumeClaim", name)
        folder = api.get("PersistentVolume", pvc["spec"]["volumeName"])["spec"]["csi"]["volumeAttributes"]["path"]
        source = node_of(api, name)
        shared = f"{cluster.state}/shared/{folder}"
        target = other(source)
        hidden = f"/run/ferry/shared/{folder}"
        assert in_box(cluster, target, "mount", "-t", "tmpfs", "tmpfs", hidden) == 0
        obj, _ = ft.move(api, name)
        why = obj["status"]["migrationState"]["failureReason"]
        assert obj["status"]["phase"] == "Failed" and f"claim '{name}': its storage is not the same on both nodes" in why
        assert node_of(api, name) == source and ft.Guest(address).wait(10)["bootID"] == boot
        ft.poll(lambda: in_box(cluster, target, "umount", hidden) == 0, 30, "nothing there is open any more", 0.5)
        hidden = None
        obj, _ = ft.move(api, name)
        assert obj["status"]["phase"] == "Succeeded", obj["status"]
        assert ft.Guest(address).wait(10)["bootID"] == boot
        ft.poll(lambda: os.listdir(shared) == ["disk.img"], 10, "no token is left")
    finally:
        if hidden:
            in_box(cluster, target, "umount", hidden)
        api.delete("VirtualMachine", name)
        api.wait("VirtualMachine", name, lambda v: v is None, 60)
        api.delete("PersistentVolumeClaim", name)


def test_shared_storage_that_hangs_ends_a_move_with_a_reason(images):
    state, name = os.path.join(WORK, "hangs"), "hanging"
    shutil.rmtree(state, ignore_errors=True)
    with ft.own_net(), ft.Freezable(f"{state}/shared") as shared:
        c = ft.Cluster(state, 2).up()
        try:
            api = c.api
            api.create(claim(name))
            api.create(ft.vm(name, "128Mi", kernel=kernel_boot(images), pvc=name))
            vmi = api.wait("VirtualMachineInstance", name, ft.vmi_running, 60)
            guest = ft.Guest(ft.vmi_address(vmi))
            boot, source = guest.wait(90)["bootID"], node_of(api, name)

            def stays(why, seconds):
                begun = time.monotonic()
                obj, _ = ft.move(api, name)
                assert obj["status"]["phase"] == "Failed", obj["status"]
                assert time.monotonic() - begun < seconds
                assert why in obj["status"]["migrationState"]["failureReason"], obj["status"]
                assert guest.wait(10)["bootID"] == boot and node_of(api, name) == source
                return obj["status"]["ferry"].get("reason")
            shared.freeze()
            assert stays("shared storage did not take the proof that both nodes see it within 30 s", 60) == "Timeout"
            # what hangs holds a thread of the agent: no other joins it
            stays(f"the shared storage of node '{source}' has not answered for", 15)
            shared.thaw()
            ft.poll(lambda: ft.phase(ft.move(api, name)[0]) == "Succeeded", 30, "the VM moves again", 1)
            assert guest.wait(10)["bootID"] == boot and node_of(api, name) == other(source)
            folder, = os.listdir(f"{state}/shared")
            ft.poll(lambda: os.listdir(f"{state}/shared/{folder}") == ["disk.img"], 10, "no token is left")
        finally:
            shared.thaw()
            keep_logs(c, name)
            c.down(purge=False)
    shutil.rmtree(state)


def test_claims_on_storage_that_hangs_hold_up_no_other_vm(images):
    """More disks to be made on each node than its agent has threads."""
    state, names = os.path.join(WORK, "makes"), [f"waits-{i}" for i in range(10)]
    shutil.rmtree(state, ignore_errors=True)
    with ft.own_net(), ft.Freezable(f"{state}/shared") as shared:
        c = ft.Cluster(state, 2).up()
        try:
            api = c.api
            shared.freeze()
            for name in names:
                api.create(claim(name))
                api.create(ft.vm(name, "64Mi", kernel=kernel_boot(images), pvc=name))

            def why(name):
                vmi = api.find("VirtualMachineInstance", name)
                return (ft.condition(vmi, "Synchronized") or {}).get("message", "") if vmi else ""
            ft.poll(lambda: all("the shared storage of node" in why(n) for n in names), 60, "each says what it waits for", 1)
            api.create(ft.vm("other", "128Mi", kernel=kernel_boot(images)))
            vmi = api.wait("VirtualMachineInstance", "other", ft.vmi_running, 60)
            ft.Guest(ft.vmi_address(vmi)).wait(90)
            assert not any(ft.vmi_running(api.find("VirtualMachineInstance", n)) for n in names)
            shared.thaw()
            api.wait("VirtualMachineInstance", names[0], ft.vmi_running, 120)
        finally:
            shared.thaw()
            keep_logs(c, "makes")
            c.down(purge=False)
    shutil.rmtree(state)


def test_a_cleanup_that_hangs_on_storage_holds_up_no_network(images):
    """What a cancelled move has brought cannot be removed: other VMs come, go and move meanwhile, and the move's own
    things in the network are gone at once."""
    state, name, nodes = os.path.join(WORK, "cleans"), "brought", ("node-1", "node-2")
    shutil.rmtree(state, ignore_errors=True)
    with ft.own_net(), contextlib.ExitStack() as stack:
        local = {n: stack.enter_context(ft.Freezable(f"{state}/nodes/{n}/local")) for n in nodes}
        c = ft.Cluster(state, 2).up()
        try:
            api = c.api
            api.patch("FerryConfig", "ferry", {"spec": {"localDiskMoves": True}})
            api.patch("KubeVirt", "kubevirt", {"spec": {"configuration": {"migrations": {
                "bandwidthPerMigration": "16Mi"}}}}, ns="kubevirt")
            api.create(claim(name, "48Mi", cls="local", mode="ReadWriteOnce"))
            api.create(ft.vm(name, "128Mi", kernel=kernel_boot(images), pvc=name))
            guest = ft.Guest(ft.vmi_address(api.wait("VirtualMachineInstance", name, ft.vmi_running, 60)))
            boot, source = guest.wait(90)["bootID"], node_of(api, name)
            target = other(source)
            wait_movable(api, name)
            guest.command("dirty 64 400")
            api.create(ft.migration(name, name))

            def copies(m):
                return ft.phase(m) in ft.FINAL or m["status"].get("ferry", {}).get("stage") == "memory"
            m = api.wait("VirtualMachineInstanceMigration", name, copies, 60)
            assert ft.phase(m) not in ft.FINAL, m["status"]
            incoming = f"{state}/nodes/{target}/local/.incoming"
            assert os.listdir(incoming)
            local[target].freeze()
            api.delete("VirtualMachineInstanceMigration", name)
            late = f"waits for the storage for local volumes of node '{target}', which does not answer"
            ft.poll(lambda: late in c.log(target), 40, "what is to be removed waits")
            guest.command("dirty 0")

            def ruleset():
                return c.in_node(target, "nft", "list", "ruleset", capture_output=True, text=True).stdout
            assert " 49152 " not in ruleset(), "the move's way is closed"
            api.create(ft.vm("other", "128Mi", kernel=kernel_boot(images)))
            vmi = api.wait("VirtualMachineInstance", "other", ft.vmi_running, 60)
            another = ft.Guest(ft.vmi_address(vmi))
            another_boot = another.wait(90)["bootID"]
            for _ in range(2):  # to the node and away from it
                assert ft.phase(ft.move(api, "other", timeout=60)[0]) == "Succeeded"
                assert another.wait(10)["bootID"] == another_boot
            api.delete("VirtualMachine", "other")
            api.wait("VirtualMachine", "other", lambda v: v is None, 60)
            assert os.listdir(incoming), "it still hangs"
            local[target].thaw()
            ft.poll(lambda: not os.listdir(incoming), 30, "what the move has brought is gone")
            assert guest.wait(10)["bootID"] == boot and node_of(api, name) == source
            assert ft.phase(ft.move(api, name)[0]) == "Succeeded"
            assert guest.wait(10)["bootID"] == boot and node_of(api, name) == target
        finally:
            for f in local.values():
                f.thaw()
            keep_logs(c, "cleans")
            c.down(purge=False)
    shutil.rmtree(state)


@pytest.mark.parametrize("volume_mode", ["Filesystem", "Block"])
def test_a_claim_of_the_local_class_binds_where_the_vm_runs_and_does_not_move(cluster, make_vm, disk_images, volume_mode):
    api = cluster.api
    name = f"local-{volume_mode.lower()}"
    api.create(claim(name, cls="local", mode="ReadWriteOnce", volume_mode=volume_mode))
    try:
        extra = [{"name": "data", "disk": {"bus": "virtio"}}]
        vols = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        address = make_vm(name, manifest=container_disk(name, f"oci:{disk_images}/disk", extra, vols))
        g = ft.Guest(address)
        g.command("disk 4194304")
        ft.poll(lambda: g.status()["diskChecks"] > 20, 20, "the guest writes")
        c = ft.condition(api.get("VirtualMachineInstance", name), "LiveMigratable")
        assert (c["status"], c["reason"]) == ("False", "DisksNotLiveMigratable")
        assert c["message"].startswith(f"cannot migrate VMI: PVC {name} is not shared, live migration requires that "
                                       "all PVCs must be shared (using ReadWriteMany access mode)")
        with pytest.raises(ft.ApiError) as e:
            api.create(ft.migration("m-" + name, name))
        assert "Cannot migrate VMI, Reason: DisksNotLiveMigratable" in e.value.message
        assert "spec.localDiskMoves of the FerryConfig" in e.value.message
    finally:
        api.delete("VirtualMachine", name)
        api.wait("VirtualMachine", name, lambda v: v is None, 60)
        api.delete("PersistentVolumeClaim", name)


def bad_image(name, make):
    folder = os.path.join(ft.IMAGES, name)
    path = os.path.join(ft.IMAGES, f"{name}.img")
    make(path)
    ociimage.make(folder, [(path, "/disk/disk.qcow2")])
    return f"oci:{folder}"


def img(*args):
    subprocess.run(["qemu-img", *args], check=True, stdout=subprocess.DEVNULL)


def test_hostile_images_are_refused(cluster, images):
    api = cluster.api
    secret = os.path.join(WORK, "secret.raw")
    with open(secret, "wb") as f:
        f.write(b"secret" * 200000)
    bad = {
        "backing": lambda p: img("create", "-q", "-f", "qcow2", "-b", secret, "-F", "raw", p),
        "datafile": lambda p: img("create", "-q", "-f", "qcow2", "-o", f"data_file={p}.raw", p, "1M"),
    }
    for what, make in bad.items():
        name = f"hostile-{what}"
        api.create(container_disk(name, bad_image(name, make)))
        try:
            api.wait("VirtualMachineInstance", name, lambda v: v and (
                (ft.condition(v, "Synchronized") or {}).get("status") == "False" or
                ft.phase(v) == "Failed"), 30)
            assert not ft.vmi_running(api.get("VirtualMachineInstance", name))
        finally:
            api.delete("VirtualMachine", name)
            api.wait("VirtualMachine", name, lambda v: v is None, 60)


def test_an_image_without_a_disk(cluster, images):
    folder = os.path.join(ft.IMAGES, "nodisk")
    ociimage.make(folder, [(f"{TINY}/stamp", "/etc/other")])
    api = cluster.api
    api.create(container_disk("nodisk", f"oci:{folder}"))
    try:
        vmi = api.wait("VirtualMachineInstance", "nodisk",
                       lambda v: v and (ft.condition(v, "Synchronized") or {}).get("status") == "False", 30)
        assert "no disk present" in ft.condition(vmi, "Synchronized")["message"]
    finally:
        api.delete("VirtualMachine", "nodisk")
        api.wait("VirtualMachine", "nodisk", lambda v: v is None, 60)
