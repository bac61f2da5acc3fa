"""The same guest moved by QEMU driven by hand over QMP: the baseline that Ferry is measured against.

Two network namespaces stand for the nodes, joined by a cable and a VXLAN segment as a person would set
them up; QEMU gets a tap, moves with the same TLS as under Ferry (its order of ciphers included: QEMU's own would
take a slower one) and else with QEMU's defaults, and announces itself.  Needs root.
"""
import json
import os
import secrets
import shutil
import socket
import subprocess
import time

MAC = "52:54:00:fe:00:10"
ADDRESS = "10.9.0.10"


def run(*args, check=True):
    return subprocess.run(args, check=check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


def cipher_order():
    """AES first where the processor computes it, as Ferry's launcher asks for."""
    with open("/proc/cpuinfo") as f:
        flags = next((line.split() for line in f if line.startswith("flags")), [])
    fast = {"aes", "pclmulqdq"} <= set(flags)
    return {"priority": "NORMAL:-CHACHA20-POLY1305:+CHACHA20-POLY1305"} if fast else {}


class Qmp:
    def __init__(self, path):
        end = time.monotonic() + 10
        while True:
            self.s = socket.socket(socket.AF_UNIX)
            try:
                self.s.connect(path)
                break
            except OSError:
                self.s.close()
                if time.monotonic() > end:
                    raise
                time.sleep(0.002)
        self.f = self.s.makefile("rw")
        self.events = []
        json.loads(self.f.readline())
        self("qmp_capabilities")

    def __call__(self, command, **args):
        self.f.write(json.dumps({"execute": command, "arguments": args}) + "\n")
        self.f.flush()
        while True:
            m = json.loads(self.f.readline())
            if "event" in m:
                self.events.append(m)
            elif "error" in m:
                raise RuntimeError(f"{command}: {m['error']['desc']}")
            else:
                return m["return"]

    def wait_event(self, test, timeout=60):
        self.s.settimeout(timeout)
        for e in self.events:
            if test(e):
                return e
        while True:
            m = json.loads(self.f.readline())
            if "event" in m:
                self.events.append(m)
                if test(m):
                    return m

    def time_of(self, name):
        for e in self.events:
            if e["event"] == name:
                return e["timestamp"]["seconds"] + e["timestamp"]["microseconds"] / 1e6
        return None


class HandNodes:
    """Namespaces fbh-a and fbh-b, and a third, fbh-c, for the clients."""

    def __init__(self, work, prefix="fbh"):
        self.prefix = prefix
        self.work = work
        os.makedirs(work, exist_ok=True)

    def ns(self, n):
        return f"{self.prefix}-{n}"

    def up(self):
        self.down()
        sw = self.ns("s")
        run("ip", "netns", "add", sw)
        run("ip", "-n", sw, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", sw, "link", "set", "br0", "up")
        for i, n in enumerate("abc", 1):
            ns = self.ns(n)
            run("ip", "netns", "add", ns)
            run("ip", "-n", ns, "link", "set", "lo", "up")
            run("ip", "-n", sw, "link", "add", f"p{n}", "type", "veth", "peer", "name", "eth0", "netns", ns)
            run("ip", "-n", sw, "link", "set", f"p{n}", "master", "br0", "up")
            run("ip", "-n", ns, "addr", "add", f"10.1.0.{i}/24", "dev", "eth0")
            run("ip", "-n", ns, "link", "set", "eth0", "up")
            run("ip", "-n", ns, "link", "add", "br0", "address", f"02:00:00:00:0{i}:01", "type", "bridge")
            run("ip", "-n", ns, "link", "set", "br0", "mtu", "1450", "up")
            run("ip", "-n", ns, "link", "add", "vx0", "type", "vxlan", "id", "7", "dstport", "4789", "local",
                f"10.1.0.{i}", "dev", "eth0")
            run("ip", "-n", ns, "link", "set", "vx0", "mtu", "1450", "master", "br0", "up")
            run("ip", "-n", ns, "addr", "add", f"10.9.0.{i}/24", "dev", "br0")
        for i, n in enumerate("abc", 1):
            for j in (1, 2, 3):
                if i != j:
                    run("bridge", "-n", self.ns(n), "fdb", "append", "00:00:00:00:00:00", "dev", "vx0", "dst",
                        f"10.1.0.{j}")
        return self

    def down(self):
        for n in "abcs":
            subprocess.run(["ip", "netns", "del", self.ns(n)], stderr=subprocess.DEVNULL)


class HandVm:
    def __init__(self, nodes, memory_mib, disk=None, kernel=None, initrd=None, append="", name="vm", address=ADDRESS,
                 mac=MAC, tls=True):
        self.nodes, self.memory, self.disk, self.name = nodes, memory_mib, disk, name
        self.kernel, self.initrd, self.append = kernel, initrd, append
        self.address, self.mac, self.tls = address, mac, tls
        self.at = "a"
        self.procs, self.qmps = {}, {}
        self.psk = os.path.join(nodes.work, f"psk-{name}")
        os.makedirs(self.psk, exist_ok=True)
        with open(os.path.join(self.psk, "keys.psk"), "w") as f:
            f.write(f"mover:{secrets.token_hex(32)}\n")

    def start(self, n, incoming=False):
        sock = os.path.join(self.nodes.work, f"{self.name}-{n}.sock")
        if os.path.exists(sock):
            os.unlink(sock)
        ns, tap = self.nodes.ns(n), f"tap{self.name[-4:]}"
        run("ip", "-n", ns, "link", "del", tap, check=False)
        run("ip", "-n", ns, "tuntap", "add", tap, "mode", "tap", "vnet_hdr")
        run("ip", "-n", ns, "link", "set", tap, "mtu", "1450", "master", "br0", "up")
        args = ["ip", "netns", "exec", ns, "qemu-system-x86_64", "-accel", "tcg", "-machine", "q35", "-cpu", "max",
                "-m", str(self.memory), "-nodefaults", "-no-user-config", "-display", "none",
                "-serial", f"file:{self.nodes.work}/{self.name}-{n}.log", "-qmp", f"unix:{sock},server=on,wait=off",
                "-netdev", f"tap,id=n0,ifname={tap},script=no,downscript=no",
                "-device", f"virtio-net-pci,netdev=n0,mac={self.mac},romfile="]
        if self.disk:
            args += ["-blockdev", f"driver=raw,node-name=d0,cache.direct=on,file.driver=file,file.filename={self.disk}",
                     "-device", "virtio-blk-pci,drive=d0,share-rw=on"]
        if self.kernel:
            args += ["-kernel", self.kernel, "-initrd", self.initrd, "-append", self.append]
        if incoming:
            args += ["-incoming", "defer"]
        t = time.time()
        self.procs[n] = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                         stderr=open(f"{self.nodes.work}/{self.name}-{n}.err", "w"))
        self.qmps[n] = Qmp(sock)
        return time.time() - t

    def move(self, options=None, wait_running=True, port=4444, post_copy_after=None):
        """Returns the figures of one move, the start of the target included.  post_copy_after: go over to post-copy
        when this many passes have ended."""
        src, dst = self.at, "b" if self.at == "a" else "a"
        ip = {"a": "10.1.0.1", "b": "10.1.0.2"}[dst]
        t0 = time.time()
        self.start(dst, incoming=True)
        t1 = time.time()
        q, p = self.qmps[src], self.qmps[dst]
        q.events.clear()
        for side in (q, p):
            side("migrate-set-capabilities", capabilities=[
                {"capability": "events", "state": True}, {"capability": "return-path", "state": True},
                *({"capability": c, "state": post_copy_after is not None} for c in ("postcopy-ram", "postcopy-preempt"))])
        params = dict(options or {})
        if self.tls:
            creds = {"qom-type": "tls-creds-psk", "id": "t", "dir": self.psk, **cipher_order()}
            p("object-add", endpoint="server", **creds)
            q("object-add", endpoint="client", username="mover", **creds)
            p("migrate-set-parameters", **{"tls-creds": "t"})
            params.update({"tls-creds": "t", "tls-hostname": ""})
        params.setdefault("max-bandwidth", 0)
        q("migrate-set-parameters", **params)
        p("migrate-incoming", uri=f"tcp:{ip}:{port}")
        q("migrate", uri=f"tcp:{ip}:{port}")
        if post_copy_after is not None:
            q.wait_event(lambda e: e["event"] == "MIGRATION_PASS" and e["data"]["pass"] > post_copy_after)
            q("migrate-start-postcopy")
        end = q.wait_event(lambda e: e["event"] == "MIGRATION" and e["data"]["status"] in ("completed", "failed"))
        if end["data"]["status"] != "completed":
            raise RuntimeError(f"the move by hand failed: {q('query-migrate')}")
        if wait_running:
            p.wait_event(lambda e: e["event"] == "RESUME", 10)
        t2 = time.time()
        info = q("query-migrate")
        stop, resume = q.time_of("STOP"), p.time_of("RESUME")
        if self.tls:
            p("migrate-set-parameters", **{"tls-creds": ""})
            p("object-del", id="t")
        with __import__("contextlib").suppress(Exception):
            q("quit")
        self.procs[src].wait(10)
        self.at = dst
        return {"total": t2 - t0, "targetStart": t1 - t0, "pauseMs": (resume - stop) * 1000 if resume else None,
                "downtimeMs": info.get("downtime"), "bytes": info["ram"]["transferred"],
                "passes": info["ram"]["dirty-sync-count"], "mbps": info["ram"]["mbps"],
                "qemuTotalMs": info["total-time"]}

    def stop(self):
        for n, p in self.procs.items():
            if p.poll() is None:
                p.kill()
                p.wait()
        shutil.rmtree(self.psk, ignore_errors=True)
