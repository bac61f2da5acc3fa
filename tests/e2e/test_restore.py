"""`ferry backup` and `ferry restore` of a cluster whose guests run: what goes on, what ends, and nothing twice."""
import contextlib
import json
import os
import signal
import subprocess
import threading

import ferrytest as ft
from conftest import (check_goes_on, kernel_boot, migrations, node_of, other, own_cluster, qemu_pids,
                      start_writing, wait_movable)

DISKS = [{"name": d, "disk": {"bus": "virtio"}} for d in ("empty", "data")]


def make(c, images, name):
    """A VM that writes to a disk that both nodes reach."""
    c.api.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
                  "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "shared",
                           "resources": {"requests": {"storage": "64Mi"}}}})
    c.api.create(ft.vm(name, "128Mi", kernel=kernel_boot(images), disks=DISKS,
                       volumes=[{"name": "empty", "emptyDisk": {"capacity": "8Mi"}},
                                {"name": "data", "persistentVolumeClaim": {"claimName": name}}]))
    return wait_running(c, name)


def wait_running(c, name):
    vmi = c.api.wait("VirtualMachineInstance", name, lambda v: v is not None and ft.vmi_running(v), 90)
    ft.Guest(ft.vmi_address(vmi)).wait(90)
    return vmi


@contextlib.contextmanager
def api_server_stopped(c):
    """As the guide says it: the supervisor stands still, so that nothing starts the server again."""
    with open(f"{c.state}/pids/apiserver") as f:
        supervisor = int(f.read().split()[0])
    server = c.pid("apiserver")
    os.kill(supervisor, signal.SIGSTOP)
    try:
        os.kill(server, signal.SIGTERM)
        ft.poll(lambda: is_over(server), 20, "the API server ends")
        yield
    finally:
        os.kill(supervisor, signal.SIGCONT)

    def answers():
        try:
            return c.api.list("Node")
        except OSError:
            return None
    ft.poll(answers, 20, "the API server answers again")


