"""Wrong input gets a clear answer with a path, all of it at once, and nothing is kept of it."""
import copy
import json

import ferrytest as ft
import pytest
from conftest import kernel_boot, node_of, qemu_pids, wait_movable

GOOD = ft.vm("bad", "128Mi", disks=[{"name": "d", "disk": {"bus": "virtio"}}],
             volumes=[{"name": "d", "emptyDisk": {"capacity": "16Mi"}}])


def changed(path, value):
    obj = copy.deepcopy(GOOD)
    at = obj
    *head, last = path
    for p in head:
        at = at[p]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return obj


T = ["spec", "template", "spec"]
D = T + ["domain"]
CASES = [
    ("unknown field", changed(["spec", "template", "spec", "domian"], {}), 400, "spec.template.spec.domian"),
    ("unsupported field", changed(D + ["devices", "tpm"], {}), 422, "spec.template.spec.domain.devices.tpm"),
    ("wrong type", changed(D + ["cpu", "cores"], "two"), (400, 422), "spec.template.spec.domain.cpu.cores"),
    ("bad name", changed(["metadata", "name"], "Bad_Name"), 422, "metadata.name"),
    ("milli memory", changed(D + ["memory", "guest"], "1m"), 422, "spec.template.spec.domain.memory.guest"),
    ("negative memory", changed(D + ["memory", "guest"], "-5Mi"), 422, "spec.template.spec.domain.memory.guest"),
    ("no such unit", changed(D + ["memory", "guest"], "10Gx"), (400, 422), "spec.template.spec.domain.memory.guest"),
    ("duplicate disk", changed(D + ["devices", "disks"], [{"name": "d", "disk": {}}, {"name": "d", "disk": {}}]), 422,
     "must not have the same Name"),
    ("disk without volume", changed(T + ["volumes"], []), 422, "disks[0].Name 'd' not found"),
    ("two sources", changed(T + ["volumes", 0, "containerDisk"], {"image": "x"}), 422, "exactly one source type set"),
    ("no strategy", changed(["spec", "runStrategy"], None), 422, "RunStrategy must be specified"),
    ("bad strategy", changed(["spec", "runStrategy"], "Sometimes"), 422, "Sometimes"),
    ("injected option", changed(D + ["devices", "disks", 0, "serial"], "x,file=/etc/shadow"), 422, "serial"),
    ("bad mac", changed(D + ["devices", "interfaces", 0, "macAddress"], "zz"), 422, "malformed MAC address"),
    ("bad image path", changed(T + ["volumes", 0], {"name": "d", "containerDisk": {"image": "x", "path": "/../etc"}}), 422,
     "must be an absolute path to a file without relative components"),
    ("efi", changed(D + ["firmware"], {"bootloader": {"efi": {}}}), 422, "spec.template.spec.domain.firmware.bootloader.efi"),
    ("macvtap", changed(D + ["devices", "interfaces", 0], {"name": "default", "macvtap": {}}), 422,
     "spec.template.spec.domain.devices.interfaces[0].macvtap"),
    ("storage move", changed(["spec", "updateVolumesStrategy"], "Migration"), 422, "spec.updateVolumesStrategy"),
    ("instance type", changed(["spec", "instancetype"], {"name": "small"}), 422, "spec.instancetype"),
    ("rate limit", changed(D + ["devices", "interfaces", 0, "bandwidth"], {}), 400, "interfaces[0].bandwidth"),
]


@pytest.mark.parametrize("what,obj,code,text", CASES, ids=[c[0] for c in CASES])
def test_refused_with_a_path(cluster, what, obj, code, text):
    path = cluster.api.path("VirtualMachine") + "?fieldValidation=Strict"
    with pytest.raises(ft.ApiError) as e:
        cluster.api.call("POST", path, obj)
    codes = code if isinstance(code, tuple) else (code,)
    assert e.value.status in codes, e.value.body
    assert text in json.dumps(e.value.body), e.value.body
    assert cluster.api.find("VirtualMachine", obj["metadata"]["name"]) is None


@pytest.mark.parametrize("side", [{"sendTo": {"connectURL": "x", "migrationID": "m"}}, {"receive": {"migrationID": "m"}}])
def test_moves_between_clusters_are_refused(cluster, side):
    with pytest.raises(ft.ApiError) as e:
        cluster.api.create(ft.migration("abroad", "bad", **side))
    assert e.value.status == 422 and f"spec.{list(side)[0]}" in e.value.message, e.value
    assert cluster.api.find("VirtualMachineInstanceMigration", "abroad") is None


def test_a_volume_without_a_disk_gets_one(cluster, make_vm, images):
    """KubeVirt's default: a disk of the volume's name on the VMI.  The user's spec stays as it was."""
    obj = ft.vm("nodiskvm", "128Mi", kernel=kernel_boot(images),
                volumes=[{"name": "d", "emptyDisk": {"capacity": "16Mi"}}])
    make_vm("nodiskvm", manifest=obj)
    vmi = cluster.api.get("VirtualMachineInstance", "nodiskvm")
    assert [d["name"] for d in vmi["spec"]["domain"]["devices"]["disks"]] == ["d"]
    vm = cluster.api.get("VirtualMachine", "nodiskvm")
    assert not vm["spec"]["template"]["spec"]["domain"]["devices"].get("disks")


