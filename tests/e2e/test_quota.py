"""A namespace's quota holds what it says, and lets a VM move when it is full."""
import contextlib
import json
import subprocess

import ferrytest as ft
import pytest
from conftest import kernel_boot, node_of, other


@contextlib.contextmanager
def quota(api, name, **hard):
    api.call("POST", "/api/v1/namespaces/default/resourcequotas",
             {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name},
              "spec": {"hard": {k.replace("__", "/").replace("_", "."): v for k, v in hard.items()}}})
    try:
        yield f"/api/v1/namespaces/default/resourcequotas/{name}"
    finally:
        api.call("DELETE", f"/api/v1/namespaces/default/resourcequotas/{name}")


def used(api, path, what):
    return api.call("GET", path).get("status", {}).get("used", {}).get(what)


def kubectl(cluster, *args):
    return subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig, *args], check=True, capture_output=True,
                          text=True).stdout


def test_a_vm_moves_under_a_full_quota(cluster, make_vm, images):
    api = cluster.api
    with quota(api, "full", pods="1", requests_memory="2Gi") as path:
        address = make_vm("quotavm")
        boot = ft.Guest(address).status()["bootID"]
        ft.poll(lambda: used(api, path, "pods") == "1", 10, "the pod is counted")
        memory = used(api, path, "requests.memory")
        # Another VM has no room, and says so.
        make_vm("quotaless", manifest=ft.vm("quotaless", "64Mi", kernel=kernel_boot(images)), wait=False)
        vmi = api.wait("VirtualMachineInstance", "quotaless", lambda v: v and "exceeded quota: full, requested: pods=1, "
                       "used: pods=1, limited: pods=1" in json.dumps(v.get("status", {})), 30)
        assert ft.condition(vmi, "Synchronized")["reason"] == "FailedCreate", vmi["status"]
        # A move has two pods, and counts once.
        seen = set()
        source = node_of(api, "quotavm")
        obj, _ = ft.move(api, "quotavm")
        seen.add(used(api, path, "pods"))
        assert obj["status"]["phase"] == "Succeeded" and node_of(api, "quotavm") == other(source)
        assert ft.condition(obj, "migrationRejectedByResourceQuota") is None
        ft.poll(lambda: used(api, path, "pods") == "1", 10, "one pod is left")
        assert seen == {"1"} and used(api, path, "requests.memory") == memory
        assert ft.Guest(address).status()["bootID"] == boot
        told = [line.split() for line in kubectl(cluster, "describe", "quota", "full").splitlines()]
        assert ["pods", "1", "1"] in told and ["requests.memory", memory, "2Gi"] in told, told
        assert "pods: 1/1" in kubectl(cluster, "get", "quota", "full")
        # What is given back is taken by who waits.
        api.delete("VirtualMachine", "quotavm")
        api.wait("VirtualMachineInstance", "quotaless", ft.vmi_running, 90)


def test_a_quota_of_vms_counts_objects(cluster, images):
    api = cluster.api
    with quota(api, "vms", count__virtualmachines_kubevirt_io="0"), pytest.raises(ft.ApiError) as e:
        api.create(ft.vm("one-too-many", "64Mi", kernel=kernel_boot(images), run_strategy="Halted"))
    assert e.value.status == 403, e.value
    assert ("exceeded quota: vms, requested: count/virtualmachines.kubevirt.io=1, used: "
            "count/virtualmachines.kubevirt.io=0, limited: count/virtualmachines.kubevirt.io=0") in e.value.message
