"""What a machine can do to a cluster: no root, no QEMU, taken ports, full disks, a power cut."""
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile

import ferrytest as ft
import pytest
from conftest import WORK, kernel_boot, new_cluster, qemu_pids
from test_storage import claim, container_disk


def ferry(*args, **kw):
    return subprocess.run([f"{ft.BIN}/ferry", *args], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=60, **kw)


@pytest.mark.parametrize("what", ["up", "down"])
def test_without_root_it_says_so(what):
    with tempfile.TemporaryDirectory(dir="/tmp") as tmp:
        os.chmod(tmp, 0o755)
        shutil.copy(f"{ft.BIN}/ferry", tmp)
        r = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", f"{tmp}/ferry", what,
                            "--state", f"{tmp}/state"], text=True, capture_output=True, timeout=20)
        assert r.returncode == 1 and "needs root" in r.stderr, r
        assert not os.path.exists(f"{tmp}/state")


def fake_qemu(folder, version):
    path = folder / "qemu-system-x86_64"
    path.write_text(f"#!/bin/sh\necho 'QEMU emulator version {version}'\n")
    path.chmod(0o755)
    return str(path)


def test_without_qemu_up_refuses_before_it_makes_anything(tmp_path):
    state = os.path.join(WORK, "noqemu")
    with ft.own_net():
        r = ferry("up", "--state", state, "--node-args", "--qemu /nonexistent/qemu-system-x86_64")
        assert r.returncode == 1 and "/nonexistent/qemu-system-x86_64" in r.stderr, r
        assert "install qemu-system-x86, version 10 or newer" in r.stderr
        links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout
        assert len(links.splitlines()) == 1, links
        assert ferry("down", "--state", state, "--purge").returncode == 0
    env = {**os.environ, "PATH": str(tmp_path)}
    r = ferry("doctor", env=env)
    assert r.returncode == 1 and "qemu-system-x86_64 is not installed" in r.stdout, r.stdout


def test_an_old_qemu_is_named(tmp_path):
    qemu = fake_qemu(tmp_path, "7.2.19 (Debian 1:7.2+dfsg-7+deb12u16)")
    r = ferry("doctor", env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert r.returncode == 1 and "7.2.19" in r.stdout and "version 10 or newer is needed" in r.stdout, r.stdout
    state = os.path.join(WORK, "oldqemu")
    with ft.own_net(), socket.socket() as s:  # the port: so that it ends there
        s.bind(("0.0.0.0", 6443))
        s.listen()
        r = ferry("up", "--state", state, "--node-args", f"--qemu {qemu}")
        assert "7.2.19" in r.stderr and "their moves are refused" in r.stderr, r
        assert ferry("down", "--state", state, "--purge").returncode == 0


def test_a_taken_port_is_named_and_the_holder_is_left_alone(cluster):
    state = os.path.join(WORK, "second")
    r = ferry("up", "--state", state)
    assert r.returncode == 1 and "port 6443 of 172.30.77.1 is already taken" in r.stderr, r
    assert {n["metadata"]["name"] for n in cluster.api.list("Node")} == {"node-1", "node-2"}
    assert os.path.exists("/sys/class/net/ferry0") or "ferry0" in subprocess.run(
        ["ip", "-o", "link"], capture_output=True, text=True).stdout
    shutil.rmtree(state)
    r = ferry("up", "--state", cluster.state)
    assert r.returncode == 1 and "already up" in r.stderr, r
    with ft.own_net(), socket.socket() as s:
        s.bind(("0.0.0.0", 6443))
        s.listen()
        r = ferry("up", "--state", state)
        assert r.returncode == 1 and "port 6443 of 172.30.77.1 is already taken" in r.stderr, r
        shutil.rmtree(state)


def test_the_api_server_ends_cleanly_when_its_port_is_taken(tmp_path):
    with ft.own_net(), socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        r = subprocess.run([f"{ft.BIN}/ferry-apiserver", "--state", str(tmp_path), "--listen", f"127.0.0.1:{port}"],
                           text=True, capture_output=True, timeout=20)
        assert r.returncode == 1, r
        assert f"port {port} of 127.0.0.1 is already taken" in r.stderr, r


def test_a_registry_that_is_down_shows_in_status(cluster, make_vm):
    image = "127.0.0.1:5999/nothing/here:1"
    make_vm("noreg", wait=False, manifest=container_disk("noreg", image))
    api = cluster.api
    api.wait("VirtualMachine", "noreg",
             lambda v: v["status"].get("printableStatus") in ("ErrImagePull", "ImagePullBackOff"), 30)
    vmi = api.wait("VirtualMachineInstance", "noreg", lambda v: ft.condition(v, "Synchronized"), 10)
    c = ft.condition(vmi, "Synchronized")
    assert c["status"] == "False" and c["reason"] in ("ErrImagePull", "ImagePullBackOff")
    assert image in c["message"] and "connection refused" in c["message"].lower(), c


class Tmpfs:
    """A small file system at a folder, for the time of a test."""

    def __init__(self, path, size):
        self.path, self.size = path, size

    def __enter__(self):
        os.makedirs(self.path, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size}", "none", self.path], check=True)

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.path], check=True)


