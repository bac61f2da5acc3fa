"""A full Debian: its image comes from a registry, cloud-init makes a user, and it moves."""
import glob
import os
import shutil
import subprocess
import time

import ferrytest as ft
import ociimage
import pytest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORK = os.environ["FERRY_WORK"]
REGISTRY = f"{ft.UNDERLAY}.1:5000"


@pytest.fixture(scope="module")
def disk():
    out = os.path.join(TOP, "build/debian")
    subprocess.run([os.path.join(TOP, "guests/debian/build"), out], check=True)
    return os.path.join(out, "disk.qcow2")


@pytest.fixture(scope="module")
def registry_program():
    """Debian's docker-registry, unpacked below build/: installing it would start a service."""
    found = shutil.which("docker-registry")
    if found:
        return found
    to = os.path.join(TOP, "build/registry")
    path = os.path.join(to, "root/usr/bin/docker-registry")
    if not os.path.exists(path):
        os.makedirs(to, exist_ok=True)
        subprocess.run(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", "docker-registry"], cwd=to,
                       check=True)
        subprocess.run(["dpkg", "-x", glob.glob(f"{to}/docker-registry_*.deb")[0], f"{to}/root"], check=True)
    return path


@pytest.fixture
def cluster(disk, registry_program):
    """In a network of its own, once all is downloaded: other clusters run beside it."""
    state = os.path.join(WORK, "debian")
    c = ft.Cluster(state, 2, node_args=f"--insecure-registry {REGISTRY}")
    os.makedirs(WORK, exist_ok=True)
    with ft.own_net():
        try:
            if os.path.isdir(state):
                c.down()
            yield c.up()
            shutil.rmtree(os.path.join(WORK, "logs/debian"), ignore_errors=True)
            shutil.copytree(f"{c.state}/logs", os.path.join(WORK, "logs/debian"))
        finally:
            c.down()


@pytest.fixture
def registry(cluster, disk, registry_program):
    store = os.path.join(WORK, "registry")
    shutil.rmtree(store, ignore_errors=True)
    os.makedirs(store)
    conf = os.path.join(store, "config.yml")
    with open(conf, "w") as f:
        f.write(f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {store}/data}}}}\n"
                f"http: {{addr: '{REGISTRY}'}}\n")
    p = subprocess.Popen([registry_program, "serve", conf], stdout=subprocess.DEVNULL,
                         stderr=open(f"{store}/log", "w"))
    try:
        ociimage.make(f"{store}/oci", [(disk, "/disk/debian.qcow2")])
        ft.poll(lambda: subprocess.run(["curl", "-sf", f"http://{REGISTRY}/v2/"], stdout=subprocess.DEVNULL).returncode == 0,
                20, "the registry answers")
        subprocess.run(["skopeo", "copy", "-q", "--dest-tls-verify=false", f"oci:{store}/oci",
                        f"docker://{REGISTRY}/guests/debian:test"], check=True, timeout=300)
        yield f"{REGISTRY}/guests/debian:test"
    finally:
        p.kill()
        p.wait()
        shutil.rmtree(store, ignore_errors=True)


def ssh(key, address, command, timeout=30):
    return subprocess.run(["ssh", "-i", key, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o",
                           "ConnectTimeout=5", "-o", "LogLevel=ERROR", f"ferry@{address}", command], timeout=timeout,
                          capture_output=True, text=True, stdin=subprocess.DEVNULL)


def test_debian_from_a_registry_with_cloud_init(cluster, registry, tmp_path):
    api = cluster.api
    key = str(tmp_path / "key")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    with open(key + ".pub") as f:
        public = f.read().strip()
    user_data = ("#cloud-config\nusers:\n- name: ferry\n  shell: /bin/bash\n  sudo: ALL=(ALL) NOPASSWD:ALL\n"
                 f"  ssh_authorized_keys:\n  - {public}\n")
    api.create(ft.vm("debian", "1Gi", disks=[{"name": "root", "bootOrder": 1, "disk": {"bus": "virtio"}},
                                             {"name": "seed", "disk": {"bus": "virtio"}}],
                     volumes=[{"name": "root", "containerDisk": {"image": registry}},
                              {"name": "seed", "cloudInitNoCloud": {"userData": user_data}}]))
    vmi = api.wait("VirtualMachineInstance", "debian", ft.vmi_running, 300)
    address = ft.vmi_address(vmi)
    ft.poll(lambda: ssh(key, address, "true", 15).returncode == 0, 900, "ssh into the guest works", 3)
    assert ssh(key, address, "hostname").stdout.strip() == "debian"
    boot = ssh(key, address, "cat /proc/sys/kernel/random/boot_id").stdout
    # a session that is open during the move stays open
    session = subprocess.Popen(["ssh", "-i", key, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
                                "-o", "LogLevel=ERROR", f"ferry@{address}", "while read x; do echo got $x; done"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        session.stdin.write("one\n")
        session.stdin.flush()
        assert session.stdout.readline() == "got one\n"
        obj, _ = ft.move(api, "debian", timeout=240)
        assert obj["status"]["phase"] == "Succeeded", obj["status"]
        session.stdin.write("two\n")
        session.stdin.flush()
        assert session.stdout.readline() == "got two\n"
    finally:
        session.kill()
        session.wait()
    time.sleep(1)
    assert ssh(key, address, "cat /proc/sys/kernel/random/boot_id").stdout == boot
    bad = ssh(key, address, "sudo dmesg --level=emerg,alert,crit,err | tail -5").stdout
    assert "corrupt" not in bad.lower() and "panic" not in bad.lower(), bad
