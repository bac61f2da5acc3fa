"""The hand-over with real QEMU: pause-before-switchover, frames sent on, the guest resumed at the target.

The same order of calls as the agents', driven over QMP.  Needs the tiny guest (FERRY_TINY, or build/tiny).
"""
import contextlib
import json
import os
import socket
import threading
import time

import pytest

from lab import HERE, Lab, ns_path, ns_thread, sh, tcp_ask, udp_ask
import test_handover
from test_handover import Stream

TINY = os.environ.get("FERRY_TINY", os.path.join(HERE, "../../build/tiny"))
MOVES = int(os.environ.get("NETLAB_MOVES", "4"))
QEMU = os.environ.get("QEMU", "qemu-system-x86_64")

# Together 1,000 datagrams a second: what an emulated guest can answer on a busy machine.
test_handover.RATE = int(os.environ.get("NETLAB_RATE", "250"))

pytestmark = pytest.mark.skipif(not os.path.exists(os.path.join(TINY, "vmlinuz")), reason="no tiny guest was built")


class Qmp:
    def __init__(self, path):
        end = time.monotonic() + 10
        while True:
            try:
                self.s = socket.socket(socket.AF_UNIX)
                self.s.connect(path)
                break
            except OSError:
                assert time.monotonic() < end, "QEMU does not listen"
                time.sleep(0.01)
        self.s.settimeout(60)
        self.f = self.s.makefile("rw")
        self.events = []
        json.loads(self.f.readline())
        self("qmp_capabilities")

    def line(self):
        return json.loads(self.f.readline())

    def __call__(self, cmd, **args):
        self.f.write(json.dumps({"execute": cmd, "arguments": args}) + "\n")
        self.f.flush()
        while True:
            r = self.line()
            if "event" in r:
                self.events.append(r)
            elif "error" in r:
                raise RuntimeError(r["error"])
            else:
                return r["return"]

    def wait(self, match):
        while True:
            for i, e in enumerate(self.events):
                if match(e):
                    del self.events[:i + 1]
                    return e
            self.events.append(self.line())


def stamp(e):
    return e["timestamp"]["seconds"] * 1000000 + e["timestamp"]["microseconds"]