def synchronized_false(api, name, word):
    def told(v):
        c = ft.condition(v, "Synchronized")
        return c and c["status"] == "False" and word in c["message"]
    return api.wait("VirtualMachineInstance", name, lambda v: v and told(v), 40)


def test_full_disks_are_told_and_nothing_is_left(disk_images):
    """The shared folder has no room for a claim, a node none for an image; room again, and the VMs run."""
    state = os.path.join(WORK, "full")
    shutil.rmtree(state, ignore_errors=True)
    with ft.own_net(), Tmpfs(f"{state}/shared", "16m"), Tmpfs(f"{state}/nodes/node-1", "48m"):
        c = ft.Cluster(state, 1).up()
        try:
            api = c.api
            api.create(claim("big", "64Mi"))
            api.create(ft.vm("full-claim", "128Mi", kernel=kernel_boot(disk_images), pvc="big"))
            synchronized_false(api, "full-claim", "not enough space, demanded size")
            # only now: unpacked at once, the two images take each other's room
            api.create(container_disk("full-image", f"oci:{disk_images}/disk"))
            synchronized_false(api, "full-image", "No space left on device")
            assert not qemu_pids(c, "full")
            left = [f for _, _, files in os.walk(f"{state}/shared") for f in files]
            assert left == [], "half a disk was left"
            for path in ("shared", "nodes/node-1"):
                subprocess.run(["mount", "-o", "remount,size=512m", f"{state}/{path}"], check=True)
            for name in ("full-claim", "full-image"):
                vmi = api.wait("VirtualMachineInstance", name, ft.vmi_running, 60)
                ft.Guest(ft.vmi_address(vmi)).wait(90)
        finally:
            c.down(purge=False)
    shutil.rmtree(state)


def test_after_a_power_cut_the_vms_run_again_and_nothing_old_is_left(images):
    with ft.own_net():
        c = new_cluster("cut")
        try:
            api = c.api
            api.create(ft.vm("stays", "128Mi", kernel=kernel_boot(images)))
            api.create(ft.vm("halted", "128Mi", kernel=kernel_boot(images), run_strategy="Halted"))
            vmi = api.wait("VirtualMachineInstance", "stays", ft.vmi_running, 60)
            address = ft.vmi_address(vmi)
            first = ft.Guest(address).wait(90)["bootID"]
            old_pods = {p["metadata"]["uid"] for p in api.list("Pod")}
            # A machine that loses power ends everything at once: nobody can restart anybody.
            everything = c.everything()
            for p in everything:
                os.kill(p, signal.SIGSTOP)
            for p in everything:
                with contextlib.suppress(ProcessLookupError):  # the first of a pid namespace takes the others along
                    os.kill(p, signal.SIGKILL)
            ft.poll(lambda: not any(ft.comm(p).startswith(("ferry", "qemu")) for p in everything), 10, "all is dead")
            c.up()
            api = c.api
            uid = vmi["metadata"]["uid"]
            vmi = api.wait("VirtualMachineInstance", "stays",
                           lambda v: v and v["metadata"]["uid"] != uid and ft.vmi_running(v), 60)
            assert ft.vmi_address(vmi) == address, "the address belongs to the VM"
            assert ft.Guest(address).wait(90)["bootID"] != first
            assert api.find("VirtualMachineInstance", "halted") is None
            assert len([p for v in qemu_pids(c, "stays").values() for p in v]) == 1
            ft.poll(lambda: len(api.list("Pod")) == 1, 20, "only the new pod is there")
            assert not old_pods & {p["metadata"]["uid"] for p in api.list("Pod")}

            def folders():
                return [d for n in ("node-1", "node-2") for d in os.listdir(f"{c.state}/nodes/{n}/pods")
                        if d in old_pods]
            ft.poll(lambda: not folders(), 20, "no folder of an old pod is left")
        finally:
            c.down()
