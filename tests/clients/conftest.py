"""One two-node cluster for all client programs; each has a namespace and a user of its own.

FERRY_CLIENTS is the folder that prepare.py has filled.
"""
import json
import os
import resource
import shutil
import subprocess
import sys

import pytest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(TOP, "tests", "lib"))
os.environ.setdefault("FERRY_BIN", os.path.join(TOP, "build/release/src/main"))
os.environ.setdefault("FERRY_TINY", os.path.join(TOP, "build/tiny"))
os.environ.setdefault("FERRY_WORK", os.path.join(TOP, "build/tests"))
os.environ.setdefault("FERRY_CLIENTS", os.path.join(TOP, "build/clients"))
import ferrytest as ft  # noqa: E402
import ociimage  # noqa: E402

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
WORK, TINY = os.environ["FERRY_WORK"], os.environ["FERRY_TINY"]


def known_clients():
    """{client: what prepare.py said of it}"""
    path = os.path.join(os.environ["FERRY_CLIENTS"], "clients.json")
    if not os.path.exists(path):
        return {}
    with open(path) as f:
        return json.load(f)


@pytest.fixture(scope="session")
def cluster():
    state = os.path.join(WORK, "clients")
    c = ft.Cluster(state, 2)
    if os.path.isdir(state):
        c.down()
    os.makedirs(WORK, exist_ok=True)
    c.up()
    yield c
    to = os.path.join(WORK, "logs", "clients")
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(f"{c.state}/logs", to)
    c.down()


@pytest.fixture(scope="session")
def images():
    """A folder of OCI folders: in it the kernel boot, and the boot disk as a containerDisk."""
    os.makedirs(ft.IMAGES, exist_ok=True)
    ociimage.make(f"{ft.IMAGES}/kernel", [(f"{TINY}/vmlinuz", "/boot/vmlinuz"), (f"{TINY}/initrd.gz", "/boot/initrd.gz")])
    ociimage.make(f"{ft.IMAGES}/disk", [(f"{TINY}/disk.img", "/disk/disk.img")])
    return ft.IMAGES


def tiny_vm(images, name):
    """A VM of the tiny guest, which tells its heartbeat on the console."""
    return ft.vm(name, "128Mi", kernel={
        "kernelArgs": f"{ft.KERNEL_ARGS} tiny.heartbeat=1",
        "container": {"image": f"oci:{images}/kernel", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd.gz"}})


class User:
    """Somebody who is no administrator, and a namespace that will be his."""

    def __init__(self, cluster, name):
        self.name, self.namespace = name, name
        self.folder = os.path.join(WORK, "users", name)
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        self.kubeconfig = f"{self.folder}/kubeconfig"
        p = subprocess.run([f"{cluster.bin}/ferry", "user", name, "--namespace", name, "--pki", f"{cluster.state}/control/pki"],
                           stdout=subprocess.PIPE, check=True)
        with open(self.kubeconfig, "wb") as f:
            f.write(p.stdout)
