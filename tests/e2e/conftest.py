"""One two-node cluster for most tests; each test uses object names of its own and removes them."""
import contextlib
import glob
import os
import resource
import shutil
import subprocess
import sys

import pytest

sys.dont_write_bytecode = True
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests", "lib"))
os.environ.setdefault("FERRY_BIN", os.path.join(TOP, "build/release/src/main"))
os.environ.setdefault("FERRY_TINY", os.path.join(TOP, "build/tiny"))
os.environ.setdefault("FERRY_WORK", os.path.join(TOP, "build/tests"))
import ferrytest as ft  # noqa: E402
import ociimage  # noqa: E402

# As sudo starts programs on Debian: nothing below may count on more.
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

WORK = os.environ["FERRY_WORK"]
TINY = os.environ["FERRY_TINY"]


def new_cluster(name, nodes=2, **kw):
    state = os.path.join(WORK, name)
    c = ft.Cluster(state, nodes, **kw)
    if os.path.isdir(state):
        c.down()
    os.makedirs(WORK, exist_ok=True)
    return c.up()


def start_writing(address):
    """The guest's second disk, which it checks from now on."""
    g = ft.Guest(address)
    assert g.status()["disk"] == "/dev/vdb"
    g.command(f"disk {8 << 20}")
    ft.poll(lambda: g.status()["diskChecks"] > 20, 30, "the guest writes")
    return g


def wait_movable(api, name, status="True"):
    return api.wait("VirtualMachineInstance", name,
                    lambda v: (ft.condition(v, "LiveMigratable") or {}).get("status") == status, 20)


def check_goes_on(g, boot):
    n = g.wait(20)["diskChecks"]
    ft.poll(lambda: g.status()["diskChecks"] > n + 20, 30, "the guest goes on writing")
    s = g.status()
    assert s["bootID"] == boot and s["diskBad"] == 0


def keep_logs(cluster, name):
    to = os.path.join(WORK, "logs", name)
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(f"{cluster.state}/logs", to, dirs_exist_ok=True)


@contextlib.contextmanager
def own_cluster(name, nodes=2, **kw):
    """One beside the session's, in a network of its own; its logs are kept."""
    with ft.own_net():
        c = new_cluster(name, nodes, **kw)
        try:
            yield c
        finally:
            keep_logs(c, name)
            c.down()


