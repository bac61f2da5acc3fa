"""A cluster of two nodes with one small VM, what can be done to it, and what must hold of it.

Nothing here knows of the matrix: run.py asks for a moment, a fault and an outcome.
"""
import collections
import contextlib
import datetime
import fcntl
import http.client
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

import ferrytest as ft
import lostnode
import ociimage
from failpoints import Point

NODES = ("node-1", "node-2")
BOX_POINTS = "/run/ferry/state/failpoints"  # in a box; <state>/nodes/<node>/failpoints outside
BOX_PODS = "run/ferry/run/pods"
NAME = "guest"
F_OFD_SETLK = 37
SILENCE = 5  # seconds after which a lost machine may be called lost
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
AWAY = (OSError, http.client.HTTPException, ft.ApiError)  # of an API server that is down or coming back


class Violation(Exception):
    """What must never happen has happened."""


def since(text):
    return time.time() - datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def age(obj):
    return since(obj["metadata"]["creationTimestamp"])


def other(node):
    return NODES[1] if node == NODES[0] else NODES[0]


# ---- who runs ----------------------------------------------------------------------------------

class Monitor(threading.Thread):
    """When one QEMU's processors ran, by its own words: intervals [from, to] in seconds, the last one open.

    It is the client of the second monitor, which the launcher needs only when the first one hangs."""

    def __init__(self, folder, label):
        super().__init__(daemon=True)
        self.label = label
        self.intervals = []
        self.is_running = False
        self.ended = False
        self.dir = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        self.sock = socket.socket(socket.AF_UNIX)
        self.start()

    def run(self):
        try:
            self.sock.settimeout(20)
            self.sock.connect(f"/proc/self/fd/{self.dir}/qmp1.sock")
            f = self.sock.makefile("rb")
            f.readline()
            self.sock.sendall(b'{"execute":"qmp_capabilities"}\n{"execute":"query-status","id":1}\n')
            self.sock.settimeout(None)
            for line in f:
                self.take(json.loads(line))
        except (OSError, ValueError):
            pass
        self.mark(False, time.time())
        self.ended = True
        os.close(self.dir)

    def take(self, word):
        stamp = word.get("timestamp", {})
        at = stamp.get("seconds", 0) + stamp.get("microseconds", 0) / 1e6
        if word.get("event") in ("RESUME", "STOP"):
            self.mark(word["event"] == "RESUME", at)
        elif word.get("id") == 1:
            self.mark(word["return"]["running"], time.time())

    def mark(self, running, at):
        if running and not self.is_running:
            self.intervals.append([at, None])
        elif not running and self.is_running:
            self.intervals[-1][1] = at
        self.is_running = running

    def close(self):
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.join(5)


class Monitors(threading.Thread):
    """One Monitor for each QEMU that there is on either node, from the moment its socket is there."""

    def __init__(self, world):
        super().__init__(daemon=True)
        self.world = world
        self.by_pod = {}
        self.stop = threading.Event()
        self.look()
        self.start()

    def look(self):
        for node in NODES:
            with contextlib.suppress(OSError):
                pods = self.world.pods_dir(node)
                for uid in os.listdir(pods):
                    if uid not in self.by_pod and os.path.exists(f"{pods}/{uid}/qmp1.sock"):
                        with contextlib.suppress(OSError):
                            self.by_pod[uid] = Monitor(f"{pods}/{uid}", f"{node} {uid[:8]}")

    def run(self):
        while not self.stop.wait(0.02):
            self.look()

    def close(self):
        self.stop.set()
        self.join(5)
        for m in self.by_pod.values():
            m.close()

    def running(self):
        """The nodes of those that run now."""
        return [m.label.split()[0] for m in list(self.by_pod.values()) if m.is_running]

    def check(self):
        """At most one of them ran at any time."""
        spans = [(a, b or time.time(), m.label) for m in self.by_pod.values() for a, b in m.intervals]
        spans.sort()
        for (a1, b1, l1), (a2, b2, l2) in zip(spans, spans[1:]):
            if l1 != l2 and a2 < b1:
                raise Violation(f"two copies ran: {l1} until {b1:.6f}, {l2} from {a2:.6f}")


# ---- the world ---------------------------------------------------------------------------------

