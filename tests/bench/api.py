"""The API server: rates beside etcd's, watches, what an object costs in memory, and a restart."""
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import time

import ferrytest as ft

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
VMIS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
STORED = 8000
JSON, MERGE, APPLY = "application/json", "application/merge-patch+json", "application/apply-patch+yaml"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Program:
    """A daemon below a folder of its own; ended with it."""

    def __init__(self, folder, name):
        self.folder = os.path.join(folder, name)
        os.makedirs(self.folder, exist_ok=True)
        self.proc = None

    def run(self, args):
        with open(f"{self.folder}/log", "ab") as log:
            self.proc = subprocess.Popen(args, stdout=log, stderr=log)

    def end(self, signo=signal.SIGTERM):
        if self.proc:
            self.proc.send_signal(signo)
            self.proc.wait(30)
            self.proc = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


class Server(Program):
    """ferry-apiserver alone, and the program that asks it."""

    def __init__(self, b):
        super().__init__(b.work, "apiserver")
        self.b, self.port = b, free_port()
        self.url, self.pki = f"https://127.0.0.1:{self.port}", f"{self.folder}/bench"
        self.asker = os.path.join(os.path.dirname(os.path.dirname(b.args.bin)), "tests/bench/api_bench")
        self.issue("bench", "bench", "--org", "system:masters")

    def issue(self, name, cn, *args):
        subprocess.run([f"{self.b.args.bin}/ferry-apiserver", "issue", "--state", self.folder, "--cn", cn, *args, "--out",
                        f"{self.folder}/{name}"], check=True, capture_output=True)

    def __enter__(self):
        self.start()
        return self

    def start(self):
        """Seconds until it has answered a list."""
        t = time.monotonic()
        self.run([f"{self.b.args.bin}/ferry-apiserver", "--state", self.folder, "--listen", f"127.0.0.1:{self.port}"])
        while True:
            try:
                if self.get(f"{VMIS}?limit=1")[0] == 200:
                    return time.monotonic() - t
            except (OSError, http.client.HTTPException):
                pass
            if self.proc.poll() is not None or time.monotonic() - t > 60:
                raise RuntimeError(f"the API server did not start: {open(f'{self.folder}/log').read()[-500:]}")
            time.sleep(0.002)

    def get(self, path):
        ctx = ssl.create_default_context(cafile=f"{self.pki}/ca.crt")
        ctx.load_cert_chain(f"{self.pki}/tls.crt", f"{self.pki}/tls.key")
        c = http.client.HTTPSConnection("127.0.0.1", self.port, context=ctx, timeout=60)
        try:
            c.request("GET", path)
            r = c.getresponse()
            return r.status, r.read()
        finally:
            c.close()

    def ask(self, *args, url=None, pki=None):
        p = subprocess.run([self.asker, url or self.url, pki or self.pki, *map(str, args)], capture_output=True, text=True,
                           timeout=600)
        if p.returncode:
            raise RuntimeError(f"api_bench {args[0]}: {p.stderr.strip()[-300:]} {p.stdout}")
        return json.loads(p.stdout)

    def each(self, n, clients, method, path, body=None, type_=JSON):
        if body is None:
            return self.ask("each", n, clients, method, path)
        with open(f"{self.folder}/body", "w") as f:
            f.write(body if isinstance(body, str) else json.dumps(body))
        return self.ask("each", n, clients, method, path, type_, f.name)

    def pss(self):
        return ft.pss_kib(self.proc.pid)


class Etcd(Program):
    """Debian's etcd-server with the certificates of the API server, its defaults for everything else."""

    def __init__(self, server):
        super().__init__(server.b.work, "etcd")
        self.url = f"https://127.0.0.1:{free_port()}"
        self.pki, peer = server.pki, f"http://127.0.0.1:{free_port()}"
        server.issue("etcd", "etcd", "--san", "127.0.0.1")
        cert = f"{server.folder}/etcd"
        self.run(["etcd", "--data-dir", f"{self.folder}/data", "--listen-client-urls", self.url, "--advertise-client-urls",
                  self.url, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster",
                  f"default={peer}", "--client-cert-auth", "--trusted-ca-file", f"{self.pki}/ca.crt", "--cert-file",
                  f"{cert}/tls.crt", "--key-file", f"{cert}/tls.key"])


