#!/usr/bin/env python3
"""Measure Ferry against QEMU driven by hand in the same run, and print the table of bars.

Usage: ./run bench [--runs N] [--list] [NAME...]

Ratios and differences within one run are evidence; absolute times are not (machines are noisy).  Each
figure is a median of at least 10 unless it is a count.  Writes build/bench.json: a list of
{name, value, unit, baseline, bar, met, samples}.
"""
import argparse
import collections
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
import api  # noqa: E402
import bars  # noqa: E402
import ferrytest as ft  # noqa: E402
import handmove  # noqa: E402
import migration  # noqa: E402

COUNTED = ["VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceMigration", "Pod"]
APART = ["Event", "Lease", "EndpointSlice"]  # and "progress": writes that change nothing but a move's progress


class Bench:
    def __init__(self, args):
        self.args = args
        self.rows = []
        self.cluster = None
        self.work = tempfile.mkdtemp(prefix="bench-", dir=os.path.dirname(args.out))

    def add(self, name, value, unit, bar=None, met=None, baseline=None, samples=None):
        self.rows.append({"name": name, "value": value, "unit": unit, "baseline": baseline, "bar": bar, "met": met,
                          "samples": samples})
        mark = {True: "met", False: "MISSED", None: ""}[met]
        shown = f"{value:.2f}" if isinstance(value, float) and abs(value) < 10 else \
            f"{value:.1f}" if isinstance(value, float) else value
        base = "" if baseline is None else f" (baseline {baseline:.1f} {unit})"
        print(f"  {name:58} {shown} {unit}{base}  bar {bar or '-'}  {mark}", flush=True)

    def up(self, nodes=2, args=None, apiserver_args=None):
        self.down()
        self.cluster = ft.Cluster(os.path.join(self.work, "cluster"), nodes, self.args.bin, args, apiserver_args).up()
        return self.cluster

    def down(self):
        if self.cluster:
            self.cluster.down()
            self.cluster = None

    def kernel_vm(self, name, memory="1Gi", **kw):
        """A diskless guest: kernel and initrd come from an OCI folder that the box can see.  No screen, as by hand."""
        vm = ft.vm(name, memory, kernel={"kernelArgs": "console=ttyS0 quiet tiny.heartbeat=1", "container": {
            "image": f"oci:{self.oci()}", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd.gz"}}, **kw)
        vm["spec"]["template"]["spec"]["domain"]["devices"]["autoattachGraphicsDevice"] = False
        return vm

    def oci(self):
        path = os.path.join(self.args.bin, "test-images", "tiny")
        if not os.path.exists(os.path.join(path, "index.json")):
            subprocess.run([sys.executable, os.path.join(HERE, "../lib/ociimage.py"), path,
                            f"{self.args.tiny}/vmlinuz:/boot/vmlinuz", f"{self.args.tiny}/initrd.gz:/boot/initrd.gz"],
                           check=True)
        return path

    def start_guest(self, name, memory="1Gi", service=True, **kw):
        api = self.cluster.api
        if service:
            api.create(ft.service(name))
        api.create(self.kernel_vm(name, memory, **kw))
        vmi = api.wait("VirtualMachineInstance", name, ft.vmi_running, 60)
        address = ft.vmi_address(vmi)
        ft.Guest(address).wait(90)
        return address


def ms(values):
    return [v * 1000 for v in values]


# ---- figures ------------------------------------------------------------------------------------


def bench_up(b):
    """`up --nodes 2` after the build, to both nodes Ready."""
    took = []
    for _ in range(b.args.runs):
        b.down()
        t = time.time()
        b.up()
        took.append(time.time() - t)
    b.add("up --nodes 2 to both nodes Ready", statistics.median(took), "s", "<= 2", statistics.median(took) <= 2,
          samples=took)


def bench_start(b):
    """VM created to guest vCPUs running, beyond raw QEMU's own start."""
    b.up()
    api = b.cluster.api
    nodes = handmove.HandNodes(os.path.join(b.work, "hand"), "fbb").up()
    ours, raw = [], []
    try:
        b.start_guest("warm")
        for i in range(b.args.runs):
            hv = handmove.HandVm(nodes, 1024, kernel=f"{b.args.tiny}/vmlinuz", initrd=f"{b.args.tiny}/initrd.gz",
                                 append="console=ttyS0 quiet", name=f"raw{i}")
            t = time.time()
            hv.start("a")
            while not hv.qmps["a"]("query-status")["running"]:
                time.sleep(0.001)
            raw.append(time.time() - t)
            hv.stop()
            name = f"start-{i}"
            t = time.time()
            api.create(b.kernel_vm(name))
            api.wait("VirtualMachineInstance", name, ft.vmi_running, 60)
            ours.append(time.time() - t)
            api.delete("VirtualMachine", name)
            api.wait("VirtualMachineInstance", name, lambda v: v is None, 60)
    finally:
        nodes.down()
    over = (statistics.median(ours) - statistics.median(raw)) * 1000
    b.add("VM created to vCPUs running, beyond raw QEMU", over, "ms", "<= 150", over <= 150,
          statistics.median(raw) * 1000, ms(ours))


def bench_move(b):
    """Idle 1 GiB guest: created to Succeeded, beyond the same move by hand over QMP with TLS."""
    moves, hand = bars.side_by_side(b)
    ours, raw = [took for _, took in moves], [r["total"] for r in hand]
    pause = [st["ferry"].get("pauseMs") for st, _ in moves]
    qpause = [st["ferry"].get("qemuDowntimeMs") for st, _ in moves]
    hpause = [r["pauseMs"] for r in hand]
    over = (statistics.median(ours) - statistics.median(raw)) * 1000
    b.add("move of an idle 1 GiB guest, beyond the same by hand", over, "ms", "<= 150", over <= 150,
          statistics.median(raw) * 1000, ms(ours))
    b.add("guest pause of that move", float(ft.median(pause) or 0), "ms", baseline=ft.median(hpause), samples=pause)
    b.add("QEMU's own downtime of that move", float(ft.median(qpause) or 0), "ms", samples=qpause)


def back_and_forth(b, name, probes, n):
    """Moves the guest n times between node-1 and node-2; [(pause in ms, {probe: its window}), ...]."""
    api, out = b.cluster.api, []
    if api.get("VirtualMachineInstance", name)["status"]["nodeName"] not in ("node-1", "node-2"):
        ft.move(api, name, addedNodeSelector={"kubernetes.io/hostname": "node-1"})
    time.sleep(2)
    for i in range(n):
        for p in probes.values():
            p.mark()
        here = api.get("VirtualMachineInstance", name)["status"]["nodeName"]
        target = "node-1" if here == "node-2" else "node-2"
        obj, _ = ft.move(api, name, addedNodeSelector={"kubernetes.io/hostname": target})
        if obj["status"]["phase"] != "Succeeded":
            raise RuntimeError(f"move {i} failed: {obj['status']}")
        time.sleep(0.4)  # what the switch did to connections is over by then
        out.append((obj["status"]["ferry"]["pauseMs"], {k: p.mark() for k, p in probes.items()}))
    return out


def add_connections(b, moves, where, bars=True):
    """The rows about TCP of moves under probes; the bars of how long are for a guest that does nothing else."""
    windows = [(pause, w) for pause, ws in moves for w in ws.values()]
    held = [w["held"]["longestGapMs"] - pause for pause, w in windows]
    new = [w["new"]["slowestMs"] - pause for pause, w in windows]
    broken = sum(w["held"]["broken"] for _, w in windows)
    again = sum(w["held"]["retransmits"] for _, w in windows)
    failed = sum(w["new"]["failed"] for _, w in windows)
    b.add(f"{where}: held connections broken in {len(moves)} moves", broken, "", "0", broken == 0)
    b.add(f"{where}: held connections, segments sent again", again, "", "0", again == 0)
    b.add(f"{where}: held connection, longest gap beyond the pause, worst", max(held), "ms",
          "<= 80" if bars else None, max(held) <= 80 if bars else None, samples=held)
    b.add(f"{where}: the same, median", statistics.median(held), "ms")
    b.add(f"{where}: new connections failed of {sum(w['new']['count'] for _, w in windows)}", failed, "", "0",
          failed == 0)
    b.add(f"{where}: new connection, slowest beyond the pause, worst", max(new), "ms",
          "<= 80" if bars else None, max(new) <= 80 if bars else None, samples=new)
    b.add(f"{where}: the same, median", statistics.median(new), "ms")
    b.add(f"{where}: guest pause, median", float(statistics.median(p for p, _ in moves)), "ms")
    return held


def bench_clients(b):
    """A held connection and new ones over 20 moves; and what of their wait is the emulator's cold code cache."""
    b.up()
    address = b.start_guest("clients")
    service = b.cluster.api.get("Service", "clients")["spec"]["clusterIP"]
    probes = {"direct": ft.Probe(f"{address}:7777", bin_=b.args.bin),
              "service": ft.Probe(f"{service}:7777", bin_=b.args.bin)}
    try:
        held = add_connections(b, back_and_forth(b, "clients", probes, max(20, b.args.runs)), "clients")
    finally:
        for p in probes.values():
            p.stop()
    b.down()
    warm, cold = by_hand_gaps(b)
    share = statistics.median(cold) - statistics.median(warm)
    b.add("by hand: held connection beyond a pause in place (warm cache)", statistics.median(warm), "ms", samples=warm)
    b.add("by hand: held connection beyond the pause of a move", statistics.median(cold), "ms", samples=cold)
    b.add("of it a target that has translated no code yet", share, "ms")
    b.add("held connection, beyond the pause and that, median", statistics.median(held) - share, "ms")


def by_hand_gaps(b):
    """Longest gaps of a held connection beyond the guest's pause, by hand: stopped and continued where it is;
    moved."""
    nodes = handmove.HandNodes(os.path.join(b.work, "hand"), "fbb").up()
    hv = handmove.HandVm(nodes, 1024, kernel=f"{b.args.tiny}/vmlinuz", initrd=f"{b.args.tiny}/initrd.gz",
                         append=f"console=ttyS0 quiet tiny.ip={handmove.ADDRESS}/24")
    warm, cold, probe = [], [], None
    enter = subprocess.Popen(["ip", "netns", "exec", nodes.ns("c"), "sleep", "600"])
    try:
        hv.start("a")
        time.sleep(8)
        probe = ft.Probe(f"{handmove.ADDRESS}:7777", bin_=b.args.bin, enter=enter.pid)
        time.sleep(2)
        for _ in range(b.args.runs):
            q = hv.qmps[hv.at]
            q.events.clear()
            probe.mark()
            q("stop")
            time.sleep(0.03)
            q("cont")
            q("query-status")
            time.sleep(0.4)
            warm.append(probe.mark()["held"]["longestGapMs"] - (q.time_of("RESUME") - q.time_of("STOP")) * 1000)
        for _ in range(b.args.runs):
            probe.mark()
            r = hv.move()
            time.sleep(0.4)
            cold.append(probe.mark()["held"]["longestGapMs"] - r["pauseMs"])
            time.sleep(0.5)
    finally:
        if probe:
            probe.stop()
        enter.kill()
        enter.wait()
        hv.stop()
        nodes.down()
    return warm, cold


def bench_stream(b):
    """1,000 numbered datagrams a second, echoed, over 20 moves: from each of four places."""
    b.up(3)
    cl = b.cluster
    address = b.start_guest("stream")
    places = {"node-1": cl.node_pid1("node-1"), "node-2": cl.node_pid1("node-2"),
              "a third node": cl.node_pid1("node-3"), "outside the cluster": None}
    for place, enter in places.items():
        probe = ft.Probe(f"{address}:7777", "--udp-rate", "1000", bin_=b.args.bin, enter=enter)
        try:
            moves = back_and_forth(b, "stream", {place: probe}, max(20, b.args.runs))
        finally:
            probe.stop()
        lost = probe.udp_sent - probe.udp_back
        b.add(f"UDP, client on {place}: lost of {probe.udp_sent}", lost, "datagrams", "0", lost == 0)
        add_connections(b, moves, f"beside UDP, {place}", bars=False)


def bench_integrity(b):
    """Moves under network, disk and memory load at two pause limits; and by hand, for what the kernel says."""
    b.up()
    image = os.path.join(b.work, "data.img")
    shutil.copyfile(f"{b.args.tiny}/disk.img", image)
    b.cluster.shared_disk("load", image)
    api = b.cluster.api
    api.create(ft.vm("load", "512Mi", pvc="load"))
    address = ft.vmi_address(api.wait("VirtualMachineInstance", "load", ft.vmi_running, 60))
    g = ft.Guest(address, timeout=20)
    first = g.wait(90)
    g.command("disk 4194304")
    probe = ft.Probe(f"{address}:7777", "--udp-rate", "200", bin_=b.args.bin)
    moves = 10 if b.args.quick else 100
    said = []
    try:
        # what is written during 10 ms of the link has to fit into 10 ms of the link: a slower guest
        for limit, load in ((10, ("verify 64 4", "dirty 16 8")), (300, LOAD)):
            for c in load:
                g.command(c)
            api.patch("KubeVirt", "kubevirt", {"spec": {"configuration": {
                "developerConfiguration": {"featureGates": ["MigrationStallDetection"]},
                "migrations": {"maxDowntimeMs": limit}}}}, ns="kubevirt")
            before, pauses, took = g.status(), [], []
            last = before
            for n in range(1, moves + 1):
                obj, phases = ft.move(api, "load", timeout=180)
                st = obj["status"]
                if st["migrationState"]["migrationConfiguration"]["maxDowntimeMs"] != limit:
                    raise RuntimeError("the limit is not the one that was set")
                if st["phase"] == "Succeeded":
                    pauses.append(st["ferry"]["pauseMs"])
                    took.append(phases["Succeeded"])
                else:
                    print(f"    move {n}: {st['ferry']}")
                now = g.status()
                if now["kernelBad"] != last["kernelBad"]:
                    said.append(f"limit {limit} ms, move {n}: {now['kernelText']}")
                last = now
            where = f"integrity, limit {limit} ms"
            bad = last["memBad"] + last["diskBad"]
            b.add(f"{where}: wrong bytes after {len(took)} of {moves} moves under load", bad, "", "0",
                  bad == 0 and last["bootID"] == first["bootID"] and len(took) == moves)
            b.add(f"{where}: kernel messages", last["kernelBad"] - before["kernelBad"], "", "0",
                  last["kernelBad"] == before["kernelBad"])
            b.add(f"{where}: pages and blocks checked",
                  last["memChecks"] + last["diskChecks"] - before["memChecks"] - before["diskChecks"], "")
            b.add(f"{where}: pause", float(statistics.median(pauses)), "ms", samples=pauses)
            b.add(f"{where}: one move", float(statistics.median(took)), "s", samples=took)
    finally:
        probe.stop()
        for line in said:
            print(f"    kernel, {line}")
    b.down()
    still, moved = by_hand_under_load(b, moves)
    b.add(f"integrity, by hand: kernel messages in the time of {moves} moves, standing", sum(still.values()), "")
    b.add(f"integrity, by hand: kernel messages in {moves} moves under the same load", sum(moved.values()), "")
    for where, said in (("standing", still), ("moving", moved)):
        for kind, n in said.most_common():
            print(f"    kernel, by hand, {where}: {n} times: {kind}")


LOAD = ("verify 64 16", "dirty 32 20")  # for a pause of 300 ms


def by_hand_under_load(b, moves):
    """What its kernel complains of in a guest that QEMU holds without Ferry, by kind: while it stays where it is, and
    in its moves, each for the same time.  What is said once in a kernel's life comes in one of the two only."""
    nodes = handmove.HandNodes(os.path.join(b.work, "hand"), "fbb").up()
    hv = handmove.HandVm(nodes, 512, kernel=f"{b.args.tiny}/vmlinuz", initrd=f"{b.args.tiny}/initrd.gz",
                         append=f"console=ttyS0 quiet tiny.ip={handmove.ADDRESS}/24")
    enter = subprocess.Popen(["ip", "netns", "exec", nodes.ns("c"), "sleep", "7200"])

    def ask(line):
        out = subprocess.run(["nsenter", "-t", str(enter.pid), "-n", sys.executable, "-c",
                              "import socket,sys\n"
                              f"s = socket.create_connection(('{handmove.ADDRESS}', 7778), 20)\n"
                              "s.sendall(sys.argv[1].encode() + b'\\n')\nprint(s.makefile().readline())", line],
                             capture_output=True, text=True, check=True).stdout
        return json.loads(out)
    try:
        hv.start("a")
        time.sleep(10)
        for c in LOAD:
            ask(c)
        last = ask("status")

        def listen(said):
            nonlocal last
            now = ask("status")
            if now["kernelBad"] != last["kernelBad"]:  # it tells the last text only
                said[re.sub(r"[0-9]+", "#", now["kernelText"])] += now["kernelBad"] - last["kernelBad"]
            last = now
        still, moved = collections.Counter(), collections.Counter()
        begun = time.monotonic()
        hv.move()
        took = time.monotonic() - begun
        for _ in range(moves):
            time.sleep(took + 0.5)
            listen(still)
        for _ in range(moves):
            hv.move()
            time.sleep(0.5)
            listen(moved)
    finally:
        enter.kill()
        enter.wait()
        hv.stop()
        nodes.down()
    return still, moved


def bench_footprint(b):
    """Memory of all processes with 2 VMs; CPU with 10 idle ones."""
    b.up()
    for i in range(2):
        b.start_guest(f"m{i}", "256Mi", service=False)
    cl = b.cluster
    ours = {n: cl.pid(n) for n in ("apiserver", "controller", "node-1", "node-2")}
    total = sum(ft.pss_kib(p) for p in ours.values()) / 1024
    b.add("PSS of API server, controller and two agents, 2 VMs", total, "MiB", "<= 60", total <= 60,
          samples={n: ft.pss_kib(p) / 1024 for n, p in ours.items()})
    launchers = [p for n in ("node-1", "node-2") for p in ft.descendants(cl.node_pid1(n))
                 if ft.comm(p) == "ferry-launcher"[:15]]
    worst = max((ft.pss_kib(p) / 1024 for p in launchers), default=None)
    b.add("PSS of a launcher (largest)", worst or 0.0, "MiB", "<= 4", worst is not None and worst <= 4)
    for i in range(2, 10):
        b.start_guest(f"m{i}", "128Mi", service=False)
    time.sleep(5)

    def cpu_ns():
        """By the scheduler's clock: work of less than a tick is counted too."""
        n = 0
        pids = set(ours.values()) | {p for node in ("node-1", "node-2") for p in ft.descendants(cl.node_pid1(node))
                                     if ft.comm(p).startswith("ferry")}
        for p in pids:
            with contextlib.suppress(OSError):
                for task in os.listdir(f"/proc/{p}/task"):
                    with open(f"/proc/{p}/task/{task}/schedstat") as f:
                        n += int(f.read().split()[0])
        return n
    seconds = 60
    a = cpu_ns()
    time.sleep(seconds)
    used = (cpu_ns() - a) / 1e9 / seconds * 100
    b.add("CPU of all Ferry processes, 10 idle VMs", used, "% of a core", "<= 1", used <= 1)


class WriteCounter:
    """Counts what watchers see: each event is one write."""

    def __init__(self, api):
        self.api, self.n, self.stop = api, {}, False
        self.threads = []
        for kind in COUNTED + APART:
            t = threading.Thread(target=self.follow, args=(kind,), daemon=True)
            t.start()
            self.threads.append(t)

    @staticmethod
    def without_progress(obj):
        """The object without what a progress report changes."""
        o = json.loads(json.dumps(obj))
        o["metadata"].pop("resourceVersion", None)
        o["metadata"].pop("managedFields", None)
        if o.get("kind") == "VirtualMachineInstance":
            o.get("status", {}).get("ferry", {}).pop("migration", None)
        if o.get("kind") == "VirtualMachineInstanceMigration":
            o.get("status", {}).pop("ferry", None)
        return o

    def follow(self, kind):
        rv = self.api.call("GET", self.api.path(kind))["metadata"]["resourceVersion"]
        last = {}
        for _, what, obj in self.api.watch(kind, None, rv, 600):
            if self.stop:
                return
            name = obj["metadata"]["name"]
            seen = self.without_progress(obj)
            as_ = "progress" if what == "MODIFIED" and last.get(name) == seen else kind
            last[name] = seen
            self.n[as_] = self.n.get(as_, 0) + 1

    def take(self):
        n, self.n = self.n, {}
        return n


def bench_writes(b):
    """Writes of VM, VMI, VMIM and Pod per start and per move."""
    b.up()
    api = b.cluster.api
    counter = WriteCounter(api)
    time.sleep(1)
    starts, moves = [], []
    for i in range(3):
        counter.take()
        name = f"w{i}"
        b.start_guest(name, "256Mi", service=False)
        time.sleep(1)
        starts.append(counter.take())
        ft.move(api, name)
        time.sleep(1.5)
        moves.append(counter.take())
    counter.stop = True
    for what, seen, bar in (("VM start", starts, 8), ("move", moves, 16)):
        n = statistics.median(sum(s.get(k, 0) for k in COUNTED) for s in seen)
        b.add(f"writes per {what} (VM, VMI, VMIM, Pod)", int(n), "", f"<= {bar}", n <= bar,
              samples=[{k: s.get(k, 0) for k in [*COUNTED, *APART, "progress"]} for s in seen])


def bench_together(b):
    """Ten guests, five moves at once, against QEMU by hand five at once."""
    b.up(2)
    api = b.cluster.api
    api.patch("KubeVirt", "kubevirt", {"spec": {"configuration": {"migrations": {
        "parallelMigrationsPerCluster": 5, "parallelOutboundMigrationsPerNode": 5}}}}, ns="kubevirt")
    for i in range(10):
        b.start_guest(f"g{i}", "256Mi", service=False)

    def ours():
        return bars.all_at_once(lambda n: migration.moved(api, n), [f"g{i}" for i in range(10)])

    ours_t = [ours() for _ in range(3)]
    b.down()
    with bars.Hand(b, 10, 256) as hand:
        time.sleep(20)
        raw_t = [hand.move_all() for _ in range(3)]
    ratio = statistics.median(ours_t) / statistics.median(raw_t)
    b.add("ten guests, five moves at once, against by hand", ratio, "x", "<= 1.15", ratio <= 1.15)
    b.add("ten guests, five moves at once", statistics.median(ours_t), "s", baseline=statistics.median(raw_t),
          samples=ours_t)


ALL = {n[6:]: f for m in (globals(), vars(migration), vars(bars), vars(api)) for n, f in list(m.items()) if n.startswith("bench_")}
# Beside the figures' own names: all those of a chapter.
CHAPTERS = {"migration": [n[6:] for m in (migration, bars) for n in vars(m) if n.startswith("bench_")],
            "api": [n[6:] for n in vars(api) if n.startswith("bench_")]}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin", required=True)
    ap.add_argument("--tiny", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--runs", type=int, default=10)
    ap.add_argument("--quick", action="store_true", help="fewer moves in the integrity run")
    ap.add_argument("--list", action="store_true")
    ap.add_argument("names", nargs="*")
    args = ap.parse_args()
    args.bin, args.tiny = os.path.abspath(args.bin), os.path.abspath(args.tiny)  # nodes see no working folder
    if args.list:
        for n, f in ALL.items():
            print(f"  {n:12} {f.__doc__.splitlines()[0]}")
        return 0
    args.names = [f for n in args.names for f in CHAPTERS.get(n, [n])]
    for n in args.names:
        if n not in ALL:
            ap.error(f"no figure called '{n}' (one of {', '.join([*ALL, *CHAPTERS])})")
    b = Bench(args)
    failed = 0
    load = os.getloadavg()[0]
    print(f"  {os.cpu_count()} processors, load {load:.2f}, "
          f"{subprocess.run(['qemu-system-x86_64', '--version'], capture_output=True, text=True).stdout.splitlines()[0]}")
    try:
        for n in args.names or ALL:
            print(f"== {n}: {ALL[n].__doc__.splitlines()[0]}", flush=True)
            try:
                ALL[n](b)
            except (OSError, RuntimeError, TimeoutError, KeyError, ft.ApiError, subprocess.SubprocessError) as e:
                failed += 1
                print(f"  {n} failed: {type(e).__name__}: {e}", flush=True)
            finally:
                b.down()
    finally:
        b.down()
        shutil.rmtree(b.work, ignore_errors=True)
    with open(args.out, "w") as f:
        json.dump(b.rows, f, indent=1)
    met = sum(1 for r in b.rows if r["met"])
    bars = sum(1 for r in b.rows if r["met"] is not None)
    print(f"{met} of {bars} bars met; {args.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