OPENSSL = """
[ca]
default_ca = d
[d]
dir = {dir}
database = $dir/index
new_certs_dir = $dir
rand_serial = yes
default_md = sha256
policy = p
[p]
organizationName = optional
commonName = supplied
[ext]
subjectAltName = DNS:{node},IP:{ip}
extendedKeyUsage = serverAuth,clientAuth
"""


def make_expired(authority, pki, node):
    with tempfile.TemporaryDirectory() as tmp:
        with open(f"{tmp}/conf", "w") as f:
            f.write(OPENSSL.format(dir=tmp, node=node, ip=f"{ft.UNDERLAY}.{10 + int(node[-1])}"))
        open(f"{tmp}/index", "w").close()

        def openssl(*args):
            p = subprocess.run(["openssl", *args], capture_output=True, text=True)
            if p.returncode:
                raise RuntimeError(f"openssl {args[0]}: {p.stderr}")
        openssl("req", "-new", "-key", f"{pki}/tls.key", "-subj", f"/O=system:nodes/CN=system:node:{node}",
                "-out", f"{tmp}/csr")
        openssl("ca", "-batch", "-notext", "-config", f"{tmp}/conf", "-extensions", "ext", "-cert",
                f"{authority}/ca.crt", "-keyfile", f"{authority}/ca.key", "-startdate", "20200101000000Z",
                "-enddate", "20200102000000Z", "-in", f"{tmp}/csr", "-out", f"{pki}/expired.crt")


def build_clock():
    """clock.c, where every box sees it."""
    out = os.path.join(ft.IMAGES, "clock.so")
    os.makedirs(ft.IMAGES, exist_ok=True)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", out, os.path.join(os.path.dirname(__file__), "clock.c")],
                   check=True)
    return out


