"""Figures of the migration engine: against QEMU by hand in the same run, and what a long row of moves leaves behind."""
import collections
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

import ferrytest as ft
import handmove
from held import Held


def ask_in(pid, line, address=handmove.ADDRESS):
    """A command for the guest's agent, from another network namespace."""
    out = subprocess.run(["nsenter", "-t", str(pid), "-n", sys.executable, "-c",
                          "import socket,sys\n"
                          f"s = socket.create_connection(('{address}', 7778), 30)\n"
                          "s.sendall(sys.argv[1].encode() + b'\\n')\nprint(s.makefile().readline())", line],
                         capture_output=True, text=True, check=True).stdout
    return json.loads(out)


@contextlib.contextmanager
def settings(api, gates=(), **migrations):
    def set_(value):
        api.patch("KubeVirt", "kubevirt", {"spec": {"configuration": value}}, ns="kubevirt")
    set_({"developerConfiguration": {"featureGates": list(gates)}, "migrations": migrations})
    try:
        yield
    finally:
        set_({"developerConfiguration": None, "migrations": None})


def moved(api, name, **spec):
    obj, phases = ft.move(api, name, timeout=300, **spec)
    if obj["status"]["phase"] != "Succeeded":
        raise RuntimeError(f"a move failed: {obj['status'].get('ferry')}")
    return obj["status"], phases["Succeeded"]


def rewrite(command):
    """512 MiB flat out, from when each page has been written: before that a guest mostly writes what nobody has sent."""
    command("dirty 512 0")
    ft.poll(lambda: command("status")["dirtied"] > 2 * 512 * 256, 60, "the guest has written all of it twice", 0.2)


def bench_postcopy(b):
    """512 MiB rewritten flat out: post-copy chosen by Ferry, against by hand after the first pass."""
    runs = max(3, b.args.runs // 3)
    b.up()
    address = b.start_guest("post")
    g = ft.Guest(address, timeout=60)
    first = g.status()
    ours, pauses, passes = [], [], []
    with settings(b.cluster.api, allowPostCopy=True):
        rewrite(g.command)
        for _ in range(runs):
            st, took = moved(b.cluster.api, "post")
            if st["migrationState"]["mode"] != "PostCopy":
                raise RuntimeError(f"it was no post-copy: {st['ferry']}")
            ours.append(took)
            pauses.append(st["ferry"]["pauseMs"])
            passes.append(st["ferry"]["passes"])
    last = g.status()
    b.down()
    nodes = handmove.HandNodes(os.path.join(b.work, "hand"), "fbb").up()
    hv = handmove.HandVm(nodes, 1024, kernel=f"{b.args.tiny}/vmlinuz", initrd=f"{b.args.tiny}/initrd.gz",
                         append=f"console=ttyS0 quiet tiny.ip={handmove.ADDRESS}/24")
    enter = subprocess.Popen(["ip", "netns", "exec", nodes.ns("c"), "sleep", "7200"])
    raw, raw_pauses = [], []
    try:
        hv.start("a")
        time.sleep(10)
        rewrite(lambda line: ask_in(enter.pid, line))
        for _ in range(runs):
            r = hv.move(post_copy_after=1)
            raw.append(r["total"])
            raw_pauses.append(r["pauseMs"])
            time.sleep(1)
    finally:
        enter.kill()
        enter.wait()
        hv.stop()
        nodes.down()
    ratio = statistics.median(ours) / statistics.median(raw)
    b.add("512 MiB rewritten flat out, post-copy, against by hand", ratio, "x", "<= 1.2", ratio <= 1.2,
          statistics.median(raw), ours)
    b.add("the same: guest pause", float(statistics.median(pauses)), "ms", baseline=statistics.median(raw_pauses),
          samples=pauses)
    b.add("the same: passes before it went over", float(statistics.median(passes)), "", samples=passes)
    b.add("the same: boot id and memory as before", int(last["bootID"] == first["bootID"] and last["memBad"] == 0), "",
          "1", last["bootID"] == first["bootID"] and last["memBad"] == 0)


def refused_within(api, name):
    """Seconds until it is known with a reason: the create is refused once the VMI says so, and Failed before that."""
    begin = time.monotonic()
    try:
        obj, phases = ft.move(api, name)
    except ft.ApiError as e:
        if "NodesNotLiveMigratable" not in str(e):
            raise
        return time.monotonic() - begin
    if obj["status"]["phase"] != "Failed" or not obj["status"]["ferry"]["placement"]:
        raise RuntimeError(f"it was not refused: {obj['status']}")
    return phases["Failed"]


def bench_refused(b):
    """A move that no wait can help: created to refused or Failed."""
    b.up()
    b.start_guest("pinned", "128Mi", service=False, nodeSelector={"kubernetes.io/hostname": "node-1"})
    took = [refused_within(b.cluster.api, "pinned") for _ in range(b.args.runs)]
    b.add("impossible migration, refused with a reason per node", max(took), "s", "<= 1", max(took) <= 1, samples=took)


def bench_pause(b):
    """A declared pause of 300 ms under load: how often is it overrun, and what does that cost?"""
    n = 20 if b.args.quick else 200
    b.up()
    g = ft.Guest(b.start_guest("pause", "256Mi"), timeout=30)
    g.command("verify 16")
    g.command("dirty 16 10")
    over, back, pauses = 0, 0, []
    with settings(b.cluster.api, gates=["MigrationStallDetection"], maxDowntimeMs=300):
        for _ in range(n):
            obj, _ = ft.move(b.cluster.api, "pause", timeout=180)
            f = obj["status"]["ferry"]
            if obj["status"]["phase"] == "Succeeded":
                pauses.append(f["pauseMs"])
                over += f["pauseMs"] > 300
            elif f.get("reason") == "PauseLimitExceeded":
                back += 1
            else:
                raise RuntimeError(f"a move failed: {f}")
    s = g.status()
    b.add(f"declared pause of 300 ms overrun in {n} moves under load", 100 * over / n, "%", "<= 1", over <= n / 100)
    b.add("the same: taken back before the guest was given away", back, "moves")
    b.add("the same: pause", float(statistics.median(pauses)), "ms", samples=pauses)
    b.add("the same: wrong bytes", s["memBad"], "", "0", s["memBad"] == 0)


def descriptors(pids):
    """The fewest within five seconds: connections come and go."""
    seen = []
    for _ in range(10):
        seen.append(sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids))
        time.sleep(0.5)
    return min(seen)