def check_moves(name):
    """Every step of a move that the nodes logged is one of the hand-over's tables."""
    tables = os.environ.get("FERRY_MODEL_TABLES")
    if not tables:
        return
    logs = sorted(glob.glob(os.path.join(WORK, "logs", name, "node-*.log*")))
    p = subprocess.run([sys.executable, os.path.join(TOP, "tests", "model", "trace.py"), "--tables", tables, *logs],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert p.returncode == 0, f"a move did what the hand-over's tables do not have:\n{p.stdout}"


@pytest.fixture(scope="session")
def cluster():
    c = new_cluster("e2e")
    yield c
    keep_logs(c, "e2e")
    c.down()
    check_moves("e2e")


@pytest.fixture(scope="session")
def images():
    """A folder of OCI folders: in it the kernel boot, for most."""
    base = ft.IMAGES
    os.makedirs(base, exist_ok=True)
    ociimage.make(f"{base}/kernel", [(f"{TINY}/vmlinuz", "/boot/vmlinuz"), (f"{TINY}/initrd.gz", "/boot/initrd.gz")])
    return base


@pytest.fixture(scope="session")
def disk_images(images):
    """The same folder, with the boot disk as a containerDisk (raw and qcow2)."""
    ociimage.make(f"{images}/disk", [(f"{TINY}/disk.img", "/disk/disk.img")])
    q = f"{images}/disk.qcow2"
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", f"{TINY}/disk.img", q], check=True)
    ociimage.make(f"{images}/qcow2", [(q, "/disk/disk.qcow2")])
    return images


def kernel_boot(images, args=f"{ft.KERNEL_ARGS} tiny.heartbeat=1"):
    return {"kernelArgs": args, "container": {"image": f"oci:{images}/kernel", "kernelPath": "/boot/vmlinuz",
                                              "initrdPath": "/boot/initrd.gz"}}


@contextlib.contextmanager
def running_elsewhere(c, images, name, **more):
    """A VM that answers; not on the first node: the way from here to the VMs leads through it.  Gives its VMI."""
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-1"]}]}]}}}
    c.api.create(ft.vm(name, "128Mi", kernel=kernel_boot(images), affinity=affinity, **more))
    try:
        vmi = c.api.wait("VirtualMachineInstance", name, ft.vmi_running, 60)
        ft.Guest(ft.vmi_address(vmi)).wait(90)
        yield vmi
    finally:
        c.api.delete("VirtualMachine", name)
        c.api.wait("VirtualMachine", name, lambda v: v is None, 90)


@pytest.fixture
def make_vm(cluster, images):
    """make_vm(name, ...) creates a kernel-booted VM; all of them are removed at the end of the test."""
    made = []

    def create(name, memory="128Mi", wait=True, manifest=None, guest=True, **kw):
        made.append(name)
        obj = manifest or ft.vm(name, memory, kernel=kernel_boot(images), **kw)
        cluster.api.create(obj)
        if not wait:
            return None
        vmi = cluster.api.wait("VirtualMachineInstance", name, ft.vmi_running, 60)
        address = ft.vmi_address(vmi)
        if guest:
            ft.Guest(address).wait(90)
        return address
    yield create
    for name in made:
        if cluster.api.find("VirtualMachine", name):
            cluster.api.delete("VirtualMachine", name)
    for name in made:
        cluster.api.wait("VirtualMachine", name, lambda v: v is None, 60)


@contextlib.contextmanager
def migrations(api, **settings):
    """KubeVirt's settings of moves, for a while."""
    def patch(values):
        api.patch("KubeVirt", "kubevirt", {"spec": {"configuration": {"migrations": values}}}, ns="kubevirt")
    patch(settings)
    try:
        yield
    finally:
        patch({k: None for k in settings})


def node_of(api, name):
    return api.get("VirtualMachineInstance", name)["status"]["nodeName"]


def other(node):
    return "node-2" if node == "node-1" else "node-1"


def qemu_pids(cluster, name):
    """{node: [pid of a QEMU whose guest has this name]}"""
    out = {}
    for n in range(1, cluster.nodes + 1):
        node = f"node-{n}"
        for p in ft.descendants(cluster.node_pid1(node)):
            try:
                with open(f"/proc/{p}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
            except OSError:
                continue
            if b"qemu-system" in words[0] and any(w.startswith(b"guest=") and name.encode() in w for w in words):
                out.setdefault(node, []).append(p)
    return out


ARRIVALS = "arrivals.ferry.dev/"


def arrivals(api, node):
    """What a node says of disks that a move would bring it: {uid of a VMI: answer}."""
    have = api.get("Node", node)["metadata"].get("annotations", {})
    return {k[len(ARRIVALS):]: v for k, v in have.items() if k.startswith(ARRIVALS)}


def wait_told(api, node, uid, answer):
    api.wait("Node", node, lambda n: n["metadata"].get("annotations", {}).get(ARRIVALS + uid, "").startswith(answer), 20)


def disks_told_everywhere(cluster, name, node, verdict, message):
    """The same in all three places: explain, a dry run, the condition."""
    api = cluster.api
    p = cluster.ferry("explain", "migration", name, "--to", node, check=False)
    row = next(line.split(None, 3)[1:] for line in p.stdout.splitlines() if line.startswith(node))
    assert row == ([verdict, "LocalDisks", message] if message else [verdict]), p.stdout
    assert p.returncode == (1 if message else 0), p.stdout
    made = api.create(ft.migration(f"{name}-dry", name), dry_run=True)["status"]["ferry"]
    place = next(q for q in made["placement"] if q["node"] == node)
    assert (place["allowed"], place.get("lasting", False)) == (not message, verdict == "No"), made
    assert place.get("message") == message, made
    want = f"{'0' if message else '1'} of 1 other nodes can take the guest" + (f": {node} {message}" if message else "")
    vmi = api.wait("VirtualMachineInstance", name,
                   lambda v: ft.condition(v, "MigrationTargets")["message"] == want, 10)
    assert ft.condition(vmi, "MigrationTargets")["status"] == ("False" if message else "True")
    assert ft.condition(vmi, "LiveMigratable")["status"] == "True"