def padded(n):
    return {"metadata": {"name": "c-%-@", "labels": {"bench": "create"}}, "data": {"a": "x" * (n - 300)}}


def stored_bytes(server, path):
    """Of one object, as the API server keeps it."""
    obj = json.loads(server.get(f"{path}?limit=1")[1])["items"][0]
    return len(json.dumps(obj, separators=(",", ":")).encode())


def bench_creates(b):
    """Durable creates of 2 KiB by 50 clients over TLS, in turn with Debian's etcd-server: the same client, size and disk."""
    runs, n = (1, 2000) if b.args.quick else (3, 10000)
    with Server(b) as s:
        ours, theirs, cpu = [], [], []
        s.each(500, 50, "POST", CONFIGMAPS, padded(2048))
        size = stored_bytes(s, CONFIGMAPS)
        if not shutil.which("etcd"):
            print("  no etcd-server here: nothing to compare with")
        with Etcd(s) if shutil.which("etcd") else Program(b.work, "none") as etcd:
            if etcd.proc:
                ft.poll(lambda: probe(s, etcd, size), 20, "etcd answers", 0.2)
            for _ in range(runs):
                t = cpu_seconds(s.proc.pid)
                ours.append(s.each(n, 50, "POST", CONFIGMAPS, padded(2048)))
                cpu.append((cpu_seconds(s.proc.pid) - t) / n * 1e6)
                if etcd.proc:
                    theirs.append(s.ask("etcd", n, 50, size, url=etcd.url))
    rate = statistics.median(r["rate"] for r in ours)
    base = statistics.median(r["rate"] for r in theirs) if theirs else None
    b.add(f"creates of {size} bytes by 50 clients, against etcd", rate / base if base else 0.0, "x", ">= 1",
          rate >= base if base else None, samples=[r["rate"] for r in ours])
    b.add("the same: rate", rate, "a second", baseline=base, samples=[r["rate"] for r in theirs])
    worst = max(r["p999"] for r in ours)
    b.add("the same: 99.9 of 100 within, worst run", worst, "ms", "<= 100", worst <= 100,
          max(r["p999"] for r in theirs) if theirs else None)
    b.add("the same: median", statistics.median(r["p50"] for r in ours), "ms",
          baseline=statistics.median(r["p50"] for r in theirs) if theirs else None)
    b.add("the same: processor time of the API server for each", statistics.median(cpu), "us")


def probe(server, etcd, size):
    try:
        return server.ask("etcd", 1, 1, size, url=etcd.url)
    except RuntimeError:
        return None


def bench_watchers(b):
    """From a create's sending to its arrival at 100 and 1,000 watches, while one more watcher stands still."""
    with Server(b) as s:
        s.issue("still", "still", "--org", "system:masters")  # of somebody else: one user has a thousand at most
        held = subprocess.Popen([s.asker, s.url, f"{s.folder}/still", "hold"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            s.each(1, 1, "POST", CONFIGMAPS, {"metadata": {"name": "h-%", "labels": {"bench": "watched"}}})
            held.stdout.readline()
            held.send_signal(signal.SIGSTOP)
            for watchers, events, bar in ((100, 300, 5), (1000, 60, 50)):
                r = s.ask("watch", 20 if b.args.quick else events, watchers)
                b.add(f"create to frame at {watchers} watches: 99 of 100 within", r["p99"], "ms", f"<= {bar}",
                      r["p99"] <= bar, samples=[r])
                b.add("the same: median", r["p50"], "ms")
        finally:
            held.kill()
            held.wait()


def vmi(b):
    obj = b.kernel_vm("v-%-@", "128Mi")["spec"]["template"]
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "v-@", **obj.get("metadata", {})}, "spec": obj["spec"]}