def is_over(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def restore(c, file, state=None):
    return subprocess.run([f"{c.bin}/ferry", "restore", file, "--state", state or c.state], text=True,
                          capture_output=True, timeout=60)


class Twice:
    """Looks at all QEMUs all the time: of no name two whose guests may run (a move's target waits)."""

    def __init__(self, c, names):
        self.c, self.names, self.seen, self.end = c, names, [], threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.end.wait(0.05):
            for name in self.names:
                pids = qemu_pids(self.c, name)
                if sum(len(p) for p in pids.values()) > 1:
                    self.seen.append((name, pids))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.end.set()
        self.thread.join()


def told_to_list_again(c, rv):
    """What a watch gets that was at this revision before."""
    status, body, _ = c.api.raw("GET", c.api.path("VirtualMachineInstance") +
                                f"?watch=true&timeoutSeconds=5&resourceVersion={rv}")
    said = json.loads(body.decode().splitlines()[0])
    return status == 410 or (said["type"] == "ERROR" and said["object"]["code"] == 410)


def one_qemu(c, name, node):
    pids = qemu_pids(c, name)
    return list(pids) == [node] and len(pids[node]) == 1


def test_a_restore_under_running_guests(images, tmp_path):
    """What ran before the backup and stayed goes on; what moved, was made or was deleted since then is as it was at
    the backup: the guests of the other life end, and run strategies start what is missing, once."""
    names = ["stays", "moves", "late", "deleted"]
    with own_cluster("restore") as c:
        before = {name: make(c, images, name) for name in ("stays", "moves", "deleted")}
        g = start_writing(ft.vmi_address(before["stays"]))
        boot = g.status()["bootID"]
        moved_boot = ft.Guest(ft.vmi_address(before["moves"])).status()["bootID"]
        wait_movable(c.api, "moves")
        file = str(tmp_path / "backup.db")
        r = c.ferry("backup", file)
        assert "format 2; whole (SHA-256 " in r.stdout and os.listdir(tmp_path) == ["backup.db"]
        # another life begins
        obj, _ = ft.move(c.api, "moves", timeout=60)
        assert obj["status"]["phase"] == "Succeeded"
        source = before["moves"]["status"]["nodeName"]
        assert node_of(c.api, "moves") == other(source)
        make(c, images, "late")
        c.api.delete("VirtualMachine", "deleted")
        c.api.wait("VirtualMachineInstance", "deleted", lambda v: v is None, 60)
        rv = c.api.call("GET", c.api.path("VirtualMachineInstance"))["metadata"]["resourceVersion"]
        r = restore(c, file)
        assert r.returncode == 1 and "stop ferry-apiserver first" in r.stderr, r
        uid = c.api.get("VirtualMachineInstance", "stays")["metadata"]["uid"]
        # and is undone
        with Twice(c, names) as twice:
            with api_server_stopped(c):
                r = restore(c, file)
                assert r.returncode == 0 and "the old store is kept as" in r.stdout, r.stderr
            assert told_to_list_again(c, rv)
            assert c.api.find("VirtualMachine", "late") is None
            ft.poll(lambda: not qemu_pids(c, "late"), 60, "the guest of an object that is not there any more ends")
            again = {}
            for name in ("moves", "deleted"):
                old = before[name]["metadata"]["uid"]
                vmi = c.api.wait("VirtualMachineInstance", name, lambda v, old=old: v is not None and
                                 v["metadata"]["uid"] != old and ft.vmi_running(v), 120)
                again[name] = ft.Guest(ft.vmi_address(vmi)).wait(90)
                assert one_qemu(c, name, vmi["status"]["nodeName"])
        assert twice.seen == []
        assert again["moves"]["bootID"] != moved_boot
        vmi = c.api.get("VirtualMachineInstance", "stays")
        assert vmi["metadata"]["uid"] == uid and vmi["status"]["nodeName"] == before["stays"]["status"]["nodeName"]
        check_goes_on(g, boot)
        # and all of it can be managed
        obj, _ = ft.move(c.api, "stays", timeout=60)
        assert obj["status"]["phase"] == "Succeeded"
        check_goes_on(g, boot)


def test_a_backup_from_the_middle_of_a_move(images, tmp_path):
    """The move has ended since then: the guest runs on where it went, and once the agents are restarted, as the guide
    says, the VMI names that node and the move is over."""
    with own_cluster("restore-mid") as c:
        vmi = make(c, images, "midway")
        wait_movable(c.api, "midway")
        g = start_writing(ft.vmi_address(vmi))
        boot, source = g.status()["bootID"], vmi["status"]["nodeName"]
        with migrations(c.api, bandwidthPerMigration="4Mi"):
            c.api.create(ft.migration("mid", "midway"))
            c.api.wait("VirtualMachineInstanceMigration", "mid", lambda m: ft.phase(m) == "Running", 60)
            c.ferry("backup", str(tmp_path / "mid.db"))
            assert node_of(c.api, "midway") == source
            m = c.api.wait("VirtualMachineInstanceMigration", "mid",
                           lambda m: ft.phase(m) in ("Succeeded", "Failed"), 120)
            assert ft.phase(m) == "Succeeded"
        with Twice(c, ["midway"]) as twice:
            with api_server_stopped(c):
                r = restore(c, str(tmp_path / "mid.db"))
                assert r.returncode == 0, r.stderr
            for pid in (c.pid("node-1"), c.pid("node-2"), c.pid("controller")):
                os.kill(pid, signal.SIGTERM)
            c.api.wait("VirtualMachineInstance", "midway", lambda v: v is not None and
                       v["status"].get("nodeName") == other(source), 60)
            c.api.wait("VirtualMachineInstanceMigration", "mid", lambda m: ft.phase(m) == "Succeeded", 60)
            check_goes_on(g, boot)
            assert one_qemu(c, "midway", other(source))
        assert twice.seen == []


def test_an_interrupted_backup_leaves_nothing(cluster, tmp_path):
    """Ctrl-C, a full disk, a folder that is not there: no file of any name, and the next one works."""
    p = subprocess.Popen([f"{cluster.bin}/ferry", "backup", str(tmp_path / "a.db"), "--kubeconfig", cluster.kubeconfig],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ft.poll(lambda: p.poll() is not None or os.listdir(tmp_path), 20, "it has begun")
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=20)
    if p.returncode:  # it may have been through already
        assert p.returncode in (130, -signal.SIGINT) and "nothing was left behind" in err, (p.returncode, err)
        assert os.listdir(tmp_path) == []
    small = tmp_path / "small"
    small.mkdir()
    full = subprocess.run(["unshare", "-m", "sh", "-c", f"mount -t tmpfs -o size=64k tmpfs {small} && "
                           f"{cluster.bin}/ferry backup {small}/b.db --kubeconfig {cluster.kubeconfig}; echo $?; "
                           f"ls -A {small}"], capture_output=True, text=True, timeout=60)
    assert full.stdout.split() == ["1"] and "No space left" in full.stderr, full
    small.rmdir()
    r = cluster.ferry("backup", "/no/such/folder/x.db", check=False)
    assert r.returncode == 1 and "/no/such/folder" in r.stderr
    r = cluster.ferry("backup", str(tmp_path), check=False)
    assert r.returncode == 1 and "is not a file" in r.stderr
    r = cluster.ferry("backup", str(tmp_path / "c.db"))
    assert os.stat(tmp_path / "c.db").st_mode & 0o777 == 0o600, r
    assert not os.path.exists(f"{cluster.state}/control/store.db.backup")
    left = [f for f in os.listdir(tmp_path) if f not in ("a.db", "c.db")]
    assert left == [], left
