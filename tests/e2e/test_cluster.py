"""Nodes share nothing but the storage class; up and down leave no trace; kubectl works unchanged."""
import json
import os
import subprocess
import time

import ferrytest as ft
import pytest
from conftest import TOP, WORK, kernel_boot, new_cluster, own_cluster, wait_movable


def mounts(pid):
    out = {}
    with open(f"/proc/{pid}/mountinfo") as f:
        for line in f:
            w = line.split()
            dash = w.index("-")
            out[w[4]] = (w[2], w[3], w[5].split(",")[0], w[dash + 1])
    return out


def test_nodes_share_only_the_storage_class(cluster):
    a, b = (cluster.node_pid1(n) for n in ("node-1", "node-2"))
    for ns in ("net", "mnt", "pid", "uts", "ipc"):
        inodes = {os.readlink(f"/proc/{p}/ns/{ns}") for p in (a, b, "self")}
        assert len(inodes) == 3, f"the {ns} namespace is shared"
    writable = [{(dev, root): at for at, (dev, root, mode, kind) in mounts(p).items()
                 if mode == "rw" and kind not in ("proc", "sysfs", "cgroup", "cgroup2", "devpts", "devtmpfs", "mqueue")}
                for p in (a, b)]
    common = set(writable[0]) & set(writable[1])
    assert {writable[0][k] for k in common} == {"/run/ferry/shared"}, {k: writable[0][k] for k in common}
    # no unix socket of one node can be reached from the other
    for mine, theirs in ((a, b), (b, a)):
        for p in [mine, *ft.descendants(mine)]:
            try:
                with open(f"/proc/{p}/net/unix") as f:
                    paths = {line.split()[7] for line in f.readlines()[1:] if len(line.split()) > 7}
            except FileNotFoundError:  # it has ended in between
                continue
            for path in paths:
                if path.startswith("/run/ferry"):
                    there = f"/proc/{theirs}/root{path}"
                    if os.path.exists(there):
                        assert os.stat(there).st_ino != os.stat(f"/proc/{mine}/root{path}").st_ino or \
                            os.stat(there).st_dev != os.stat(f"/proc/{mine}/root{path}").st_dev
    assert not os.path.exists(f"/proc/{a}/root{cluster.state}/nodes/node-2/pki")


def traces():
    """What a cluster could leave on the machine.  (Named network namespaces and their mounts are not Ferry's, and other
    lanes have folders of their own: both may come and go meanwhile.)"""
    links = sorted(l.split(":")[1].strip().split("@")[0] for l in subprocess.run(
        ["ip", "-o", "link"], capture_output=True, text=True).stdout.splitlines())
    lanes = os.path.dirname(os.path.abspath(WORK)) + "/"
    with open("/proc/self/mountinfo") as f:
        m = sorted(at for at in (l.split()[4] for l in f) if not at.startswith("/run/netns") and
                   (at.startswith(os.path.abspath(WORK)) or not at.startswith(lanes)))
    nft = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True).stdout
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True).stdout
    return {"links": links, "mounts": m, "nft": nft, "routes": routes}


def test_up_and_down_leave_no_trace_twice(images):
    state = os.path.join(WORK, "trace")
    with ft.own_net():
        before = traces()
        for _ in range(2):
            c = new_cluster("trace")
            try:
                c.api.create(ft.vm("t", "128Mi", kernel=kernel_boot(images)))
                c.api.wait("VirtualMachineInstance", "t", ft.vmi_running, 60)
                ours = c.everything()
                assert any(ft.comm(p).startswith("qemu") for p in ours)
            finally:
                c.down()
            assert [p for p in ours if ft.comm(p).startswith(("ferry", "qemu", "dnsmasq"))] == []
            assert traces() == before
            assert not os.path.exists(state)


@pytest.mark.parametrize("what", ["runs", "moves", "cancelled"])
def test_down_waits_for_guests_and_no_longer(images, what):
    """They shut down, also in the middle of a move and right after its cancel, and run again after the next up."""
    with own_cluster("down") as c:
        api = c.api
        api.patch("KubeVirt", "kubevirt", {"spec": {"configuration": {"migrations": {"bandwidthPerMigration": "16Mi"}}}},
                  ns="kubevirt")
        api.create(ft.vm("t", "128Mi", kernel=kernel_boot(images)))
        vmi = api.wait("VirtualMachineInstance", "t", ft.vmi_running, 60)
        guest = ft.Guest(ft.vmi_address(vmi), timeout=15)
        guest.wait(90)
        if what != "runs":
            guest.command("dirty 64 400")
            api.create(ft.migration("m", "t"))
            api.wait("VirtualMachineInstanceMigration", "m", lambda v: ft.phase(v) == "Running", 60)
        if what == "cancelled":
            api.delete("VirtualMachineInstanceMigration", "m")
        t = time.monotonic()
        p = subprocess.run([f"{c.bin}/ferry", "down", "--state", c.state], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True)
        took = time.monotonic() - t
        assert p.returncode == 0 and "warning" not in p.stderr and "shutting down 1 guest" in p.stderr, (took, p)
        assert took < 40, (took, p)
        c.up()
        vmi = c.api.wait("VirtualMachineInstance", "t", lambda v: ft.vmi_running(v) and ft.vmi_address(v), 90)
        assert vmi["metadata"]["uid"] and ft.Guest(ft.vmi_address(vmi), timeout=15).wait(90)["bootID"]