class Vm:
    """Guest 10 in QEMU, in one pod after the other."""

    def __init__(self, lab, node, binding, ports):
        self.lab, self.node, self.binding, self.ports, self.k, self.epoch, self.serial = lab, node, binding, ports, 10, 1, 0
        self.name = "v10"
        lab.pod(10, node, binding=binding, ports=ports)
        self.q = self.start([])
        self.first_pid = self.pid

    def start(self, extra):
        self.serial += 1
        sock = f"{self.lab.dir}/q{self.serial}.sock"
        args = (f"{QEMU} -accel tcg -machine q35 -cpu max -m 256 -kernel {TINY}/vmlinuz -initrd {TINY}/initrd.gz -append "
                f"console=ttyS0,quiet -display none -serial file:{self.lab.dir}/serial{self.serial}.log "
                f"-qmp unix:{sock},server=on,wait=off -nodefaults -netdev tap,id=n0,fd=10 "
                f"-device virtio-net-pci,netdev=n0,mac={self.lab.mac(10)},romfile= -object rng-random,id=r0 "
                f"-device virtio-rng-pci,rng=r0").split() + extra
        self.pid = self.lab.cmd(f"exec {self.name} " + " ".join(args))[0]
        return Qmp(sock)

    def stop(self):
        try:
            self.q("quit")
        except (OSError, ValueError, RuntimeError):
            pass
        self.lab.cmd(f"wait {self.pid}")

    def move(self, dst):
        lab, src, old, old_q, old_pid = self.lab, self.node, self.name, self.q, self.pid
        peer = {i: f"172.30.78.{10 + i}" for i in lab.nodes}
        self.epoch += 1
        self.name = f"w{self.epoch}"
        lab.pod(10, dst, silent=True, binding=self.binding, ports=self.ports, name=self.name)
        lab.cmd(f"tgtopen {self.name} {peer[src]}")
        q = self.start(["-S", "-incoming", "defer"])
        caps = [{"capability": c, "state": True} for c in ("events", "pause-before-switchover", "return-path")]
        for x in (q, old_q):
            x("migrate-set-capabilities", capabilities=caps)
        lab.cmd(f"srcopen {old} {peer[dst]}")
        uri = f"unix:{lab.dir}/mig{self.epoch}"
        q("migrate-incoming", uri=uri)
        old_q("migrate", uri=uri)
        stop = stamp(old_q.wait(lambda e: e["event"] == "STOP"))
        old_q.wait(lambda e: e["event"] == "MIGRATION" and e["data"]["status"] == "pre-switchover")
        _, overrun, took, unread = (int(x) for x in lab.cmd(f"srcswitch {old} {stop}"))
        assert overrun == 0
        lab.cmd(f"place n{src} {lab.mac(10)} {peer[dst]} {self.epoch}")
        old_q("migrate-continue", state="pre-switchover")
        if self.binding == "masquerade":
            lab.cmd(f"flows {old} {self.name}")
        end = old_q.wait(lambda e: e["event"] == "MIGRATION" and e["data"]["status"] in ("completed", "failed"))
        assert end["data"]["status"] == "completed"
        lab.cmd(f"tgtactivate {self.name}")
        q.wait(lambda e: e["event"] == "MIGRATION" and e["data"]["status"] == "completed")
        q("cont")
        resume = stamp(q.wait(lambda e: e["event"] == "RESUME"))
        lab.cmd(f"place n{dst} {lab.mac(10)} {peer[dst]} {self.epoch}")
        lab.cmd(f"settle {self.name}")
        lab.cmd(f"srcfinish {old}")
        time.sleep(0.05)  # the other nodes hear of it later
        lab.cmd(f"bind {lab.mac(10)} {lab.address(10)} {peer[dst]} {self.epoch}")
        lab.program_all()
        lab.cmd(f"srcclose {old}")
        old_q("quit")
        lab.cmd(f"wait {old_pid}")
        lab.cmd(f"vmnetdown {old}")
        lab.cmd(f"detach {old}")
        lab.vms.pop(old)
        lab.cmd(f"tgtclose {self.name}")
        self.node, self.q = dst, q
        return (resume - stop) / 1000, took, unread


@pytest.fixture(params=["masquerade", "bridge"])
def vm(request):
    with Lab(3) as lab:
        lab.vm(13, 3)
        lab.cmd("svc default echo 10.96.0.1 udp 7777 30070 0 10.244.1.10:7777")
        for i in (1, 2, 3):
            lab.cmd(f"apply n{i}")
        lab.cmd(f"routes {ns_path(lab.out)} 172.30.78.11")
        v = Vm(lab, 1, request.param, "tcp:7777,udp:7777")
        try:
            end = time.monotonic() + 60
            while udp_ask(lab.nodes[1], "10.244.1.10", 7777, timeout=0.5) != b"x":
                assert time.monotonic() < end, open(f"{lab.dir}/serial1.log").read()[-2000:]
                time.sleep(0.1)
            yield v
        finally:
            v.stop()


class PingPong:
    """A held connection with a request every 2 ms; the longest answer time in ms."""

    def __init__(self, ns, addr):
        self.longest, self.broken, self.stop = 0.0, None, threading.Event()
        self.t = ns_thread(ns_path(ns), self.run, addr)

    def run(self, addr):
        try:
            with socket.create_connection((addr, 7777), 5) as s:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                s.settimeout(20)
                i = 0
                while not self.stop.is_set():
                    b = time.monotonic()
                    s.sendall(b"%08d" % i)
                    got = b""
                    while len(got) < 8:
                        d = s.recv(8 - len(got))
                        if not d:
                            raise OSError("closed")
                        got += d
                    self.longest = max(self.longest, (time.monotonic() - b) * 1000)
                    i += 1
                    time.sleep(0.002)
        except OSError as e:
            self.broken = repr(e)