def bench_requests(b):
    """Reads and writes of VMIs with 8,000 of them stored; a controller that has them all; a restart."""
    n = 1000 if b.args.quick else STORED
    with Server(b) as s:
        s.issue("controller", "system:ferry-controller", "--org", "system:ferry:controllers")
        with Program(b.work, "controller") as c:
            run_controller(b, s, c)
            idle = ft.pss_kib(c.proc.pid)
        b.add("memory of a controller that has nothing to do", idle / 1024, "MiB")
        before = s.pss()
        made = s.each(n, 50, "POST", VMIS, vmi(b))
        b.add(f"{n} VMIs created, with admission", made["rate"], "a second")
        size = stored_bytes(s, VMIS)
        grown = (s.pss() - before) * 1024 / n
        b.add("memory of the API server for each VMI, beyond its bytes", (grown - size) / 1024, "KiB", "<= 6",
              grown - size <= 6144, baseline=size / 1024)
        for what, args in (("get", ("GET", f"{VMIS}/v-@")),
                           ("merge patch of a label", ("PATCH", f"{VMIS}/v-@", {"metadata": {"labels": {"a": "%"}}}, MERGE)),
                           ("apply", ("PATCH", f"{VMIS}/v-@?fieldManager=bench", {
                               "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                               "metadata": {"name": "v-@", "labels": {"b": "%"}}}, APPLY))):
            add_rate(b, f"{what}, 50 clients", s.each(min(n, 4000), 50, *args))
        for limit in (1000, n):
            add_rate(b, f"list of {limit}, one client", s.each(10, 1, "GET", f"{VMIS}?limit={limit}"))
        with Program(b.work, "controller") as c:
            add_controller(b, s, c, n, size, idle)
        add_restart(b, s, n)


def add_rate(b, what, r):
    b.add(what, r["rate"], "a second", samples=[r])
    b.add("the same: half, 99 of 100 within", r["p50"], "ms", baseline=r["p99"])


def start_controller(b, s, c):
    c.run([f"{b.args.bin}/ferry-controller", "--server", s.url, "--pki", f"{s.folder}/controller", "--health",
           f"unix:{c.folder}/health"])


def run_controller(b, s, c):
    """Until it is idle."""
    start_controller(b, s, c)
    ft.poll(lambda: steady(c), 120, "the controller has nothing more to do", 1)


def add_controller(b, s, c, n, size, idle):
    """What it has grown by when it has made the pod of each VMI."""
    def pods():
        got = json.loads(s.get("/api/v1/namespaces/default/pods?limit=1")[1])
        return len(got["items"]) + got["metadata"].get("remainingItemCount", 0)
    t = time.monotonic()
    start_controller(b, s, c)
    ft.poll(lambda: pods() >= n, 300, "every VMI has its pod", 0.25)
    b.add(f"{n} VMIs without a node: their pods made", n / (time.monotonic() - t), "a second")
    ft.poll(lambda: steady(c), 120, "the controller has nothing more to do", 1)
    pod = stored_bytes(s, "/api/v1/namespaces/default/pods")
    kib = (ft.pss_kib(c.proc.pid) - idle) * 1024 / n
    b.add("memory of the controller for each VMI and its pod, beyond their bytes", (kib - size - pod) / 1024, "KiB", "<= 4",
          kib - size - pod <= 4096, baseline=(size + pod) / 1024)


def steady(c):
    """It has used next to no processor time for a second."""
    t = cpu_seconds(c.proc.pid)
    time.sleep(1)
    return cpu_seconds(c.proc.pid) - t < 0.05


def add_restart(b, s, n):
    took = []
    for _ in range(3):
        s.end(signal.SIGKILL)
        took.append(s.start())
    b.add(f"killed and started again with {n} VMIs: until it serves", statistics.median(took), "s", "<= 1",
          statistics.median(took) <= 1, samples=took)
