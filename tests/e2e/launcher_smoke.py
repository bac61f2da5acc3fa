#!/usr/bin/env python3
"""Two launchers in two network namespaces, one guest that moves between them over TLS.

usage: launcher_smoke.py --launcher BIN --kernel vmlinuz --initrd initrd.gz [--moves N] [--mem MiB]
                         [--disk] [--load] [--raw N] [--keep-logs DIR]

Needs root, QEMU, and the guest `tiny` (guests/tiny/build).  With --disk the guest has two disks, one shared
and one that moves; with --load it rewrites memory (and the disk that moves) and checks every page and block
all the time.  Checks: the jail (uid, namespaces, no extra descriptors), the
guest's uninterrupted clock, pause and unpause, console, adoption after kill -9 of the launcher, moves with
the permission step, cancelling, and that nothing is left.  --raw N moves the same guest N times by hand
over QMP for comparison.
"""

import argparse
import json
import os
import re
import secrets
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import ferrytest as ft  # noqa: E402

P = "lnch%d-" % (os.getpid() % 100000)  # prefix of every namespace and link made here
TUN = dict(TUNSETIFF=0x400454CA, IFF_TAP=2, IFF_NO_PI=0x1000, IFF_VNET_HDR=0x4000)


def sh(cmd, check=True):
    return subprocess.run(
        cmd, shell=True, check=check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ).stdout


class CallError(Exception):
    def __init__(self, e):
        super().__init__("%s: %s" % (e["rc"], e["message"]))
        self.rc = e["rc"]


class Ipc:
    """A client of docs/internals/ipc.md."""

    def __init__(self, path, timeout=10):
        end = time.time() + timeout
        while True:
            try:
                self.s = socket.socket(socket.AF_UNIX)
                self.s.connect(path)
                break
            except OSError:
                if time.time() > end:
                    raise
                time.sleep(0.005)
        self.id, self.events, self.replies, self.cond = 0, [], {}, threading.Condition()
        self.closed = False
        threading.Thread(target=self.reader, daemon=True).start()
        self.hello = self.call("hello", name="smoke", versions={"min": 1, "max": 1})

    def reader(self):
        buf, fds = b"", []
        while True:
            try:
                data, got, _, _ = socket.recv_fds(self.s, 65536, 16)
            except OSError:
                data, got = b"", []
            if not data:
                break
            buf += data
            fds += got
            while len(buf) >= 4:
                n = struct.unpack(">I", buf[:4])[0]
                if len(buf) < 4 + n:
                    break
                m, buf = json.loads(buf[4 : 4 + n]), buf[4 + n :]
                k = m.get("fds", 0)
                m["_fds"], fds = fds[:k], fds[k:]
                m["_at"] = time.time()
                with self.cond:
                    if "event" in m:
                        self.events.append(m)
                    else:
                        self.replies[m["id"]] = m
                    self.cond.notify_all()
        with self.cond:
            self.closed = True
            self.cond.notify_all()

    def send(self, method, fds=(), **params):
        self.id += 1
        m = {"id": self.id, "method": method, "params": params}
        if fds:
            m["fds"] = len(fds)
        b = json.dumps(m).encode()
        socket.send_fds(self.s, [struct.pack(">I", len(b)) + b], list(fds))
        return self.id

    def wait(self, i, timeout=40):
        with self.cond:
            if not self.cond.wait_for(lambda: i in self.replies or self.closed, timeout):
                raise TimeoutError("no reply")
            if i not in self.replies:
                raise EOFError
            m = self.replies.pop(i)
        if "error" in m:
            raise CallError(m["error"])
        m["result"]["_fds"] = m["_fds"]
        return m["result"]

    def call(self, method, fds=(), **params):
        return self.wait(self.send(method, fds, **params))

    def event(self, name, pred=lambda d: True, timeout=40):
        def find():
            for m in self.events:
                if m["event"] == name and pred(m["data"]):
                    return m

        with self.cond:
            if not self.cond.wait_for(lambda: find() or self.closed, timeout):
                raise TimeoutError(
                    "no event %s; have %s"
                    % (name, [(m["event"], m["data"].get("state"), m["data"].get("phase")) for m in self.events])
                )
            m = find()
            if not m:
                raise EOFError
            return m

    def forget(self):
        with self.cond:
            self.events = []


def open_tap(ns, name):
    import ctypes, fcntl

    libc, out = ctypes.CDLL(None, use_errno=True), []

    def work():
        f = os.open("/run/netns/" + ns, os.O_RDONLY)
        assert libc.setns(f, 0x40000000) == 0
        os.close(f)
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(
            fd,
            TUN["TUNSETIFF"],
            struct.pack("16sH14x", name.encode(), TUN["IFF_TAP"] | TUN["IFF_NO_PI"] | TUN["IFF_VNET_HDR"]),
        )
        out.append(fd)

    t = threading.Thread(target=work)
    t.start()
    t.join()
    return out[0]