def test_streams_and_connections_survive_moves(vm):
    lab = vm.lab
    places = {"source node": lab.nodes[1], "target node": lab.nodes[2], "third node": lab.nodes[3], "outside": lab.out}
    # Connections first: a stream's first datagrams can be lost while its way to the guest is still being asked for.
    held = {n: PingPong(c, "10.244.1.10") for n, c in places.items()}
    time.sleep(1)
    streams = {n: Stream(lab, n.replace(" ", "-"), c, "10.244.1.10", 7777) for n, c in places.items()}
    time.sleep(1)
    figures = []
    for i in range(MOVES):
        figures.append(vm.move(3 - vm.node))
        time.sleep(0.7)
    for h in held.values():
        h.stop.set()
        h.t.join(25)
    lost = {n: s.lost() for n, s in streams.items()}
    pauses = [round(p, 1) for p, _, _ in figures]
    print(f"\n{vm.binding}: guest pause ms {pauses}, switch us {[t for _, t, _ in figures]}")
    print("frames in the source's tap at the switch:", [u for _, _, u in figures])
    print("longest exchange of a held connection, ms:", {n: round(h.longest, 1) for n, h in held.items()})
    print("lost datagrams:", {n: x[0] for n, x in lost.items()})
    assert not any(h.broken for h in held.values()), {n: h.broken for n, h in held.items()}
    assert sum(n for n, _ in lost.values()) == 0, lost
    assert tcp_ask(f"fnt-g13", "10.244.1.10", 7777) == b"x"
    assert sh("ping -c1 -W2 10.244.1.10", ns=lab.nodes[3])


def test_a_move_given_up_at_the_last_moment_loses_nothing(vm):
    lab = vm.lab
    places = {"source node": lab.nodes[1], "target node": lab.nodes[2], "third node": lab.nodes[3], "outside": lab.out}
    held = {n: PingPong(c, "10.244.1.10") for n, c in places.items()}  # first: the way to the guest is known then
    time.sleep(0.5)
    streams = {n: Stream(lab, n.replace(" ", "-"), c, "10.244.1.10", 7777) for n, c in places.items()}
    time.sleep(1)
    for i in range(3):
        t = f"t{i}"
        lab.pod(10, 2, silent=True, binding=vm.binding, ports=vm.ports, name=t)
        lab.cmd(f"tgtopen {t} 172.30.78.11")
        old, vm.name = vm.name, t
        q = vm.start(["-S", "-incoming", "defer"])
        target_pid, vm.name = vm.pid, old
        caps = [{"capability": c, "state": True} for c in ("events", "pause-before-switchover", "return-path")]
        for x in (q, vm.q):
            x("migrate-set-capabilities", capabilities=caps)
        lab.cmd(f"srcopen {old} 172.30.78.12")
        uri = f"unix:{lab.dir}/give-up{i}"
        q("migrate-incoming", uri=uri)
        vm.q("migrate", uri=uri)
        stop = stamp(vm.q.wait(lambda e: e["event"] == "STOP"))
        vm.q.wait(lambda e: e["event"] == "MIGRATION" and e["data"]["status"] == "pre-switchover")
        lab.cmd(f"srcswitch {old} {stop}")
        time.sleep(0.02)  # frames go to a target that will never run
        lab.cmd(f"srcabort {old}")
        vm.q("migrate_cancel")
        vm.q.wait(lambda e: e["event"] == "RESUME")
        lab.cmd(f"tgtclose {t}")
        with contextlib.suppress(OSError, ValueError):
            q("quit")  # it may have ended by itself
        lab.cmd(f"wait {target_pid}")
        lab.cmd(f"vmnetdown {t}")
        lab.cmd(f"detach {t}")
        lab.vms.pop(t)
        time.sleep(0.5)
        lab.cmd(f"srcclose {old}")
    vm.pid = vm.first_pid
    for h in held.values():
        h.stop.set()
        h.t.join(25)
    lost = {n: s.lost() for n, s in streams.items()}
    assert not any(h.broken for h in held.values()), {n: h.broken for n, h in held.items()}
    assert sum(n for n, _ in lost.values()) == 0, lost