def kubectl(cluster, *args, check=True, input_=None):
    env = {**os.environ, "KUBECONFIG": cluster.kubeconfig, "HOME": WORK}
    r = subprocess.run(["kubectl", *args], env=env, text=True, input=input_, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, timeout=60)
    if check:
        assert r.returncode == 0, f"kubectl {' '.join(args)}: {r.stderr}"
    return r


def test_kubectl_works_unchanged(cluster, make_vm, images, tmp_path):
    if subprocess.run(["which", "kubectl"], capture_output=True).returncode:
        pytest.skip("kubectl is not installed")
    make_vm("kc", wait=False, manifest={"apiVersion": "v1", "kind": "Service", "metadata": {"name": "unused-kc"},
                                        "spec": {"ports": [{"port": 1}], "selector": {"a": "b"}}})
    f = tmp_path / "vm.json"
    f.write_text(json.dumps(ft.vm("kc", "128Mi", kernel=kernel_boot(images))))
    assert "virtualmachine.kubevirt.io/kc created" in kubectl(cluster, "apply", "-f", str(f)).stdout
    assert "virtualmachine.kubevirt.io/kc unchanged" in kubectl(cluster, "apply", "-f", str(f)).stdout
    kubectl(cluster, "wait", "vmi/kc", "--for=condition=Ready", "--timeout=60s")
    out = kubectl(cluster, "get", "vmi", "kc", "-o", "wide").stdout
    head, row = out.splitlines()[:2]
    assert head.split() == ["NAME", "AGE", "PHASE", "IP", "NODENAME", "READY", "LIVE-MIGRATABLE", "PAUSED"]
    assert "Running" in row and "10.244." in row
    assert kubectl(cluster, "get", "vm", "kc", "-o", "jsonpath={.status.printableStatus}").stdout == "Running"
    assert "kind: VirtualMachine" in kubectl(cluster, "get", "vm", "kc", "-o", "yaml").stdout
    assert "Events:" in kubectl(cluster, "describe", "vmi", "kc").stdout
    kubectl(cluster, "label", "vm", "kc", "tier=gold")
    assert "kc" in kubectl(cluster, "get", "vm", "-l", "tier=gold").stdout
    kubectl(cluster, "patch", "vm", "kc", "--type=merge", "-p", '{"metadata":{"annotations":{"a":"b"}}}')
    kubectl(cluster, "patch", "vm", "kc", "--type=json", "-p",
            '[{"op":"test","path":"/metadata/labels/tier","value":"gold"},{"op":"remove","path":"/metadata/labels/tier"}]')
    assert "virtualmachines" in kubectl(cluster, "api-resources", "--api-group=kubevirt.io").stdout
    assert "runStrategy" in kubectl(cluster, "explain", "vm.spec").stdout
    r = kubectl(cluster, "create", "-f", str(f), check=False)
    assert r.returncode == 1 and "AlreadyExists" in r.stderr
    bad = json.loads(f.read_text())
    bad["metadata"]["name"] = "kc-bad"
    bad["spec"]["template"]["spec"]["domain"]["nonsense"] = 1
    r = kubectl(cluster, "apply", "-f", "-", input_=json.dumps(bad), check=False)
    assert r.returncode == 1 and "nonsense" in r.stderr, r.stderr


def test_a_file_stays_what_it_is_whatever_the_vm_does(cluster, make_vm, images, tmp_path):
    """Who keeps manifests in git must not see a difference that nobody made."""
    if subprocess.run(["which", "kubectl"], capture_output=True).returncode:
        pytest.skip("kubectl is not installed")
    make_vm("git", wait=False, manifest={"apiVersion": "v1", "kind": "Service", "metadata": {"name": "unused-git"},
                                         "spec": {"ports": [{"port": 1}], "selector": {"a": "b"}}})
    f = tmp_path / "vm.json"
    f.write_text(json.dumps(ft.vm("git", "128Mi", kernel=kernel_boot(images), run_strategy="Manual")))
    api = cluster.api
    kubectl(cluster, "apply", "--server-side", "-f", str(f))

    def check(what):
        assert kubectl(cluster, "diff", "--server-side", "-f", str(f)).stdout == "", what
        before = api.get("VirtualMachine", "git")
        kubectl(cluster, "apply", "--server-side", "-f", str(f))
        after = api.get("VirtualMachine", "git")
        assert after["metadata"]["generation"] == before["metadata"]["generation"], what
        assert after["spec"] == before["spec"] == json.loads(f.read_text())["spec"], what

    check("made")
    assert api.sub("virtualmachines", "git", "start")[0] == 202
    first = api.wait("VirtualMachineInstance", "git", ft.vmi_running)
    check("started")
    wait_movable(api, "git")
    assert ft.phase(ft.move(api, "git")[0]) == "Succeeded"
    check("moved")
    assert api.sub("virtualmachines", "git", "restart")[0] == 202
    api.wait("VirtualMachineInstance", "git",
             lambda v: v and v["metadata"]["uid"] != first["metadata"]["uid"] and ft.vmi_running(v))
    check("restarted")
    assert api.sub("virtualmachines", "git", "stop")[0] == 202
    api.wait("VirtualMachineInstance", "git", lambda v: v is None)
    check("stopped")