class Node:
    def __init__(self, a, i):
        self.a, self.i, self.ns, self.ip = a, i, "%s%d" % (P, i), "10.77.0.%d" % (i + 1)
        self.n = 0

    def links(self):
        sh(f"ip netns add {self.ns}; ip -n {self.ns} link set lo up")

    def fresh(self):
        """A new VM folder with a running launcher."""
        self.n += 1
        self.dir = os.path.join(self.a.work, "%s-%d" % (self.ns, self.n))
        os.mkdir(self.dir, 0o755)
        self.start_launcher()

    def start_launcher(self):
        self.p = subprocess.Popen(
            [self.a.launcher, "--dir", self.dir, "--kvm-cache", self.a.work + "/kvm.json"],
            env=dict(os.environ, FERRY_LOG=os.environ.get("FERRY_LOG", "info")),
            stderr=open(self.a.work + "/launcher-%s.log" % self.ns, "a"),
            start_new_session=True,
        )
        self.c = Ipc(self.dir + "/launcher.sock")

    def start(self, mode):
        self.fresh()
        s = dict(self.a.spec)
        fds = [
            os.open("/run/netns/" + self.ns, os.O_RDONLY),
            os.open(self.a.kernel, os.O_RDONLY),
            os.open(self.a.initrd, os.O_RDONLY),
            open_tap(self.ns, "tap0"),
        ]
        names = ["netns", "kernel", "initrd", "tap:default"]
        if self.a.disk:
            top = "%s/top-%s-%d.qcow2" % (self.a.work, self.ns, self.n)
            sh(f"qemu-img create -q -f qcow2 {top} 64M")
            shared = self.a.work + "/shared.raw"
            fds += [os.open(top, os.O_RDWR), os.open(shared, os.O_RDWR)]
            names += ["overlay:0", "shared:0"]
            self.top = top
        t = time.time()
        r = self.c.call("start", fds, spec=s, mode=mode, names=names)
        self.start_s = time.time() - t
        for f in fds:
            os.close(f)
        self.pid = r["pid"]
        return r

    def serial(self):
        try:
            return open(self.dir + "/serial.log", errors="replace").read()
        except OSError:
            return ""

    def stop(self):
        if self.c.call("query")["state"] not in ("none", "gone"):
            self.c.call("kill")
            self.c.event("state", lambda d: d["state"] == "gone")
        self.c.call("exit")
        self.p.wait(5)


def check(cond, text):
    print(("ok   " if cond else "FAIL ") + text, flush=True)
    if not cond:
        Smoke.failed += 1