def held(cluster):
    """Processes, descriptors and resident KiB of the daemons, objects in the API (events apart: they go after a while)."""
    api, out = cluster.api, {"of": {}}
    out["processes"] = len(cluster.everything())
    daemons = {d: cluster.pid(d) for d in ("apiserver", "controller", "node-1", "node-2")}
    for d, pid in daemons.items():
        out["of"][d] = ft.pss_kib(pid)
    out["KiB"] = sum(out["of"].values())
    out["descriptors"] = descriptors(daemons.values())
    out["events"] = len(api.list("Event"))
    out["objects"] = sum(len(api.list(k)) for k in ("Pod", "VirtualMachineInstanceMigration", "Handover", "PortBinding"))
    return out


def bench_row(b):
    """A long row of moves there and back under network, disk and memory load: wrong bytes, and what is left of them.

    Events go after a minute here, and the watch history and the controller's notes of events fill in the first half: what
    grows in the second one grows for ever."""
    n = 100 if b.args.quick else 1000
    b.up(apiserver_args="--event-ttl 1m")
    image = os.path.join(b.work, "row.img")
    shutil.copyfile(f"{b.args.tiny}/disk.img", image)
    b.cluster.shared_disk("row", image)
    api = b.cluster.api
    api.create(ft.vm("row", "256Mi", pvc="row"))
    address = ft.vmi_address(api.wait("VirtualMachineInstance", "row", ft.vmi_running, 60))
    g = ft.Guest(address, timeout=30)
    first = g.wait(90)
    for load in ("verify 16 8", "dirty 16 8", "disk 4194304 1"):
        g.command(load)
    held_open, before, others = Held([address]), None, collections.Counter()
    try:
        for i in range(n):
            st = ft.move(api, "row", timeout=300)[0]["status"]
            if st["phase"] != "Succeeded":
                others[st.get("ferry", {}).get("reason") or st["migrationState"].get("failureReason")] += 1
            if i == n // 2:
                time.sleep(6)  # the last frames are sent on for five seconds
                before = held(b.cluster)
            if (i + 1) % 100 == 0:
                print(f"    {i + 1} moves, {sum(others.values())} of them did not succeed", flush=True)
        time.sleep(6)
        after, s = held(b.cluster), g.status()
    finally:
        connections = held_open.stop()
    bad = s["memBad"] + s["diskBad"]
    b.add(f"{n} moves there and back under load: wrong bytes", bad, "", "0", bad == 0 and s["bootID"] == first["bootID"])
    b.add("the same: pages and blocks checked", s["memChecks"] + s["diskChecks"], "")
    b.add("the same: moves that did not succeed", sum(others.values()), "", "0", not others)
    for why, times in others.most_common():
        print(f"    {times} times: {why}")
    broken = [c["why"] for c in connections if c["why"]]
    b.add("the same: held connections that broke", len(broken), "", "0", not broken)
    for what in ("processes", "descriptors", "objects"):
        grown = after[what] - before[what]
        b.add(f"the same: growth in {what} in the second half", grown, "", "0", grown <= 0, baseline=before[what])
    print("    " + ", ".join(f"{d} {before['of'][d]} -> {after['of'][d]} KiB" for d in after["of"]) +
          f", {before['events']} -> {after['events']} events")
    grown = after["KiB"] - before["KiB"]
    b.add("the same: growth in memory of the daemons in its second half", grown / 1024, "MiB", "<= 4", grown <= 4096, before["KiB"] / 1024)