def test_all_errors_come_at_once(cluster):
    obj = changed(D + ["memory", "guest"], "-5Mi")
    obj["spec"]["template"]["spec"]["volumes"] = []
    obj["spec"]["template"]["spec"]["evictionStrategy"] = "Maybe"
    with pytest.raises(ft.ApiError) as e:
        cluster.api.create(obj)
    fields = {c.get("field") for c in e.value.body["details"]["causes"]}
    assert len(fields) >= 3, e.value.body


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b"\xff\xfe", b'{"kind":"VirtualMachine"}', b'{"a":' * 100],
                         ids=["cut", "list", "null", "not utf-8", "no version", "deep"])
def test_malformed_bodies(cluster, body):
    code, data, _ = cluster.api.raw("POST", cluster.api.path("VirtualMachine"), body)
    assert 400 <= code < 500, data
    assert json.loads(data)["kind"] == "Status"


def test_a_huge_body_is_413(cluster):
    code, data, _ = cluster.api.raw("POST", cluster.api.path("ConfigMap"),
                                    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"big"},"data":{"x":"' +
                                    b"a" * (4 << 20) + b'"}}')
    assert code == 413, data[:300]


def test_an_unknown_cpu_model_offers_near_names(cluster):
    obj = changed(D + ["cpu"], {"cores": 1, "model": "Skylake-Cliant"})
    with pytest.raises(ft.ApiError) as e:
        cluster.api.create(obj)
    assert e.value.status == 422 and "Skylake-Client" in e.value.message, e.value.body


def test_a_missing_pvc_shows_in_status(cluster):
    api = cluster.api
    api.create(ft.vm("nopvc", "128Mi", pvc="absent"))
    try:
        api.wait("VirtualMachine", "nopvc", lambda v: ft.printable(v) == "ErrorPvcNotFound", 15)
        c = ft.condition(api.get("VirtualMachineInstance", "nopvc"), "Synchronized")
        assert (c["status"], c["reason"]) == ("False", "FailedPvcNotFound") and "absent" in c["message"]
    finally:
        api.delete("VirtualMachine", "nopvc")
        api.wait("VirtualMachine", "nopvc", lambda v: v is None, 30)


def test_a_missing_image_shows_in_status(cluster):
    api = cluster.api
    api.create(ft.vm("noimg", "128Mi", disks=[{"name": "d", "disk": {"bus": "virtio"}}],
                     volumes=[{"name": "d", "containerDisk": {"image": "oci:/nonexistent/image"}}]))
    try:
        api.wait("VirtualMachine", "noimg",
                 lambda v: ft.printable(v) in ("ErrImagePull", "ImagePullBackOff"), 30)
    finally:
        api.delete("VirtualMachine", "noimg")
        api.wait("VirtualMachine", "noimg", lambda v: v is None, 30)


def test_a_manifest_that_is_no_yaml(cluster, tmp_path):
    f = tmp_path / "bad.yaml"
    f.write_text("a: [1,\nb: }")
    r = cluster.ferry("apply", "-f", str(f), check=False)
    assert r.returncode == 1 and "line" in r.stderr
    f.write_text("a: &a [*a]\n")
    assert cluster.ferry("apply", "-f", str(f), check=False).returncode == 1


def test_a_node_object_deleted_under_a_vm_is_made_again(cluster, make_vm):
    """Its agent registers anew; the guest, its pod and its VMI are what they were, and it can move."""
    api = cluster.api
    address = make_vm("nodeless")
    boot, qemu, node = ft.Guest(address).status()["bootID"], qemu_pids(cluster, "nodeless"), node_of(api, "nodeless")
    uid = api.get("Node", node)["metadata"]["uid"]

    def pods():  # those of other tests may just be going
        return sorted(p["metadata"]["uid"] for p in api.list("Pod", "kubevirt.io=virt-launcher")
                      if p["metadata"]["annotations"].get("kubevirt.io/domain") == "nodeless")
    before = pods()
    api.delete("Node", node)
    api.wait("Node", node, lambda n: n and n["metadata"]["uid"] != uid and
             (ft.condition(n, "Ready") or {}).get("status") == "True", 60)
    # without its node the gateway was another's, and comes back: what is asked from outside just then is reset
    ft.Guest(address).wait(20)
    assert ft.Guest(address).status()["bootID"] == boot and qemu_pids(cluster, "nodeless") == qemu
    assert pods() == before and len(before) == 1
    wait_movable(api, "nodeless")
    obj, _ = ft.move(api, "nodeless")
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    assert ft.Guest(address).status()["bootID"] == boot


def test_a_launcher_pod_stays_its_vms(cluster, make_vm):
    """Nobody but the controllers says which VM a pod belongs to: a quota, an eviction and a move rely on it."""
    api = cluster.api
    make_vm("owned", guest=False)
    pod = next(p for p in api.list("Pod", "kubevirt.io=virt-launcher")
               if p["metadata"]["annotations"].get("kubevirt.io/domain") == "owned")["metadata"]
    for label in ("kubevirt.io/created-by", "kubevirt.io/migrationJobUID"):
        with pytest.raises(ft.ApiError) as e:
            api.patch("Pod", pod["name"], {"metadata": {"labels": {label: "of-another"}}})
        assert e.value.status == 422 and f"the label {label} of a pod is the controllers' to set" in e.value.message
