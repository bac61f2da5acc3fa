#!/usr/bin/env python3
"""The demo: two nodes, one VM, five moves, a drain, a post-copy move, and what its clients noticed.

Called by `./run demo`.  Everything it makes is taken down again, also after Ctrl-C.  The exit code is 0
only if every move succeeded, no held connection broke, and the drain emptied its node.
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "tests", "lib"))
import ferrytest as ft  # noqa: E402
import handmove  # noqa: E402

BOLD, DIM, GREEN, RED, OFF = ("\033[1m", "\033[2m", "\033[32m", "\033[31m", "\033[0m") if sys.stdout.isatty() else ("",) * 5
# What the document that Ferry answers to measured of KubeVirt v1.9.0, 1 GiB guest, five round trips.
KUBEVIRT = {"total": 10.0, "pause": 343.0, "newgap": 2400.0, "broken": "5 of 5"}
PHASES = ["Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "Succeeded"]


def say(text):
    print(f"{BOLD}==>{OFF} {text}", flush=True)


class Progress:
    """A line that shows a wait: a word, seconds, and a dot when the output is not a terminal."""

    def __init__(self, what):
        self.what, self.start = what, time.monotonic()

    def __enter__(self):
        if sys.stdout.isatty():
            print(f"    {self.what} ...", end="", flush=True)
        return self

    def __exit__(self, kind, value, tb):
        took = time.monotonic() - self.start
        end = "" if kind is None else f" {RED}failed{OFF}"
        if sys.stdout.isatty():
            print(f"\r\033[K    {self.what} ({took:.1f} s){end}", flush=True)
        else:
            print(f"    {self.what} ({took:.1f} s){end}", flush=True)
        return False


def fmt(value, digits=1, unit=""):
    if value is None:
        return "-"
    return f"{value:.{digits}f}{unit}" if isinstance(value, float) else f"{value}{unit}"


def table(rows, head):
    width = [max(len(str(r[i])) for r in [head, *rows]) for i in range(len(head))]
    for n, r in enumerate([head, *rows]):
        line = "  ".join(str(c).rjust(width[i]) if i else str(c).ljust(width[i]) for i, c in enumerate(r))
        print((BOLD + line + OFF) if n == 0 else line)


def one_move(api, probes, n):
    for p in probes.values():
        p.mark("before")
    obj, phases = ft.move(api, "tiny", f"demo-{n}", timeout=120)
    time.sleep(0.3)  # a client's last retry belongs to this move: the window stays open a little
    windows = {k: p.mark(f"move-{n}") for k, p in probes.items()}
    st = obj.get("status", {})
    return {"n": n, "ok": st.get("phase") == "Succeeded", "phases": phases, "status": st, "windows": windows}


def move_rows(moves):
    rows = []
    for m in moves:
        st, ms = m["status"], m["status"].get("migrationState", {})
        f = st.get("ferry", {})
        mem = f.get("memory", {})
        svc, direct = m["windows"]["service"], m["windows"]["direct"]
        total = m["phases"].get("Succeeded") or m["phases"].get("Failed")
        broken = svc["held"]["broken"] or direct["held"]["broken"]
        rows.append([
            f"move {m['n']}", f"{ms.get('sourceNode', '?')} -> {ms.get('targetNode', '?')}",
            fmt(total, 2), fmt(f.get("pauseMs")), fmt(f.get("qemuDowntimeMs"), 0),
            fmt(mem.get("transferredBytes", 0) / 2**20), fmt(f.get("passes")),
            fmt(f.get("linkBytesPerSecond", 0) / 2**20, 0),
            fmt(max(svc["new"]["slowestMs"], direct["new"]["slowestMs"])),
            fmt(svc["new"]["failed"] + direct["new"]["failed"]),
            fmt(max(svc["held"]["longestGapMs"], direct["held"]["longestGapMs"])),
            "yes" if broken else "no"])
    return rows


HEAD = ["", "from -> to", "total s", "pause ms", "QEMU ms", "MiB sent", "passes", "MiB/s", "new conn ms", "failed",
        "held gap ms", "broken"]


def answers(args, enter):
    """Does a new connection from there get its byte back?"""
    out = subprocess.run(["nsenter", "-t", str(enter), "-n", f"{args.bin}/ferry", "probe", f"{handmove.ADDRESS}:7777",
                          "--duration", "400ms", "--held-every", "0"], stdout=subprocess.PIPE,
                         stdin=subprocess.DEVNULL, text=True).stdout
    w = json.loads(out)["new"]
    return w["count"] > 0 and w["failed"] < w["count"]


def by_hand(args, work, moves):
    """The same guest and disk, moved by QEMU driven by hand, probed the same way."""
    nodes = handmove.HandNodes(os.path.join(work, "hand")).up()
    vm = None
    probe = None
    rows = []
    try:
        vm = handmove.HandVm(nodes, 1024, kernel=f"{args.tiny}/vmlinuz", initrd=f"{args.tiny}/initrd.gz",
                             append=f"console=ttyS0 quiet tiny.ip={handmove.ADDRESS}/24")
        vm.start("a")
        enter = subprocess.Popen(["ip", "netns", "exec", nodes.ns("c"), "sleep", "600"])
        try:
            ft.poll(lambda: os.readlink(f"/proc/{enter.pid}/ns/net") != os.readlink("/proc/self/ns/net"), 5,
                    "the clients' namespace is entered", 0.01)
            ft.poll(lambda: answers(args, enter.pid), 90, "the guest answers", 0.2)
            probe = ft.Probe(f"{handmove.ADDRESS}:7777", bin_=args.bin, enter=enter.pid)
            time.sleep(1)
            for n in range(1, moves + 1):
                probe.mark("before")
                r = vm.move()
                time.sleep(0.3)
                w = probe.mark("move")
                rows.append([f"by hand {n}", "", fmt(r["total"], 2), fmt(r["pauseMs"]), fmt(r["downtimeMs"], 0),
                             fmt(r["bytes"] / 2**20), fmt(r["passes"]), fmt(r["mbps"] / 8 / 1.048576, 0),
                             fmt(w["new"]["slowestMs"]), fmt(w["new"]["failed"]), fmt(w["held"]["longestGapMs"]),
                             "yes" if w["held"]["broken"] else "no"])
                time.sleep(0.5)
        finally:
            if probe:
                probe.stop()
            enter.kill()
            enter.wait()
    finally:
        if vm:
            vm.stop()
        nodes.down()
    return rows


def drain(cluster, probes):
    """Empties the node that the VM is on, while its clients go on; True when nothing is left there and none broke."""
    node = cluster.api.get("VirtualMachineInstance", "tiny")["status"]["nodeName"]
    say(f"ferry drain {node}: what will happen to each VM, then it happens")
    for p in probes.values():
        p.mark("before")
    start = time.monotonic()
    out = cluster.ferry("drain", node, "--timeout", "120", check=False)
    took = time.monotonic() - start
    for line in out.stdout.splitlines():
        print("    " + line)
    windows = [p.mark("drain") for p in probes.values()]
    cluster.ferry("uncordon", node)
    ok = out.returncode == 0 and not any(w["held"]["broken"] or w["new"]["failed"] for w in windows)
    color, verdict = (GREEN, "no client lost a connection") if ok else (RED, f"exit code {out.returncode}: {out.stderr}")
    print(f"    {color}empty after {took:.1f} s; {verdict}{OFF}")
    return ok


POLICY = {"apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy", "metadata": {"name": "demo-postcopy"},
          "spec": {"allowPostCopy": True, "bandwidthPerMigration": "32Mi",
                   "selectors": {"virtualMachineInstanceSelector": {"app": "tiny"}}}}


def post_copy(api, address):
    """A guest that writes faster than its link carries: it goes over first, its memory follows."""
    say("a guest that outruns a link of 32 MiB/s (rewrites 64 MiB without a pause), with allowPostCopy")
    guest = ft.Guest(address, timeout=30)
    before = guest.status()
    api.create(POLICY)
    guest.command("verify 16")
    guest.command("dirty 64 0")
    try:
        with Progress("a post-copy move"):
            obj, phases = ft.move(api, "tiny", "demo-postcopy", timeout=120)
    finally:
        guest.command("dirty 0 0")
        api.delete("MigrationPolicy", "demo-postcopy")
    after, st = guest.status(), obj["status"]
    ms, f = st.get("migrationState", {}), st.get("ferry", {})
    for e in api.list("Event"):
        if e["involvedObject"]["name"] == "tiny" and e["message"].startswith("Switching to post-copy"):
            print(f"    {e['message']}")
    ok = (st["phase"] == "Succeeded" and ms.get("mode") == "PostCopy" and after["memBad"] == 0
          and after["bootID"] == before["bootID"])
    total = phases.get("Succeeded") or phases.get("Failed")
    print(f"    {GREEN if ok else RED}{st['phase']}, mode {ms.get('mode')}: {fmt(total, 1)} s, pause {fmt(f.get('pauseMs'))} ms, "
          f"{f.get('passes')} passes, {after['memChecks'] - before['memChecks']} pages checked, {after['memBad']} wrong{OFF}")
    return ok


def run_demo(args, cluster, state):
    say("starting a control plane and two nodes")
    with Progress("ferry up --nodes 2"):
        cluster.up()
    api = cluster.api
    say("applying examples/vm.yaml: a VirtualMachine with a shared disk, and a Service")
    os.makedirs(f"{state}/shared/tiny", exist_ok=True)
    shutil.copyfile(f"{args.tiny}/disk.img", f"{state}/shared/tiny/disk.img")
    out = cluster.ferry("apply", "-f", os.path.join(TOP, "examples/vm.yaml"))
    for line in out.stdout.splitlines():
        print("    " + line)
    with Progress("the VM is Running"):
        vmi = api.wait("VirtualMachineInstance", "tiny", ft.vmi_running, 60)
    address = ft.vmi_address(vmi)
    with Progress("its guest answers"):
        ft.Guest(address).wait(60)
    vmi = api.get("VirtualMachineInstance", "tiny")
    cluster_ip = api.get("Service", "tiny")["spec"]["clusterIP"]
    print(f"    on {vmi['status']['nodeName']}, address {address}, service address {cluster_ip}")
    say("probing: a new connection every 20 ms, a request every 2 ms on a held one; service and direct")
    probes = {"service": ft.Probe(f"{cluster_ip}:7777", bin_=args.bin), "direct": ft.Probe(f"{address}:7777", bin_=args.bin)}
    moves, more = [], False
    try:
        time.sleep(1)
        say("moving it five times")
        for n in range(1, args.moves + 1):
            with Progress(f"move {n}"):
                moves.append(one_move(api, probes, n))
            if not moves[-1]["ok"]:
                ms = moves[-1]["status"].get("migrationState", {})
                print(f"    {RED}failed:{OFF} {ms.get('failureReason', 'no reason was given')}")
        more = drain(cluster, probes)
    finally:
        for p in probes.values():
            p.stop()
    return moves, post_copy(api, address) and more


def report(args, moves, hand):
    print()
    print(f"{BOLD}Phase times{OFF}, seconds after the migration object was created")
    table([[f"move {m['n']}"] + [fmt(m["phases"].get(p), 3) for p in PHASES] for m in moves], [""] + PHASES)
    print()
    print(f"{BOLD}What the guest and its clients saw{OFF}")
    rows = move_rows(moves)
    table(rows + ([["", *[""] * (len(HEAD) - 1)]] + hand if hand else []) + [["", *[""] * (len(HEAD) - 1)], [
        "KubeVirt 1.9", "published", fmt(KUBEVIRT["total"], 1), fmt(KUBEVIRT["pause"], 0), "", "456.0", "3-4", "88",
        fmt(KUBEVIRT["newgap"], 0), "", "", KUBEVIRT["broken"]]], HEAD)
    print(f"{DIM}pause: from the source's stop to the target's resume. new conn: the slowest new connection, through\n"
          f"the Service or directly. held gap: the longest wait for a reply on the held connections.{OFF}")
    ok = len(moves) == args.moves and all(m["ok"] for m in moves)
    held = not any(m["windows"][k]["held"]["broken"] for m in moves for k in m["windows"])
    print()
    if ok and held:
        print(f"{GREEN}All {len(moves)} moves succeeded; no connection broke.{OFF}")
    else:
        print(f"{RED}{sum(m['ok'] for m in moves)} of {args.moves} moves succeeded; held connections "
              f"{'stayed' if held else 'BROKE'}.{OFF}")
    return ok and held


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--bin", required=True)
    ap.add_argument("--tiny", required=True)
    ap.add_argument("--work", required=True)
    ap.add_argument("--moves", type=int, default=5)
    ap.add_argument("--keep", action="store_true", help="leave the cluster running and print the next commands")
    ap.add_argument("--no-hand", action="store_true", help="leave out the comparison with QEMU driven by hand")
    args = ap.parse_args()
    state = os.path.join(args.work, "cluster")
    cluster = ft.Cluster(state, 2, bin_=args.bin)
    ok = interrupted = False
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    try:
        if os.path.isdir(state):
            say("taking down what an earlier demo left")
            cluster.down()
        os.makedirs(args.work, exist_ok=True)
        moves, more = run_demo(args, cluster, state)
        hand = []
        if not args.no_hand and moves:
            say("the same guest, moved by QEMU driven by hand")
            with Progress(f"{args.moves} moves"):
                hand = by_hand(args, args.work, args.moves)
        ok = report(args, moves, hand) and more
        if not more:
            print(f"{RED}The drain or the post-copy move above did not go as it should.{OFF}")
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        interrupted = True
    except (OSError, RuntimeError, TimeoutError, subprocess.SubprocessError, ft.ApiError) as e:
        print(f"\n{RED}error:{OFF} {e}", file=sys.stderr)
        for name in ("apiserver", "controller", "node-1", "node-2"):
            log = f"{state}/logs/{name}.log"
            if os.path.exists(log):
                with open(log, errors="replace") as f:
                    lines = [l for l in f.readlines() if " error " in l or " warn " in l][-6:]
                for line in lines:
                    print(f"    {name}: {line.rstrip()}", file=sys.stderr)
    finally:
        if args.keep and ok:
            print(f"\nThe cluster is still up. Try:\n  export KUBECONFIG={cluster.kubeconfig}\n"
                  f"  {args.bin}/ferry get vmi -o wide\n  {args.bin}/ferry migrate tiny\n"
                  f"  {args.bin}/ferry console tiny\n"
                  f"  sudo {args.bin}/ferry down --state {state} --purge     (when done)")
        else:
            # Ctrl-C while cleaning up must not leave half of it.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            say("cleaning up")
            cluster.down()
            shutil.rmtree(args.work, ignore_errors=True)
    return 130 if interrupted else 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