class Smoke:
    failed = 0

    def __init__(self, a):
        self.a = a
        a.spec = {
            "name": "default/tiny",
            "vmiUid": str(uuid.uuid4()),
            "machine": "pc-q35-10.0",
            "cpuModel": "max",
            "accel": a.accel,
            "memoryBytes": a.mem << 20,
            "smbios": {"uuid": str(uuid.uuid4())},
            "kernel": {
                "kernelFd": "kernel",
                "initrdFd": "initrd",
                "args": "console=ttyS0 quiet tiny.heartbeat=1 tiny.ip=10.9.0.10/24,10.9.0.1",
            },
            "nics": [{"name": "default", "mac": "52:54:00:00:00:10", "fd": "tap:default"}],
            "serialConsole": True,
            "serialLog": True,
            "rng": True,
            "uid": 20001,
            "gid": 20001,
            "netnsFd": "netns",
        }
        if a.disk:
            a.spec["disks"] = [
                {"name": "shared", "images": [{"fd": "shared:0"}], "cache": "none"},
                {
                    "name": "overlay",
                    "cache": "writeback",
                    "moves": True,
                    "images": [{"fd": "overlay:0", "format": "qcow2"}],
                },
            ]
        self.n = [Node(a, 0), Node(a, 1)]

    def setup(self):
        self.cleanup()
        for n in self.n:
            n.links()
        sh(f"ip link add {P}m0 type veth peer name {P}m1")
        for i, n in enumerate(self.n):
            sh(
                f"ip link set {P}m{i} netns {n.ns}; ip -n {n.ns} addr add {n.ip}/24 dev {P}m{i}; ip -n {n.ns} link set {P}m{i} up"
            )
            sh(
                f"ip -n {n.ns} link add br0 type bridge; ip -n {n.ns} link set br0 up; ip -n {n.ns} addr add 10.9.0.{i + 1}/24 dev br0"
            )
            sh(f"ip -n {n.ns} tuntap add tap0 mode tap vnet_hdr; ip -n {n.ns} link set tap0 master br0 up")
        if self.a.disk:
            sh(f"truncate -s 64M {self.a.work}/shared.raw")

    def cleanup(self):
        for n in self.n:
            sh(f"ip netns del {n.ns}", check=False)

    def jail(self, node):
        st = open("/proc/%d/status" % node.pid).read()
        ids = re.search(r"^Uid:\s+(.*)$", st, re.M).group(1).split()
        check(ids == ["20001"] * 4, "QEMU has its own uid")
        check(
            int(re.search(r"CapEff:\s+(\w+)", st).group(1), 16) == 0
            and int(re.search(r"CapBnd:\s+(\w+)", st).group(1), 16) == 0,
            "no capabilities, none in the bounding set",
        )
        check("NoNewPrivs:\t1" in st and "Seccomp:\t2" in st, "no_new_privs and seccomp")
        for k in ("mnt", "pid", "net", "ipc", "uts"):
            check(
                os.readlink("/proc/%d/ns/%s" % (node.pid, k)) != os.readlink("/proc/self/ns/" + k),
                "own %s namespace" % k,
            )
        root = os.listdir("/proc/%d/root" % node.pid)
        check(sorted(root) == ["boot", "creds", "dev", "lib", "lib64", "usr"], "view holds %s" % sorted(root))
        env = open("/proc/%d/environ" % node.pid).read().strip("\0").split("\0")
        check(sorted(e.split("=")[0] for e in env) == ["LANG", "PATH"], "clean environment")
        q = node.c.call("query")
        st = open("/proc/%d/status" % q["reaperPid"]).read()
        check(int(re.search(r"CapEff:\s+(\w+)", st).group(1), 16) == 0, "the reaper has no capabilities")
        fds = {
            os.readlink("/proc/%d/fd/%s" % (q["reaperPid"], f)) for f in os.listdir("/proc/%d/fd" % q["reaperPid"])
        }
        check(len(fds) == 2, "the reaper holds %s" % sorted(fds))
        held = [os.readlink("/proc/%d/fd/%s" % (node.p.pid, f)) for f in os.listdir("/proc/%d/fd" % node.p.pid)]
        check(
            not [f for f in held if "qcow2" in f or "shared.raw" in f or "tun" in f or f.startswith("net:")],
            "the launcher keeps none of QEMU's descriptors",
        )
        st = open("/proc/%d/status" % node.p.pid).read()
        check(
            int(re.search(r"CapEff:\s+(\w+)", st).group(1), 16) == (1 << 5 | 1 << 0 | 1 << 8),
            "the launcher dropped what it does not need",
        )

    def wait_guest(self, node, timeout=90):
        end = time.time() + timeout
        while "tick" not in node.serial():
            if time.time() > end:
                raise TimeoutError("the guest does not come up: " + node.serial()[-300:])
            time.sleep(0.05)

    def basics(self):
        n = self.n[0]
        r = n.start("run")
        print(
            "start: %.0f ms, accel %s (%s), QEMU %s"
            % (n.start_s * 1e3, r["accel"], r["accelReason"], r["qemuVersion"])
        )
        check(r["state"] == "running", "runs")
        self.jail(n)
        self.wait_guest(n)
        self.load(n)
        n.c.call("pause")
        check(n.c.call("query")["state"] == "paused", "pauses")
        n.c.call("unpause")
        n.c.event("state", lambda d: d["state"] == "running" and d["reason"] == "Unpaused")
        fd = n.c.call("console")["_fds"][0]
        s = socket.socket(fileno=fd)
        s.settimeout(5)
        seen = b""
        while b"tick" not in seen and len(seen) < 10000:
            seen += s.recv(1000)
        check(b"tick" in seen, "console shows what the guest prints")
        s.close()
        for how in (signal.SIGKILL, signal.SIGTERM):
            n.p.send_signal(how)
            n.p.wait()
            check(os.path.exists("/proc/%d" % n.pid), "QEMU survives its launcher's signal %d" % how)
            if how == signal.SIGTERM:  # as if the launcher had died before it recorded the pids
                j = json.load(open(n.dir + "/vm.json"))
                j["reaper"] = j["qemu"] = {"pid": 0, "start": 0}
                json.dump(j, open(n.dir + "/vm.json", "w"))
            n.start_launcher()
            (
                n.c.event("state", lambda d: d["state"] == "running")
                if n.c.call("query")["state"] == "starting"
                else None
            )
            q = n.c.call("query")
            st = open("/proc/%d/status" % n.p.pid).read()
            check(
                int(re.search(r"CapEff:\s+(\w+)", st).group(1), 16) == (1 << 5 | 1 << 0 | 1 << 8),
                "the new launcher dropped what it does not need",
            )
            check(
                q["state"] == "running" and q["pid"] == n.pid,
                "a new launcher adopts it (%s, %s)" % (q["state"], q["reason"]),
            )

    def move(self, src, dst, uid=None, fail=None):
        uid = uid or str(uuid.uuid4())
        src.c.forget()
        tls = None if self.a.no_tls else {"user": "ferry", "key": secrets.token_hex(32)}
        t0 = time.time()
        dst.start("incoming")
        t1 = time.time()
        opts = {"downtimeLimitMs": self.a.downtime}
        if self.a.multifd:
            opts["multifdChannels"] = self.a.multifd
        if self.a.initial:
            opts["initialDowntimeMs"] = self.a.initial
        extra = {"tls": tls} if tls else {}
        p = dst.c.call("prepareIncoming", migrationUid=uid, address=dst.ip, options=opts, **extra)
        t2 = time.time()
        src.c.call(
            "startOutgoing",
            migrationUid=uid,
            address=dst.ip,
            port=p["port"],
            nbdPort=p["nbdPort"],
            options=opts,
            **extra,
        )
        if fail == "memory":
            src.c.call("cancelOutgoing", migrationUid=uid)
            return uid
        ev = src.c.event("preSwitchover", lambda d: d["migrationUid"] == uid)
        t3 = time.time()
        if fail == "switch":
            src.c.call("cancelOutgoing", migrationUid=uid)
            return uid
        if fail == "kill-source-launcher":
            return uid
        src.c.call("continueOutgoing", migrationUid=uid, epoch=7)
        done = src.c.event(
            "migration", lambda d: d["migrationUid"] == uid and d["phase"] in ("completed", "failed", "cancelled")
        )["data"]
        t4 = time.time()
        if done["phase"] != "completed":
            raise RuntimeError(done)
        if fail == "resume-source":
            return uid
        assert done["released"] and src.c.call("query")["state"] == "postmigrate"
        r = dst.c.call("resumeIncoming", migrationUid=uid, epoch=7)
        t5 = time.time()
        return {
            "uid": uid,
            "pause": (r["resumeAt"] - done["stopAt"]) / 1e3,
            "downtime": done.get("downtimeMs"),
            "start": t1 - t0,
            "prepare": t2 - t1,
            "memory": t3 - t2,
            "switch": t4 - t3,
            "resume": t5 - t4,
            "total": t5 - t0,
            "sent": done["stats"]["memory"]["transferred"],
            "passes": done["stats"]["memory"]["passes"],
        }

    def moves(self):
        src, dst = self.n
        out = []
        for i in range(self.a.moves):
            m = self.move(src, dst)
            out.append(m)
            print(
                "move %d %s->%s: total %.0f ms (start %.0f prepare %.0f memory %.0f switch %.1f resume %.1f) pause %.1f ms, QEMU says %s ms, %d MiB in %d passes"
                % (
                    i,
                    src.ns,
                    dst.ns,
                    m["total"] * 1e3,
                    m["start"] * 1e3,
                    m["prepare"] * 1e3,
                    m["memory"] * 1e3,
                    m["switch"] * 1e3,
                    m["resume"] * 1e3,
                    m["pause"],
                    m["downtime"],
                    m["sent"] >> 20,
                    m["passes"],
                ),
                flush=True,
            )
            try:
                src.c.call("resumeSource", migrationUid=m["uid"])
                check(False, "a released source must not resume")
            except CallError as e:
                assert e.rc == "RC_CONFLICT", e
            check(not os.listdir(src.dir + "/creds"), "the source's one-time key is gone") if i == 0 else None
            src.stop()
            src, dst = dst, src
            self.ticks(src)
            check(not os.listdir(src.dir + "/creds"), "the target's one-time key is gone") if i == 0 else None
        self.here = src
        print("guest: %s" % self.integrity(src))
        return out

    def tell(self, node, line):
        """One command to the guest, from its node; the answer."""
        import ctypes

        out = []

        def work():
            f = os.open("/run/netns/" + node.ns, os.O_RDONLY)
            assert ctypes.CDLL(None).setns(f, 0x40000000) == 0
            os.close(f)
            for _ in range(100):
                try:
                    c = socket.create_connection(("10.9.0.10", 7778), 2)
                    c.settimeout(10)
                    c.sendall(line.encode() + b"\n")
                    out.append(json.loads(c.makefile().readline()))
                    return
                except (OSError, ValueError):
                    time.sleep(0.1)

        t = threading.Thread(target=work)
        t.start()
        t.join()
        return out[0]

    def load(self, node):
        self.boot = self.tell(node, "status")["bootID"]
        if self.a.load:
            self.tell(node, "verify 6")
            if self.a.disk:
                self.tell(node, "disk 1048576")

    def integrity(self, node, last={}):
        s = self.tell(node, "status")
        fine = s["bootID"] == self.boot and not (s["memBad"] or s["diskBad"] or ft.kernel_complains(s))
        if self.a.load:
            fine = (
                fine
                and s["memChecks"] > last.get("memChecks", 0)
                and (not self.a.disk or s["diskChecks"] > last.get("diskChecks", 0))
            )
        if not fine:
            check(False, "the guest is whole: %s" % s)
        last.update(s)
        return s

    def ticks(self, node, n=2):
        """The guest goes on there, with its clock uninterrupted and nothing from its kernel."""
        end = time.time() + 20
        while node.serial().count("tick") < n and time.time() < end:
            time.sleep(0.02)
        s = node.serial()
        (
            check(
                s.count("tick") >= n and "up boot" not in s and "panic" not in s, "the guest goes on on %s" % node.ns
            )
            if (s.count("tick") < n or "up boot" in s or "panic" in s)
            else None
        )
        self.integrity(node)

    def failures(self):
        src = self.here
        dst = self.n[1 - src.i]
        for where, phase in (("memory", "cancelled"), ("switch", "cancelled")):
            uid = self.move(src, dst, fail=where)
            d = src.c.event(
                "migration", lambda d: d["migrationUid"] == uid and d["phase"] in ("completed", "failed", "cancelled")
            )["data"]
            check(d["phase"] == phase, "cancelled in %s: %s %s" % (where, d["phase"], d.get("failure")))
            check(src.c.call("query")["state"] == "running", "the source runs on")
            dst.c.call("abortIncoming", migrationUid=uid)
            dst.c.event("state", lambda d: d["state"] == "gone")
            dst.stop()
        uid = self.move(src, dst, fail="kill-source-launcher")
        src.p.kill()
        src.p.wait()
        src.start_launcher()
        end = time.time() + 20
        q = src.c.call("query")
        while (
            q["state"] != "running" or q["migration"]["phase"] not in ("failed", "completed")
        ) and time.time() < end:
            time.sleep(0.01)
            q = src.c.call("query")
        check(
            q["state"] == "running" and q["migration"]["phase"] == "failed",
            "launcher killed at the switch: the new one decides, the source runs (%s)"
            % q["migration"].get("failure"),
        )
        dst.c.call("abortIncoming", migrationUid=uid)
        dst.c.event("state", lambda d: d["state"] == "gone")
        dst.stop()
        # the launcher dies while memory moves: the copy goes on, the new one follows it
        uid = str(uuid.uuid4())
        dst.start("incoming")
        dst.c.call("prepareIncoming", migrationUid=uid, address=dst.ip)
        src.c.call("startOutgoing", migrationUid=uid, address=dst.ip, options={"maxBandwidthBytes": 60 << 20})
        src.c.event("migration", lambda d: d["migrationUid"] == uid and d["phase"] == "memory")
        src.p.kill()
        src.p.wait()
        src.start_launcher()
        src.c.event("preSwitchover", lambda d: d["migrationUid"] == uid)
        src.c.call("continueOutgoing", migrationUid=uid, epoch=3)
        d = src.c.event("migration", lambda d: d["migrationUid"] == uid and d["phase"] == "completed")["data"]
        r = dst.c.call("resumeIncoming", migrationUid=uid)
        check(
            d["released"],
            "launcher killed in memory: the new one follows the move to its end, pause %.1f ms"
            % ((r["resumeAt"] - d["stopAt"]) / 1e3),
        )
        src.stop()
        src, dst = dst, src
        self.here = src
        self.ticks(src)
        # nobody listens
        src.c.forget()
        uid = str(uuid.uuid4())
        i = src.c.send("startOutgoing", migrationUid=uid, address=dst.ip)
        try:
            src.c.wait(i)
        except CallError:
            pass
        d = src.c.event("migration", lambda d: d["migrationUid"] == uid and d["phase"] == "failed")["data"]
        check(
            d["failure"]["reason"] == ("DiskCopyFailed" if self.a.disk else "ConnectFailed"),
            "nobody listens: %s" % d["failure"],
        )
        # a wrong key
        dst.start("incoming")
        uid = str(uuid.uuid4())
        src.c.forget()
        dst.c.call("prepareIncoming", migrationUid=uid, address=dst.ip, tls={"user": "ferry", "key": "00" * 32})
        try:
            src.c.call("startOutgoing", migrationUid=uid, address=dst.ip, tls={"user": "ferry", "key": "11" * 32})
        except CallError as e:
            pass
        d = src.c.event("migration", lambda d: d["migrationUid"] == uid and d["phase"] == "failed")["data"]
        check(src.c.call("query")["state"] == "running", "a wrong key: %s" % d["failure"])
        try:
            dst.c.call("kill")
        except CallError as e:  # its QEMU may have ended itself: nothing usable came in
            check(e.rc == "RC_CONFLICT", "the target's QEMU ended by itself: %s" % e)
        dst.c.event("state", lambda d: d["state"] == "gone")
        dst.stop()
        # target dies at the switch
        uid = self.move(src, dst, fail="kill-source-launcher")
        os.kill(dst.pid, signal.SIGKILL)
        try:
            src.c.call("continueOutgoing", migrationUid=uid, epoch=9)
        except CallError as e:
            check(self.a.disk and e.rc == "RC_CONFLICT", "a disk's copy had failed before: %s" % e)
        d = src.c.event("migration", lambda d: d["migrationUid"] == uid and d["phase"] in ("failed", "completed"))[
            "data"
        ]
        check(d["phase"] == "failed" and not d.get("released"), "target killed at the switch: %s" % d.get("failure"))
        end = time.time() + 5
        while src.c.call("query")["state"] != "running" and time.time() < end:
            time.sleep(0.01)
        check(src.c.call("query")["state"] == "running", "the source runs on")
        dst.stop()
        if self.a.disk:  # the target hangs while memory moves: the guest's writes must not wait for it for ever
            uid = str(uuid.uuid4())
            dst.start("incoming")
            src.c.forget()
            dst.c.call("prepareIncoming", migrationUid=uid, address=dst.ip)
            src.c.call("startOutgoing", migrationUid=uid, address=dst.ip, options={"maxBandwidthBytes": 4 << 20})
            src.c.event("migration", lambda d: d["migrationUid"] == uid and d["phase"] == "memory")
            os.kill(dst.pid, signal.SIGSTOP)
            t = time.time()
            d = src.c.event(
                "migration", lambda d: d["migrationUid"] == uid and d["phase"] in ("failed", "completed"), 60
            )["data"]
            check(
                d["phase"] == "failed" and d["failure"]["reason"] == "TargetClosed",
                "target stopped in memory: %s after %.1f s" % (d.get("failure"), time.time() - t),
            )
            self.integrity(src)
            dst.stop()
        # target stands still (SIGSTOP): the switch's deadline ends in yank
        uid = str(uuid.uuid4())
        dst.start("incoming")
        src.c.forget()
        dst.c.call("prepareIncoming", migrationUid=uid, address=dst.ip)
        src.c.call("startOutgoing", migrationUid=uid, address=dst.ip, options={"switchoverTimeoutMs": 1500})
        src.c.event("preSwitchover", lambda d: d["migrationUid"] == uid)
        os.kill(dst.pid, signal.SIGSTOP)
        t = time.time()
        try:
            src.c.call("continueOutgoing", migrationUid=uid, epoch=9)
        except CallError as e:
            check(self.a.disk and e.rc == "RC_CONFLICT", "the copies could not end: %s" % e)
        d = src.c.event("migration", lambda d: d["migrationUid"] == uid and d["phase"] in ("failed", "completed"))[
            "data"
        ]
        check(
            d["phase"] == "failed" and d["failure"]["reason"] == "SwitchoverTimeout",
            "target stopped at the switch: %s after %.1f s" % (d.get("failure"), time.time() - t),
        )
        end = time.time() + 5
        while src.c.call("query")["state"] != "running" and time.time() < end:
            time.sleep(0.01)
        check(src.c.call("query")["state"] == "running", "the source runs on")
        dst.stop()
        print("guest: %s" % self.integrity(src))

    def variety(self):
        """One of each device, bus and option, started paused: QEMU takes the whole command line."""
        n, w = self.n[0], self.a.work
        n.fresh()
        bios = "/usr/share/seabios/bios-256k.bin"
        for f, size in (("base.raw", "8M"), ("data.raw", "8M"), ("seed.iso", "1M"), ("vars.fd", "64K")):
            sh(f"truncate -s {size} {w}/{f}")
        sh(
            f"qemu-img create -q -f qcow2 -b {w}/base.raw -F raw {w}/top.qcow2; qemu-img create -q -f qcow2 {w}/more.qcow2 8M"
        )
        s = {k: v for k, v in self.a.spec.items() if k not in ("kernel", "disks", "nics")}
        s.update(
            name="team/x,file=/etc/shadow",
            firmware="efi",
            efiCodeFd="code",
            efiVarsFd="vars",
            bootMenu=True,
            balloon=True,
            panicDevice=True,
            biosSerial=True,
            rebootTerminates=True,
            clockOffsetSeconds=3600,
            sockets=2,
            cores=2,
            features=[{"name": "avx"}, {"name": "sse4.2", "on": True}],
            smbios=dict(s["smbios"], manufacturer="A, B & Co", serial="s,uuid=0", chassisAsset="42,type=1"),
            disks=[
                {
                    "name": "root",
                    "images": [{"fd": "root:0", "format": "qcow2"}, {"fd": "root:1"}],
                    "discard": True,
                    "bootOrder": 1,
                    "cache": "writeback",
                    "serial": "root,share-rw=on",
                },
                {
                    "name": "data",
                    "images": [{"fd": "data:0"}],
                    "shareable": True,
                    "errorPolicy": "report",
                    "logicalBlockSize": 512,
                    "physicalBlockSize": 4096,
                },
                {"name": "native", "images": [{"fd": "native:0"}], "io": "native"},
                {
                    "name": "seed",
                    "bus": "sata",
                    "kind": "cdrom",
                    "readOnly": True,
                    "images": [{"fd": "seed:0"}],
                    "cache": "writethrough",
                },
                {
                    "name": "more",
                    "bus": "scsi",
                    "cache": "writethrough",
                    "images": [{"fd": "more:0", "format": "qcow2"}],
                },
            ],
            nics=[{"name": "a", "mac": "0a:58:0a:f4:01:02", "fd": "tap:a", "mtu": 1400}],
        )
        fds = {
            "netns": ("/run/netns/" + n.ns, os.O_RDONLY),
            "code": (bios, os.O_RDONLY),
            "vars": (w + "/vars.fd", os.O_RDWR),
            "root:0": (w + "/top.qcow2", os.O_RDWR),
            "root:1": (w + "/base.raw", os.O_RDONLY),
            "data:0": (w + "/data.raw", os.O_RDWR),
            "native:0": (w + "/more2.raw", os.O_RDWR),
            "seed:0": (w + "/seed.iso", os.O_RDONLY),
            "more:0": (w + "/more.qcow2", os.O_RDWR),
        }
        sh(f"truncate -s 8M {w}/more2.raw")
        open_fds = {k: os.open(*v) for k, v in fds.items()}
        open_fds["tap:a"] = open_tap(n.ns, "tap0")
        r = n.c.call("start", list(open_fds.values()), spec=s, mode="paused", names=list(open_fds))
        for f in open_fds.values():
            os.close(f)
        check(r["state"] == "prelaunch", "one of each device is started paused")
        n.pid = r["pid"]
        cmd = open("/proc/%d/cmdline" % n.pid).read()
        check("guest=team/x,,file=/etc/shadow" in cmd, "a name with a comma stays a name")
        n.c.call("unpause")
        n.c.event("state", lambda d: d["state"] == "running")
        n.c.call("shutdown", graceSeconds=0)
        n.c.event("state", lambda d: d["state"] == "gone")
        n.stop()
        # an image opened the wrong way, and a spec that QEMU refuses
        for names, bad in (
            (["netns", "d"], {"disks": [{"name": "d", "images": [{"fd": "d"}]}]}),
            (["netns"], {"cpuModel": "no-such-model"}),
        ):
            n.fresh()
            spec = dict(
                {k: v for k, v in s.items() if k not in ("disks", "nics", "firmware", "efiCodeFd", "efiVarsFd")},
                **bad,
            )
            fd = [os.open("/run/netns/" + n.ns, os.O_RDONLY)] + (
                [os.open(w + "/data.raw", os.O_RDONLY)] if len(names) > 1 else []
            )
            try:
                n.c.call("start", fd, spec=spec, mode="run", names=names)
                check(False, "a bad start must fail")
            except CallError as e:
                check(True, "refused: %s" % e)
            for f in fd:
                os.close(f)
            n.stop()

    def end(self):
        n = self.here
        n.c.call("shutdown", graceSeconds=2)
        t = time.time()
        d = n.c.event("state", lambda d: d["state"] == "gone")["data"]
        check(
            d["reason"] in ("GraceExpired", "HostShutdown"),
            "shutdown: %s after %.1f s, exit %s" % (d["reason"], time.time() - t, d["exit"]),
        )
        n.c.call("exit")
        n.p.wait(5)
        left = sh(
            "ps -eo pid,args | grep -E 'qemu-system|ferry-reaper' | grep -F '%s' | grep -v grep || true"
            % self.a.spec["smbios"]["uuid"]
        )
        check(left == "", "nothing is left: %r" % left)