@contextlib.contextmanager
def surroundings(**more):
    """Environment variables of what is started meanwhile."""
    before = {k: os.environ.get(k) for k in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for k, v in before.items():
            os.environ.pop(k) if v is None else os.environ.update({k: v})


class World:
    def __init__(self, work, tiny):
        self.state = os.path.join(work, "faults")
        self.tiny = tiny
        self.cluster = ft.Cluster(self.state, len(NODES))
        self.storage = ft.Freezable(f"{self.state}/shared")
        self.api = None
        self.n = 0
        self.watches = 0  # of all daemons, when nothing is wrong
        self.seen_watches = (-1, 0)  # how many there were last, and since when
        self.pictures = {}
        self.read_to = {}

    def up(self):
        self.down()
        self.storage.mount()
        for node in NODES:
            os.makedirs(f"{self.state}/nodes/{node}/failpoints", mode=0o700)
            self.turn_clock(node, 0)
        with surroundings(FERRY_FAILPOINTS=BOX_POINTS, FERRY_TEST_CLOCK=f"{BOX_POINTS}/clock",
                          LD_PRELOAD=build_clock()):
            self.api = self.cluster.up().api
        # Slow enough for a fault to find it at work, and given up before a tester would.
        self.api.patch("KubeVirt", "kubevirt", {"spec": {"configuration": {"migrations": {
            "bandwidthPerMigration": "96Mi", "progressTimeout": 8}}}}, ns="kubevirt")
        os.makedirs(ft.IMAGES, exist_ok=True)
        ociimage.make(f"{ft.IMAGES}/kernel", [(f"{self.tiny}/vmlinuz", "/boot/vmlinuz"),
                                              (f"{self.tiny}/initrd.gz", "/boot/initrd.gz")])
        self.make_vm()
        for _ in NODES:
            self.learn()
            obj, _ = ft.move(self.api, NAME, "warm-up")
            if ft.phase(obj) != "Succeeded":
                raise Violation(f"the move before any fault: {obj['status']}")
            self.forget("warm-up")
        self.settle()
        self.watches = self.count_watches()
        return self

    def down(self):
        self.cut()
        self.storage.thaw()
        if os.path.isdir(self.state):
            self.cluster.down(purge=False)
        self.storage.unmount()
        shutil.rmtree(self.state, ignore_errors=True)

    def make_vm(self):
        if not self.api.find("PersistentVolumeClaim", NAME):
            self.cluster.shared_disk(NAME, f"{self.tiny}/disk.img")
        kernel = {"kernelArgs": f"{ft.KERNEL_ARGS} tiny.heartbeat=1",
                  "container": {"image": f"oci:{ft.IMAGES}/kernel", "kernelPath": "/boot/vmlinuz",
                                "initrdPath": "/boot/initrd.gz"}}
        self.api.create(ft.vm(NAME, "128Mi", pvc=NAME, kernel=kernel))
        self.find_guest()

    def find_guest(self):
        """The guest, once it answers; its workers are set going."""
        vmi = self.wait_for("VirtualMachineInstance", NAME,
                            lambda v: ft.vmi_running(v) and ft.vmi_address(v), 60)
        self.guest = ft.Guest(ft.vmi_address(vmi), timeout=15)
        self.guest.wait(90)
        if not self.guest.status()["diskChecks"]:
            # slowly: every few seconds all of it is looked at, and a lane leaves the processors to the others
            self.guest.command("verify 4 2")
            self.guest.command("disk 524288 0.1")
        return vmi

    # -- a guest that writes faster than its link carries, so that it goes over before its memory

    def outrun(self, on, post_copy=True):
        self.end_outrun()
        if on:
            self.api.create({
                "apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy", "metadata": {"name": NAME},
                "spec": {"allowPostCopy": post_copy, "bandwidthPerMigration": "12Mi",
                         "selectors": {"virtualMachineInstanceSelector": {"app": NAME}}}})
        self.guest.wait(60)  # it may just be booting
        self.guest.command("dirty 32 40" if on else "dirty 0")

    def end_outrun(self):
        with contextlib.suppress(ft.ApiError):
            self.ask(lambda: self.api.delete("MigrationPolicy", NAME))

    # -- asking an API server that may be away

    def ask(self, fn, timeout=40):
        end = time.monotonic() + timeout
        while True:
            try:
                return fn()
            except AWAY as e:
                if time.monotonic() > end or (isinstance(e, ft.ApiError) and e.status < 500):
                    raise
                time.sleep(0.05)

    def find(self, kind, name):
        obj = self.ask(lambda: self.api.find(kind, name))
        if obj is not None:
            obj.setdefault("status", {})
        return obj

    def wait_for(self, kind, name, test, timeout):
        seen = None
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            seen = self.find(kind, name)
            if test(seen):
                return seen
            time.sleep(0.05)
        raise TimeoutError(f"{kind} {name}: not so after {timeout} s: {json.dumps((seen or {}).get('status'))[:1500]}")

    # -- processes

    def supervisor(self, who):
        with open(f"{self.state}/pids/{who}") as f:
            pid = int(f.read().split()[0])
        return self.cluster.node_pid1(who) if who in NODES else pid

    def pids(self, what, node=None):
        """what: apiserver, controller, agent, launcher, qemu; the last three of a node."""
        if what in ("apiserver", "controller"):
            return [self.cluster.pid(what)]
        if what == "agent":
            return [self.cluster.pid(node)]
        comm = {"launcher": "ferry-launcher", "qemu": "qemu-system-x86"}[what]
        return [p for p in ft.descendants(self.cluster.node_pid1(node)) if ft.comm(p) == comm]

    def pods_dir(self, node):
        return f"/proc/{self.cluster.node_pid1(node)}/root/{BOX_PODS}"

    def point(self, node, name):
        return Point(f"{self.state}/nodes/{node}/failpoints", name)

    # -- links: what a node sends is dropped where it enters the machine's bridge

    def cut(self, *rules):
        """Each rule: (node that sends or None for the machine, nft match).  None at all: everything is whole."""
        text = "table netdev ferryfaults\ndelete table netdev ferryfaults\n" \
               "table inet ferryfaults\ndelete table inet ferryfaults\n"
        for i, node in enumerate(NODES, 1):
            drops = "".join(f"  {match} drop\n" for who, match in rules if who == node)
            if drops:
                text += (f"table netdev ferryfaults {{ chain in{i} {{\n  type filter hook ingress device "
                         f'"ferry-n{i}" priority -500;\n{drops} }}\n}}\n')
        drops = "".join(f"  {match} drop\n" for who, match in rules if who is None)
        if drops:
            text += f"table inet ferryfaults {{ chain out {{\n  type filter hook output priority 0;\n{drops} }}\n}}\n"
        p = subprocess.run(["nft", "-f", "-"], input=text, text=True, capture_output=True)
        if p.returncode:
            raise RuntimeError(f"nft: {p.stderr}\n{text}")

    # -- a disk that somebody else holds

    def hold_disk(self):
        """The locks of a QEMU that reads and writes it and lets nobody else write (block/file-posix.c: a byte for each
        right that is used, and one for each that others may not have); it does not ask first whether it may.  Returns what
        lets go."""
        f = os.open(f"{self.state}/shared/{NAME}/disk.img", os.O_RDWR | os.O_CLOEXEC)
        for start, n in ((100, 2), (201, 3)):
            fcntl.fcntl(f, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, start, n, 0))
        return lambda: os.close(f)

    # -- a machine that is lost

    def mind_silence(self, on):
        """How soon a silent node may be called lost.  A fence agent makes it short; this one never proves anything."""
        lostnode.agent(self.cluster, fails=True)
        spec = {"fencing": "Agent", "fenceAgent": {"program": "plug", "silenceSeconds": SILENCE}} if on else \
               {"fencing": None, "fenceAgent": None}
        self.ask(lambda: self.api.patch("FerryConfig", "ferry", {"spec": spec}))

        def are_heard():
            renewed = [self.api.get("Lease", n, ns="kube-node-lease")["spec"]["renewTime"] for n in NODES]
            return all(since(t) < SILENCE / 2 for t in renewed) and not any(map(self.taints, NODES))
        if on:
            ft.poll(are_heard, 30, "all nodes are heard of as often as they now have to be")

    def taints(self, node):
        return self.api.get("Node", node).get("spec", {}).get("taints", [])

    def call_lost(self, node, on):
        """Somebody says that the machine is off, as `kubectl taint` would, or takes it back."""
        def say():
            obj = self.api.get("Node", node)
            taints = [t for t in obj.get("spec", {}).get("taints", []) if t["key"] != OUT_OF_SERVICE]
            if on:
                taints.append({"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"})
            try:
                return self.api.patch("Node", node, {"spec": {"taints": taints}, "metadata": {
                    "resourceVersion": obj["metadata"]["resourceVersion"]}})
            except ft.ApiError as e:
                if e.status != 409:
                    raise
                return None
        ft.poll(say, 20, f"the taint of {node}")

    def lose(self, node):
        """Its power is cut.  Returns what it takes to switch it on again."""
        pid = lostnode.outer(self.cluster, node)
        how = lostnode.argv_of(pid), lostnode.env_of(pid)
        inside = self.cluster.node_pid1(node)
        os.kill(inside, signal.SIGKILL)
        ft.poll(lambda: not os.path.exists(f"/proc/{inside}"), 20, f"nothing runs on {node}")
        # Sockets that still wait for an answer would hold the namespace, and with it the cable, for minutes.
        subprocess.run(["ip", "link", "del", f"ferry-n{node[-1]}"], check=True)
        return how

    def switch_on(self, node, how):
        lostnode.start(self.cluster, node, *how)
        ft.poll(lambda: self.ask(lambda: ft.condition(self.api.get("Node", node), "Ready"))["status"] == "True", 60,
                f"{node} is Ready again")
        self.call_lost(node, False)
        # A machine has the hardware addresses that it had; its box has new ones.
        for where in (["nsenter", "-t", str(self.cluster.node_pid1(other(node))), "-n"], []):
            subprocess.run([*where, "ip", "neigh", "flush", "to", f"{ft.UNDERLAY}.1{node[-1]}"], check=True)
        ft.poll(lambda: not self.ask(lambda: self.taints(node)), 20, f"nothing says any more that {node} is off")
        self.go_by(NODES[0])

    def go_by(self, node):
        """The way to the guests leads by this node, which has to be the gateway: the first that is Ready."""
        routes = json.loads(subprocess.run(["ip", "-j", "route"], capture_output=True, text=True, check=True).stdout)
        for r in routes:
            if r.get("gateway", "").startswith(f"{ft.UNDERLAY}."):
                subprocess.run(["ip", "route", "replace", r["dst"], "via", f"{ft.UNDERLAY}.1{node[-1]}", "dev", r["dev"]],
                               check=True)

    def pods_on(self, node):
        return [p["metadata"]["name"] for p in self.ask(lambda: self.api.list("Pod"))
                if p["spec"].get("nodeName") == node]

    def turn_clock(self, node, seconds):
        """The wall clock of a node's agent and launchers (clock.c)."""
        with open(f"{self.state}/nodes/{node}/failpoints/clock", "r+b" if self.api else "wb") as f:
            f.write(struct.pack("q", seconds))

    # -- certificates

    def pki(self, node):
        return f"{self.state}/nodes/{node}/pki"

    def expire(self, node):
        """The node's certificate becomes one for the same name and key that was over years ago."""
        pki = self.pki(node)
        if not os.path.exists(f"{pki}/expired.crt"):
            make_expired(f"{self.state}/control/pki", pki, node)
        os.replace(f"{pki}/tls.crt", f"{pki}/good.crt")
        shutil.copyfile(f"{pki}/expired.crt", f"{pki}/tls.crt")

    def renew(self, node):
        os.replace(f"{self.pki(node)}/good.crt", f"{self.pki(node)}/tls.crt")

    def ways(self):
        """Where packets go, here and on both nodes: for whoever asks later why nobody answered."""
        out = []
        for node in (None, *NODES):
            for what in ("ip addr", "ip route", "ip neigh", "bridge fdb", "nft list ruleset"):
                with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
                    words, how = what.split(), dict(capture_output=True, text=True, timeout=10)
                    p = self.cluster.in_node(node, *words, **how) if node else subprocess.run(words, **how)
                    out.append(f"== {node or 'here'}: {what}\n{p.stdout}{p.stderr}")
        return "\n".join(out)

    # -- what is left

    def picture(self, node):
        """What there is on a node, without names that change from pod to pod."""
        def plain(text):
            text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UID", text)
            text = re.sub(r"\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b", "MAC", text)
            text = re.sub(r"\b(fv|veth|fp|fm|ve)[0-9a-f]{4,}\b", r"\1X", text)
            return re.sub(r"\b[0-9a-f]{7,}\b", "HEX", text)
        pid1 = self.cluster.node_pid1(node)
        root = f"/proc/{pid1}/root"
        inside = dict(capture_output=True, text=True)
        links = json.loads(self.cluster.in_node(node, "ip", "-j", "link", **inside).stdout or "[]")
        nft = self.cluster.in_node(node, "nft", "-s", "list", "ruleset", **inside).stdout
        with open(f"/proc/{pid1}/mounts") as f:
            # others' file systems, which a box inherits (also below /run), come and go with them
            mounts = [x for x in f if x.split()[1].startswith("/run/ferry/")]

        def count(path):
            with contextlib.suppress(FileNotFoundError):
                return len(os.listdir(path))
            return 0
        return {
            "links": sorted(plain(x["ifname"]) for x in links),
            "nft": sorted(plain(x.strip()) for x in nft.splitlines()),
            "mounts": len(mounts),
            "processes": dict(collections.Counter(ft.comm(p) for p in ft.descendants(pid1) if ft.comm(p))),
            "folders": {d: count(f"{root}/{d}") for d in (BOX_PODS, "run/ferry/run/netns", "run/ferry/state/pods")},
            "keys": sum(count(f"{root}/{BOX_PODS}/{u}/creds") for u in os.listdir(f"{root}/{BOX_PODS}")),
        }

    def learn(self):
        """Remember what a node looks like with the guest, and the other without it."""
        here = self.node()
        for node in NODES:
            def at_rest(node=node):
                p = self.picture(node)
                # frames of the guest are sent on for some seconds after a move, and its way is closed a moment after it
                return None if any("timeout" in x and "fvx0" in x or ". 49152 " in x for x in p["nft"]) else p
            self.pictures[node, node == here] = ft.poll(at_rest, 20, "nothing is sent on any more", 0.2)

    def node(self):
        return self.find("VirtualMachineInstance", NAME)["status"]["nodeName"]

    def differences(self):
        here = self.node()
        out = []
        for node in NODES:
            want, got = self.pictures[node, node == here], self.picture(node)
            for k in want:
                if want[k] == got[k]:
                    continue
                if isinstance(want[k], list):
                    more = collections.Counter(got[k]) - collections.Counter(want[k])
                    less = collections.Counter(want[k]) - collections.Counter(got[k])
                    out.append(f"{node} {k}: more {sorted(more.elements())[:12]}, less {sorted(less.elements())[:12]}")
                else:
                    out.append(f"{node} {k}: {want[k]} became {got[k]}")
        return out

    def leftovers(self):
        """Objects that nothing explains."""
        out = []
        pods = [p for p in self.api.list("Pod") if ft.phase(p) not in ft.FINAL]
        if len(pods) != 1:
            out.append(f"pods: {[(p['metadata']['name'], ft.phase(p)) for p in pods]}")
        names = [o["metadata"]["name"] for o in self.api.list("VirtualMachineInstanceMigration")]
        if names:
            out.append(f"migrations: {names}")
        # The garbage collector takes a record when it is ten seconds old: found by a later run if it does not.
        old = [o["metadata"]["name"] for o in self.api.list("Handover") if age(o) > 20]
        if old:
            out.append(f"hand-over records of migrations that are gone: {old}")
        b = self.api.find("PortBinding", NAME)
        if not b or b["spec"]["nodeName"] != self.node():
            out.append(f"the port leads to {b and b['spec']['nodeName']}")
        vmi = self.api.get("VirtualMachineInstance", NAME)
        if list(vmi["status"].get("activePods", {}).values()) != [self.node()]:
            out.append(f"activePods: {vmi['status'].get('activePods')}")
        return out

    def crashes(self):
        """Processes that ended by a signal that nobody sent; each is told once."""
        out = []
        for name in ("apiserver", "controller", *NODES):
            with open(f"{self.state}/logs/{name}.log", errors="replace") as f:
                f.seek(self.read_to.get(name, 0))
                text = f.read()
                self.read_to[name] = f.tell()
            out += [f"{name}: {x}" for x in text.splitlines()
                    if (m := re.search(r"killed by signal (\d+)|its launcher ended \(status (\d+)\)", x)) and
                    int(m[1] or m[2]) not in (signal.SIGKILL, signal.SIGTERM)]
        return out

    def settle(self, timeout=25):
        """Everything is as if no move had been, or what is not."""
        end = time.monotonic() + timeout
        while True:
            left = self.ask(self.leftovers) or self.differences()
            if not left:
                crashed = self.crashes()
                if crashed:
                    raise Violation("crashed: " + "; ".join(crashed))
                return
            if time.monotonic() > end:
                raise Violation("left behind: " + "; ".join(left))
            time.sleep(0.1)

    def forget(self, name):
        """The migration's record goes, and the pods that are kept as one."""
        with contextlib.suppress(ft.ApiError):
            self.ask(lambda: self.api.delete("VirtualMachineInstanceMigration", name))
        for p in self.ask(lambda: self.api.list("Pod")):
            if ft.phase(p) in ft.FINAL:
                with contextlib.suppress(ft.ApiError):
                    self.ask(lambda: self.api.delete("Pod", p["metadata"]["name"]))
        self.wait_for("VirtualMachineInstanceMigration", name, lambda v: v is None, 30)

    def calm(self):
        """After any fault: everybody is there and works."""
        self.cut()
        self.storage.thaw()
        for who in ("apiserver", "controller", *NODES):
            self.signal_all([self.supervisor(who), *ft.descendants(self.supervisor(who))], signal.SIGCONT)
        self.seen_watches = (-1, 0)
        ft.poll(self.is_up, 40, "all daemons are back")

    def is_up(self):
        try:
            for who in ("apiserver", "controller", *NODES):
                self.cluster.pid(who)
            nodes = self.api.list("Node")
            if not self.watches_are_back():
                return False
        except (*AWAY, ProcessLookupError, ValueError):
            return False
        return all(n["metadata"]["labels"].get("kubevirt.io/schedulable") == "true" and
                   (ft.condition(n, "Ready") or {}).get("status") == "True" for n in nodes)

    def watches_are_back(self):
        """Whoever was cut off looks again within three seconds, and until then acts on what was.  All are back when
        there are as many as at the beginning, or when none has come for longer than that."""
        n, now = self.count_watches(), time.monotonic()
        if n != self.seen_watches[0]:
            self.seen_watches = (n, now)
        if now - self.seen_watches[1] > 4:
            self.watches = min(self.watches, n)  # one of its own was counted at the beginning
        return n >= self.watches

    def count_watches(self):
        m = re.search(rb"^apiserver_registered_watchers (\S+)$", self.api.raw("GET", "/metrics")[1], re.M)
        return int(float(m[1])) if m else 0

    @staticmethod
    def signal_all(pids, signo):
        for p in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(p, signo)
