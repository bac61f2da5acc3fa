"""A laboratory for the network: nodes are network namespaces on a switch, guests are namespaces behind a tap.

Everything is named PREFIX-*, and close() (also run at the start) leaves nothing.  Needs root, iproute2, and the
program `netlab` from the build folder (NETLAB, or build/tests/net/netlab).
"""
import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time

PREFIX = os.environ.get("NETLAB_PREFIX", "fnt")
HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(os.environ["FERRY_BIN"], "../..") if "FERRY_BIN" in os.environ else os.path.join(HERE, "../../build")
NETLAB = os.environ.get("NETLAB", os.path.join(BUILD, "tests/net/netlab"))
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000


def sh(cmd, check=True, ns=None):
    """Runs a command line; ns: in that namespace."""
    if ns:
        cmd = f"ip netns exec {ns} {cmd}"
    r = subprocess.run(cmd, shell=True, capture_output=True, text=True)
    if check and r.returncode:
        raise RuntimeError(f"{cmd}: {r.stdout}{r.stderr}")
    return r.stdout


def in_ns(path, fn, *args, **kw):
    """Calls fn in a thread that lives in the namespace; sockets it makes stay there."""
    box = {}

    def body():
        try:
            fd = os.open(path, os.O_RDONLY)
            try:
                if LIBC.setns(fd, CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            finally:
                os.close(fd)
            box["value"] = fn(*args, **kw)
        except BaseException as e:  # handed to the caller
            box["error"] = e

    t = threading.Thread(target=body)
    t.start()
    t.join()
    if "error" in box:
        raise box["error"]
    return box["value"]


def ns_thread(path, fn, *args):
    """The same, running on beside the test."""
    def body():
        fd = os.open(path, os.O_RDONLY)
        LIBC.setns(fd, CLONE_NEWNET)
        os.close(fd)
        fn(*args)

    t = threading.Thread(target=body, daemon=True)
    t.start()
    return t


def ns_path(name):
    return f"/run/netns/{name}"


class LabError(Exception):
    pass


class Lab:
    """Nodes 172.30.78.11, .12, ... on a switch whose own namespace (172.30.78.1) is the world outside."""

    def __init__(self, n_nodes=2, mtu=1500):
        self.clean()
        self.dir = tempfile.mkdtemp(prefix=PREFIX + "-")
        os.chmod(self.dir, 0o755)  # dnsmasq reads its hosts as nobody
        self.p = subprocess.Popen([NETLAB], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.nodes = {}
        self.guests = {}
        self.vms = {}
        self.out = f"{PREFIX}-out"
        sh(f"ip netns add {self.out}; ip -n {self.out} link set lo up")
        sh(f"ip -n {self.out} link add sw0 mtu {mtu} type bridge; ip -n {self.out} link set sw0 up;"
           f"ip -n {self.out} addr add 172.30.78.1/24 dev sw0")
        for i in range(1, n_nodes + 1):
            self.node(i, mtu)
        for i in range(1, n_nodes + 1):
            self.cmd(f"peer 172.30.78.{10 + i} 10.244.0.{9 + i} {1 if i == 1 else 0}")
        for i in range(1, n_nodes + 1):
            self.program(i)

    def node(self, i, mtu):
        ns = f"{PREFIX}-n{i}"
        sh(f"ip netns add {ns}; ip -n {ns} link set lo up;"
           f"ip -n {self.out} link add p{i} mtu {mtu} type veth peer name eth0 netns {ns};"
           f"ip -n {self.out} link set p{i} master sw0 up;"
           f"ip -n {ns} link set eth0 mtu {mtu} up; ip -n {ns} addr add 172.30.78.{10 + i}/24 dev eth0;"
           f"ip -n {ns} route add default via 172.30.78.1")
        self.nodes[i] = ns
        self.up(i)

    def up(self, i):
        self.cmd(f"up n{i} {ns_path(self.nodes[i])} 10.244.0.{9 + i} 172.30.78.{10 + i} {1 if i == 1 else 0} "
                 f"{self.dir}/ns{i}")

    def cmd(self, line):
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()
        answer = self.p.stdout.readline().strip()
        if not answer.startswith("ok"):
            raise LabError(f"{line}: {answer or 'netlab ended'}")
        return answer.split()[1:]

    def program(self, i):
        self.cmd(f"program n{i}")

    def program_all(self):
        for i in self.nodes:
            self.program(i)

    @staticmethod
    def address(k):
        return f"10.244.1.{k}"

    @staticmethod
    def mac(k):
        return f"0a:58:0a:f4:01:{k:02x}"

    def guest(self, k):
        """The guest itself: a namespace whose eth0 is a tap; it outlives its places."""
        ns = f"{PREFIX}-g{k}"
        sh(f"ip netns add {ns}; ip -n {ns} link set lo up")
        self.cmd(f"guest g{k} {ns_path(ns)}")
        sh(f"ip -n {ns} link set eth0 address {self.mac(k)} mtu 1450 up")
        self.guests[k] = ns
        return ns

    def pod(self, k, node, silent=False, binding="masquerade", ports="-", name=None, epoch=1, qemu_uid=0):
        """A pod for guest k; the VM's name in netlab is v<k> or the given one."""
        name = name or f"v{k}"
        path, host_if = self.cmd(f"attach {name} n{node} uid-{name}-n{node} {self.address(k)} {self.mac(k)} "
                                 f"{int(silent)} {qemu_uid}")
        self.cmd(f"vmnet {name} {binding} {ports} {self.dir}/{name}-n{node} {int(silent)} 1")
        self.vms[name] = (node, path, host_if)
        if not silent:
            self.cmd(f"bind {self.mac(k)} {self.address(k)} 172.30.78.{10 + node} {epoch}")
            self.program_all()
        return path

    def vm(self, k, node, binding="masquerade", ports="-"):
        """Guest and pod, addresses set by hand (DHCP has a test of its own)."""
        ns = self.guest(k)
        path = self.pod(k, node, binding=binding, ports=ports)
        if binding == "masquerade":
            sh(f"ip -n {ns} addr add 10.0.2.2/24 dev eth0; ip -n {ns} route add default via 10.0.2.1")
        else:
            sh(f"ip -n {ns} addr add {self.address(k)}/16 dev eth0; ip -n {ns} route add default via 10.244.0.1")
        self.cmd(f"pump g{k} v{k}")
        return ns, path

    def close(self):
        if self.p:
            for name in list(self.vms):
                with contextlib.suppress(LabError):
                    self.cmd(f"vmnetdown {name}")
            for i in self.nodes:
                with contextlib.suppress(LabError):
                    self.cmd(f"down n{i}")
            self.p.stdin.close()
            self.p.wait(10)
            self.p = None
        self.clean()
        shutil.rmtree(self.dir, ignore_errors=True)

    @staticmethod
    def clean():
        for line in sh("ip netns list").splitlines():
            name = line.split()[0]
            if name.startswith(PREFIX + "-"):
                sh(f"ip netns del {name}", check=False)
        # Servers of a run that did not come to its end: by pid, and only ours.
        mine = f"--conf-file={tempfile.gettempdir()}/{PREFIX}-".encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                args = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
                if args[0].endswith(b"dnsmasq") and any(a.startswith(mine) for a in args):
                    os.kill(int(pid), 15)

    def __enter__(self):
        return self

    def __exit__(self, *a):
        self.close()


# ---- small servers and clients, each in a namespace of its own ----

class UdpEcho:
    """Answers datagrams until stopped; keeps what it got."""

    def __init__(self, ns, port, addr="0.0.0.0"):
        self.s = in_ns(ns_path(ns), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.s.bind((addr, port))
        self.s.settimeout(0.2)
        self.got = []
        self.peers = set()
        self.stop = False
        self.t = threading.Thread(target=self.run, daemon=True)
        self.t.start()

    def run(self):
        while not self.stop:
            try:
                d, a = self.s.recvfrom(65536)
            except (TimeoutError, socket.timeout):
                continue
            except OSError:
                continue
            self.got.append(d)
            self.peers.add(a[0])
            with contextlib.suppress(OSError):
                self.s.sendto(d, a)

    def close(self):
        self.stop = True
        self.t.join()
        self.s.close()


class TcpEcho:
    def __init__(self, ns, port):
        def make():
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("0.0.0.0", port))
            s.listen(64)
            return s

        self.s = in_ns(ns_path(ns), make)
        self.peers = []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                c, a = self.s.accept()
            except OSError:
                return
            self.peers.append(a[0])
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    @staticmethod
    def serve(c):
        with contextlib.suppress(OSError), c:
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                d = c.recv(65536)
                if not d:
                    return
                c.sendall(d)

    def close(self):
        self.s.close()


def udp_ask(ns, addr, port, data=b"x", timeout=1.0, bind=None):
    """One question; the answer, or the error's name."""
    def body():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            if bind:
                s.bind(("0.0.0.0", bind))
            s.settimeout(timeout)
            s.connect((addr, port))
            try:
                s.send(data)
                return s.recv(70000)
            except ConnectionRefusedError:
                return "refused"
            except (TimeoutError, socket.timeout):
                return "timeout"
            except OSError as e:
                return f"errno {e.errno}"
    return in_ns(ns if ns.startswith("/") else ns_path(ns), body)


def tcp_ask(ns, addr, port, data=b"x", timeout=2.0):
    def body():
        try:
            with socket.create_connection((addr, port), timeout) as s:
                s.sendall(data)
                got = b""
                while len(got) < len(data):
                    d = s.recv(65536)
                    if not d:
                        break
                    got += d
                return got
        except ConnectionRefusedError:
            return "refused"
        except (TimeoutError, socket.timeout):
            return "timeout"
        except OSError as e:
            return f"errno {e.errno}"
    return in_ns(ns if ns.startswith("/") else ns_path(ns), body)


def now():
    return time.monotonic()