def raw(a, smoke):
    """The same guest by hand over QMP, same command line, same TLS, no Ferry in between."""

    def qemu(node, incoming, k):
        d = "%s/raw-%s-%d" % (a.work, node.ns, k)
        os.mkdir(d)
        os.mkdir(d + "/psk")
        open(d + "/psk/keys.psk", "w").write("ferry:" + key + "\n")
        tap = open_tap(node.ns, "tap0")
        c = [
            "ip",
            "netns",
            "exec",
            node.ns,
            "qemu-system-x86_64",
            "-accel",
            a.accel if a.accel != "auto" else "tcg",
            "-machine",
            "pc-q35-10.0,vmport=off",
            "-cpu",
            "max",
            "-m",
            str(a.mem),
            "-nodefaults",
            "-no-user-config",
            "-kernel",
            a.kernel,
            "-initrd",
            a.initrd,
            "-append",
            a.spec["kernel"]["args"],
            "-display",
            "none",
            "-serial",
            "file:%s/serial.log" % d,
            "-qmp",
            "unix:%s/qmp,server=on,wait=off" % d,
            "-netdev",
            "tap,id=n0,fd=%d,vhost=off" % tap,
            "-device",
            "virtio-net-pci-non-transitional,netdev=n0,mac=52:54:00:00:00:10,romfile=",
            "-device",
            "virtio-rng-pci-non-transitional",
        ]
        t = time.time()
        p = subprocess.Popen(c + (["-incoming", "defer"] if incoming else []), pass_fds=[tap])
        os.close(tap)
        q = Qmp(d + "/qmp")
        return p, q, d, time.time() - t

    key = secrets.token_hex(32)
    src, dst = smoke.n
    k = 0
    p, q, d, _ = qemu(src, False, k)
    end = time.time() + 90
    while "tick" not in open(d + "/serial.log", errors="replace").read() and time.time() < end:
        time.sleep(0.05)
    out = []
    for k in range(1, a.raw + 1):
        t0 = time.time()
        p2, q2, d2, start = qemu(dst, True, k)
        caps = [{"capability": c, "state": True} for c in ("events", "return-path")]
        tls = {} if a.no_tls else {"tls-creds": "t"}
        for x, dd, ep in ((q2, d2, "server"), (q, d, "client")):
            if tls:
                try:
                    x.x("object-del", id="t")
                except Exception:
                    pass
                x.x(
                    "object-add",
                    **{
                        "qom-type": "tls-creds-psk",
                        "id": "t",
                        "dir": dd + "/psk",
                        "endpoint": ep,
                        **({"username": "ferry"} if ep == "client" else {}),
                    },
                )
            x.x("migrate-set-capabilities", capabilities=caps)
            x.x(
                "migrate-set-parameters",
                **tls,
                **({"max-bandwidth": 0, "downtime-limit": a.downtime} if ep == "client" else {}),
            )
        q2.x("migrate-incoming", uri="tcp:%s:4444" % dst.ip)
        t2 = time.time()
        q.ev.clear()
        q2.ev.clear()
        q.x("migrate", uri="tcp:%s:4444" % dst.ip)
        stop = q.wait("STOP")
        resume = q2.wait("RESUME")
        t3 = time.time()
        i = q.x("query-migrate")
        while i["status"] not in ("completed", "failed"):
            i = q.x("query-migrate")
        ts = lambda e: e["timestamp"]["seconds"] * 1e3 + e["timestamp"]["microseconds"] / 1e3
        m = {
            "total": t3 - t0,
            "pause": ts(resume) - ts(stop),
            "downtime": i.get("downtime"),
            "start": start,
            "sent": i["ram"]["transferred"],
        }
        print(
            "raw %d: total %.0f ms (start %.0f, memory %.0f) pause %.1f ms, QEMU says %s ms, %d MiB"
            % (k, m["total"] * 1e3, start * 1e3, (t3 - t2) * 1e3, m["pause"], m["downtime"], m["sent"] >> 20),
            flush=True,
        )
        out.append(m)
        q.x("quit")
        p.wait()
        p, q, d, src, dst = p2, q2, d2, dst, src
        time.sleep(1)
    q.x("quit")
    p.wait()
    return out


class Qmp:
    def __init__(self, path):
        while True:
            try:
                self.s = socket.socket(socket.AF_UNIX)
                self.s.connect(path)
                break
            except OSError:
                time.sleep(0.002)
        self.f = self.s.makefile("rw")
        self.ev = []
        self.f.readline()
        self.x("qmp_capabilities")

    def x(self, cmd, **a):
        self.f.write(json.dumps({"execute": cmd, "arguments": a}) + "\n")
        self.f.flush()
        while True:
            r = json.loads(self.f.readline())
            if "event" in r:
                self.ev.append(r)
                continue
            if "error" in r:
                raise Exception(r["error"])
            return r["return"]

    def wait(self, name):
        while True:
            for e in self.ev:
                if e["event"] == name:
                    return e
            self.ev.append(json.loads(self.f.readline()))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--launcher", required=True)
    ap.add_argument("--kernel", required=True)
    ap.add_argument("--initrd", required=True)
    ap.add_argument("--moves", type=int, default=4)
    ap.add_argument("--mem", type=int, default=1024)
    ap.add_argument("--load", action="store_true")
    ap.add_argument("--downtime", type=int, default=300)
    ap.add_argument("--multifd", type=int, default=0)
    ap.add_argument("--initial", type=int, default=0, help="initialDowntimeMs; 0: the launcher's default")
    ap.add_argument("--accel", default="auto")
    ap.add_argument("--raw", type=int, default=0)
    ap.add_argument("--disk", action="store_true")
    ap.add_argument("--no-tls", action="store_true")
    ap.add_argument("--only-moves", action="store_true")
    ap.add_argument("--keep-logs")
    a = ap.parse_args()
    for k in ("launcher", "kernel", "initrd"):
        setattr(a, k, os.path.abspath(getattr(a, k)))
    a.work = tempfile.mkdtemp(prefix="ferry-smoke-", dir="/run")
    os.chmod(a.work, 0o755)
    s = Smoke(a)
    out = rawout = None
    try:
        s.setup()
        s.basics()
        if a.moves:
            out = s.moves()
        else:
            s.here = s.n[0]
        if not a.only_moves:
            s.failures()
        s.end()
        if not a.only_moves:
            s.variety()
        if a.raw:
            rawout = raw(a, s)
    finally:
        for n in s.n:  # whatever is left, by pid
            for f in ("vm.json",):
                for d in [x for x in os.listdir(a.work) if x.startswith(n.ns)]:
                    try:
                        j = json.load(open("%s/%s/%s" % (a.work, d, f)))
                        pid = j["reaper"]["pid"]
                        # (a zombie is pid 1's business)
                        if (
                            pid
                            and os.path.exists("/proc/%d" % pid)
                            and "State:\tZ" not in open("/proc/%d/status" % pid).read()
                        ):
                            os.kill(pid, signal.SIGKILL)
                            check(False, "a reaper was left: " + d)
                    except (OSError, ValueError):
                        pass
            if getattr(n, "p", None) and n.p.poll() is None:
                n.p.kill()
        s.cleanup()
        if a.keep_logs:
            shutil.rmtree(a.keep_logs, ignore_errors=True)
            os.makedirs(a.keep_logs)
            for root, _, files in os.walk(a.work):
                for f in files:
                    if f.endswith((".log", ".json")):
                        shutil.copy(
                            os.path.join(root, f), os.path.join(a.keep_logs, os.path.basename(root) + "-" + f)
                        )
        shutil.rmtree(a.work, ignore_errors=True)
    for name, rows in (("ferry", out), ("raw", rawout)):
        if rows:
            print(
                name,
                " ".join(
                    "%s %.1f" % (k, statistics.median(r[k] for r in rows) * (1e3 if k in ("total", "start") else 1))
                    for k in ("total", "start", "pause", "downtime")
                ),
            )
    print("%d failed" % Smoke.failed)
    sys.exit(1 if Smoke.failed else 0)


main()
