"""Bars of the migration engine: a shaped link, a drain, a scrape, the hand-over, a lost node; each against QEMU by hand
in the same run."""
import contextlib
import http.client
import os
import random
import statistics
import subprocess
import threading
import time

import ferrytest as ft
import handmove
import held
import lostnode
from migration import ask_in, moved, settings

MIB = 1 << 20


def p95(values):
    return sorted(values)[int(len(values) * 0.95)]


def interval(of, *samples):
    """Between what 19 of 20 values of a figure lie when its samples are drawn anew from themselves (bootstrap): how much
    of it is chance.  of: takes as many lists as there are, returns the figure."""
    rng = random.Random(1)
    values = sorted(of(*([rng.choice(s) for _ in s] for s in samples)) for _ in range(2000))
    return values[50], values[-51]


def all_at_once(fn, items):
    """fn of each item, in threads; seconds until the last one has ended, or the first error."""
    t, errors = time.time(), []

    def one(item):
        try:
            fn(item)
        except Exception as e:  # told by the one who waits
            errors.append(e)
    threads = [threading.Thread(target=one, args=(i,)) for i in items]
    for th in threads:
        th.start()
    for th in threads:
        th.join()
    if errors:
        raise RuntimeError(f"{len(errors)} of {len(threads)} failed: {errors[0]}")
    return time.time() - t


class Hand:
    """QEMU by hand: guests on two nodes of their own, and a way to ask them."""

    def __init__(self, b, count=1, memory=1024, append="tiny.heartbeat=1"):
        self.b, self.count, self.memory, self.append = b, count, memory, append
        self.vms = []

    def address(self, i):
        return handmove.ADDRESS if self.count == 1 else f"10.9.0.{20 + i}"

    def __enter__(self):
        self.nodes = handmove.HandNodes(os.path.join(self.b.work, "hand"), "fbb").up()
        self.inside = subprocess.Popen(["ip", "netns", "exec", self.nodes.ns("c"), "sleep", "7200"])
        try:
            for i in range(self.count):
                self.vms.append(self.new(i))
                self.vms[-1].start("a")
        except BaseException:
            self.__exit__()
            raise
        return self

    def new(self, i):
        tiny = self.b.args.tiny
        v = handmove.HandVm(self.nodes, self.memory, kernel=f"{tiny}/vmlinuz", initrd=f"{tiny}/initrd.gz",
                            append=f"console=ttyS0 quiet {self.append} tiny.ip={self.address(i)}/24", name=f"t{i:03}",
                            mac=f"52:54:00:fe:01:{i:02x}")
        v.port = 4444 + i
        return v

    def __exit__(self, *_):
        self.inside.kill()
        self.inside.wait()
        for v in self.vms:
            v.stop()
        self.nodes.down()

    def ask(self, line):
        return ask_in(self.inside.pid, line)

    def wait(self, timeout=90, i=0):
        def answers():
            try:
                return ask_in(self.inside.pid, "status", self.address(i))
            except (subprocess.CalledProcessError, ValueError):
                return None
        return ft.poll(answers, timeout, "the guest by hand answers")

    def move_all(self, at_once=5):
        """Seconds that moving all of them takes, some at once."""
        sem = threading.Semaphore(at_once)

        def one(v):
            with sem:
                v.move(port=v.port)
        return all_at_once(one, self.vms)


# ---- a link that is known ------------------------------------------------------------------------

LINK = 64 * MIB  # bytes a second
RATES = (0.5, 0.65, 0.9, 1.2)  # of the link
FILLED, REWRITTEN = 320, 64  # MiB of the guest's 512


def shape(enter):
    """enter(*command): runs it where the node's cable is."""
    enter("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", f"{LINK * 8}bit", "burst", "256kb",
          "latency", "50ms")


def fill(ask):
    """Writes most of the guest's memory once; what is rewritten later has been too."""
    ask(f"verify {FILLED} 1")
    ft.poll(lambda: ask("status")["memChecks"], 120, "the guest has filled its memory", 0.5)
    before = ask("status")["dirtied"]
    ask(f"dirty {REWRITTEN} 0")
    ft.poll(lambda: ask("status")["dirtied"] > before + REWRITTEN * 256, 60, "the guest has filled the rest", 0.5)
    ask("dirty 0")


def followed_move(api, name):
    """(the migration's last status, seconds it took, [(seconds, its forecast of the whole or None)])."""
    start, told, said = time.time(), [], f"{name}-{time.time():.3f}".replace(".", "-")
    made = api.create(ft.migration(said, name))
    for when, _, obj in api.watch("VirtualMachineInstanceMigration", said, made["metadata"]["resourceVersion"], 300):
        st = obj.get("status", {})
        if st.get("phase") in ft.FINAL:
            if st["phase"] != "Succeeded":
                raise RuntimeError(f"a move failed: {st.get('ferry')}")
            return st, when - start, told
        left = st.get("ferry", {}).get("secondsLeft")
        told.append((when - start, None if left is None else when - start + left))
    raise TimeoutError(f"the migration {said} did not end")


def forecast_error(took, told):
    """(the worst error of the forecasts from a quarter of the way on, as a share, below 0: too short; where on the way);
    1 when there was none."""
    late = [(at / took, 1.0 if t is None else (t - took) / took) for at, t in told if took / 4 <= at < took]
    where, error = max(late, key=lambda p: abs(p[1]), default=(1.0, 1.0))
    return error, where


def bench_shaped(b):
    """A link of 64 MiB/s, 512 MiB of memory: a guest that rewrites at 0.5 to 1.2 of it, against one at rest by hand."""
    runs = 1 if b.args.quick else max(3, b.args.runs // 3)
    cl = b.up()
    for node in ("node-1", "node-2"):
        shape(lambda *c, node=node: cl.in_node(node, *c, check=True))
    g = ft.Guest(b.start_guest("shaped", "512Mi"), timeout=60)
    fill(g.command)
    with Hand(b, memory=512) as hand, settings(cl.api, allowPostCopy=True):
        for n in "ab":
            shape(lambda *c, n=n: handmove.run("ip", "netns", "exec", hand.nodes.ns(n), *c))
        hand.wait()
        fill(hand.ask)
        raw = [hand.vms[0].move() for _ in range(runs)]
        seconds = statistics.median(r["total"] for r in raw)
        sent = statistics.median(r["bytes"] for r in raw)
        b.add("by hand, at rest, over 64 MiB/s", seconds, "s", samples=[r["total"] for r in raw])
        for rate in RATES:
            g.command(f"dirty {REWRITTEN} {rate * LINK / MIB}")
            ours = [followed_move(cl.api, "shaped") for _ in range(runs)]
            add_shaped(b, rate, ours, seconds, sent)


def add_shaped(b, rate, ours, seconds, sent):
    where = f"rewritten at {rate:g} of the link"
    took = [t for _, t, _ in ours]
    ratio = statistics.median(took) / seconds
    size = statistics.median(st["ferry"]["memory"]["transferredBytes"] for st, _, _ in ours) / sent
    over = [st["migrationState"].get("mode") for st, _, _ in ours]
    passes = statistics.median(st["ferry"]["passes"] for st, _, _ in ours)
    bars = rate <= 0.9
    b.add(f"{where}: time, against at rest by hand", ratio, "x", "<= 1.3" if bars else None,
          ratio <= 1.3 if bars else None, samples=took)
    b.add(f"{where}: bytes, against the same", size, "x", "<= 1.5" if bars else None, size <= 1.5 if bars else None)
    # counted when a pass begins, and when post-copy does: after two passes it is four
    b.add(f"{where}: passes that had begun; {'/'.join(sorted({m or 'PreCopy' for m in over}))}", float(passes), "",
          None if bars else "<= 4, PostCopy", None if bars else passes <= 4 and set(over) == {"PostCopy"})
    errors = [forecast_error(t, told) for _, t, told in ours]
    worst = statistics.median(100 * abs(e) for e, _ in errors)
    b.add(f"{where}: forecast of the whole, worst error after a quarter", worst, "%", "<= 15", worst <= 15,
          samples=[round(100 * e, 1) for e, _ in errors])
    b.add(f"{where}: that error was", 100 * statistics.median(at for _, at in errors), "% of the way on",
          samples=[told for _, _, told in ours])


# ---- a node that is emptied ----------------------------------------------------------------------


def bench_drain(b):
    """20 guests of 128 MiB leave a node, five at once, a held connection to each; against by hand, the same."""
    runs, n = (1, 8) if b.args.quick else (3, 20)
    cl = b.up()
    names = [f"d{i:02}" for i in range(n)]
    with settings(cl.api, parallelMigrationsPerCluster=5, parallelOutboundMigrationsPerNode=5):
        cl.ferry("cordon", "node-2")
        addresses = [b.start_guest(n, "128Mi", service=False) for n in names]
        cl.ferry("uncordon", "node-2")
        line, ours, node = held.Held(addresses), [], "node-1"
        for _ in range(runs):
            t = time.time()
            p = cl.ferry("drain", node, "--timeout", "300", check=False, timeout=320)
            ours.append(time.time() - t)
            if p.returncode:
                raise RuntimeError(f"the drain failed: {p.stderr}")
            cl.ferry("uncordon", node)
            node = "node-2" if node == "node-1" else "node-1"
        time.sleep(2)
        ends = line.stop()
        at = {cl.api.get("VirtualMachineInstance", n)["status"]["nodeName"] for n in names}
    b.down()
    with Hand(b, n, 128) as hand:
        for i in range(n):
            hand.wait(300, i)
        line = held.Held([hand.address(i) for i in range(n)], enter=hand.inside.pid)
        raw = [hand.move_all() for _ in range(runs)]
        line.stop()
    ratio = statistics.median(ours) / statistics.median(raw)
    broken = [e for e in ends if e["why"]]
    b.add(f"drain of {n} guests, five at once, against by hand", ratio, "x", "<= 1.15", ratio <= 1.15,
          statistics.median(raw), ours)
    b.add(f"the same: {len(ends)} held connections, broken", len(broken), "", "0", not broken, samples=broken)
    b.add("the same: held connections, longest gap", max(e["longestGapMs"] for e in ends), "ms")
    b.add("the same: all guests are on the other node", int(at == {node}), "", "1", at == {node})


# ---- somebody who looks --------------------------------------------------------------------------


class Scrapes:
    """/metrics of both nodes and the controller, 20 times a second each, over connections that stay."""

    def __init__(self, cluster):
        self.ends = [(f"{ft.UNDERLAY}.11", 8186), (f"{ft.UNDERLAY}.12", 8186), (f"{ft.UNDERLAY}.1", 8443)]
        self.cluster, self.n, self.seconds, self.stop, self.error = cluster, 0, 0.0, False, None

    def work(self):
        conns = [http.client.HTTPSConnection(a, p, context=self.cluster.api.ctx, timeout=10) for a, p in self.ends]
        begin = due = time.monotonic()
        try:
            while not self.stop:
                for c in conns:
                    c.request("GET", "/metrics")
                    if not c.getresponse().read():
                        raise RuntimeError("an empty scrape")
                self.n += 1
                due += 0.05
                time.sleep(max(0.0, due - time.monotonic()))
        except (OSError, RuntimeError, http.client.HTTPException) as e:
            self.error = e
        self.seconds = time.monotonic() - begin
        for c in conns:
            c.close()

    def __enter__(self):
        self.stop = False
        self.thread = threading.Thread(target=self.work)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop = True
        self.thread.join()
        if self.error:
            raise RuntimeError(f"a scrape failed: {self.error}")


def commands_in(cluster, name, seconds):
    """What the source's QEMU was asked within some seconds of a move's first pass, which is longer than that."""
    api = cluster.api
    where = api.get("VirtualMachineInstance", name)["status"]["nodeName"]
    said = f"{name}-{int(time.time() * 1000)}"
    api.create(ft.migration(said, name))
    api.wait("VirtualMachineInstanceMigration", said, lambda m: m["status"].get("phase") == "Running", 60)
    time.sleep(0.5)  # the commands that start it
    before = ft.qmp_commands(cluster, where, name)
    time.sleep(seconds)
    n = ft.qmp_commands(cluster, where, name) - before
    obj = api.wait("VirtualMachineInstanceMigration", said, lambda m: m["status"].get("phase") in ft.FINAL, 180)
    if obj["status"]["phase"] != "Succeeded":
        raise RuntimeError(f"a move failed: {obj['status'].get('ferry')}")
    return n


def bench_scrape(b):
    """/metrics scraped 20 times a second during a move: how much longer it takes, and what QEMU is asked."""
    runs = 4 if b.args.quick else max(20, b.args.runs)
    cl = b.up()
    g = ft.Guest(b.start_guest("scraped", "512Mi"), timeout=60)
    fill(g.command)
    b.start_guest("beside", "128Mi", service=False, affinity={"podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": {"matchLabels": {"app": "scraped"}}, "topologyKey": "kubernetes.io/hostname"}]}})
    where = cl.api.get("VirtualMachineInstance", "beside")["status"]["nodeName"]
    quiet, looked = [], []
    s = Scrapes(cl)
    idle = ft.qmp_commands(cl, where, "beside")
    clock, since = ft.launcher_of(cl, where, "beside")["usageCommands"], time.monotonic()
    for i in range(runs):
        for look in (False, True) if i % 2 else (True, False):
            with s if look else contextlib.nullcontext():
                (looked if look else quiet).append(moved(cl.api, "scraped")[1])
    idle = ft.qmp_commands(cl, where, "beside") - idle
    clock = (ft.launcher_of(cl, where, "beside")["usageCommands"] - clock) / (time.monotonic() - since) * 5
    with settings(cl.api, bandwidthPerMigration="48Mi"):
        alone = commands_in(cl, "scraped", 4)
        with s:
            beside = commands_in(cl, "scraped", 4)
    ratio = statistics.median(looked) / statistics.median(quiet)
    b.add("move of a filled 512 MiB guest while scraped, against not", 100 * (ratio - 1), "% longer", "< 2",
          ratio < 1.02, samples=looked)
    add_interval(b, "% longer", lambda m, q: 100 * (statistics.median(m) / statistics.median(q) - 1), looked, quiet)
    b.add("the same: a move that nobody looks at", statistics.median(quiet), "s", samples=quiet)
    b.add("the same: commands that an idle guest's QEMU got", idle, "", "0", idle == 0)
    b.add("the same: those of the clock, for its disks, while somebody scrapes", clock, "in 5 s", "<= 1", clock <= 1.05)
    b.add("the same: commands to the source's QEMU in 4 s of a move", beside, "", f"<= {alone + 1}", beside <= alone + 1,
          baseline=alone)


# ---- the hand-over -------------------------------------------------------------------------------


FIRST_LIMIT = 8  # ms: what the launcher lets QEMU plan for as the pause, until passes say more is needed


def side_by_side(b, options=None):
    """Moves of an idle 1 GiB guest by Ferry and of one by hand, in turn: ([(status, seconds)], [the hand's figures])."""
    b.up()
    b.start_guest("idle")
    ours, raw = [], []
    with Hand(b, memory=1024) as hand:
        hand.wait()
        time.sleep(1)
        for i in range(b.args.runs):
            both = [lambda: raw.append(hand.vms[0].move(options)), lambda: ours.append(moved(b.cluster.api, "idle"))]
            for one in both if i % 2 else reversed(both):  # neither is always the one after the other
                one()
                time.sleep(0.5)
    return ours, raw


def add_interval(b, unit, of, *samples):
    low, high = interval(of, *samples)
    b.add("the same: by chance alone, 19 of 20 times, from", low, unit)
    b.add("the same: to", high, unit)


def bench_handover(b):
    """Guest pause of an idle 1 GiB guest with TLS, against by hand, where the target starts by itself (autostart)."""
    # With QEMU's own 300 ms the hand would stop the guest with that much memory left.
    ours, raw = side_by_side(b, {"downtime-limit": FIRST_LIMIT})
    pause = [st["ferry"]["pauseMs"] for st, _ in ours]
    hand = [r["pauseMs"] for r in raw]
    mine, base = statistics.median(pause), statistics.median(hand)
    b.add("guest pause of a move with TLS, against by hand", mine / base, "x", "<= 1.2", mine <= 1.2 * base, samples=pause)
    add_interval(b, "x", lambda m, h: statistics.median(m) / statistics.median(h), pause, hand)
    b.add("the same: what the hand-over costs beyond QEMU's autostart", float(mine - base), "ms", "<= 5",
          mine - base <= 5, base, hand)
    add_interval(b, "ms", lambda m, h: float(statistics.median(m) - statistics.median(h)), pause, hand)
    asked = [st["ferry"]["permissionUs"] / 1000 for st, _ in ours]
    b.add("the same: of each pause, until the hand-over had been asked", statistics.median(asked), "ms", "<= 5",
          statistics.median(asked) <= 5, samples=asked)
    b.add("the same: nineteen of twenty within", p95(asked), "ms")
    q = [st["ferry"].get("qemuDowntimeMs") for st, _ in ours]
    b.add("the same: QEMU's own downtime", float(ft.median(q) or 0), "ms",
          baseline=ft.median(r["downtimeMs"] for r in raw))


# ---- a node that is lost -------------------------------------------------------------------------

SILENCE = 3
STEPS = ("fencing asked for", "proven", "new instance", "placed", "vCPUs run", "answers")


def lost_until_answers(c, vmi, name):
    """({step: seconds since now}, the new VMI) for one VM of a node that has just been lost."""
    node, uid, address = vmi["status"]["nodeName"], vmi["metadata"]["uid"], ft.vmi_address(vmi)
    epoch = (c.api.find("NodeFence", node) or {}).get("spec", {}).get("epoch", 0)
    begin, at = time.monotonic(), {}
    lostnode.lose(c, node, "power")

    def see(step, fact):
        if fact and step not in at:
            at[step] = time.monotonic() - begin

    while "answers" not in at:
        f = c.api.find("NodeFence", node) or {}
        see("fencing asked for", f.get("spec", {}).get("epoch", 0) > epoch)
        see("proven", f.get("status", {}).get("epoch", 0) > epoch and f["status"].get("state") == "Proven")
        now = c.api.find("VirtualMachineInstance", name)
        if now and now["metadata"]["uid"] != uid:
            see("new instance", True)
            see("placed", ft.phase(now) in ("Scheduled", "Running"))
            see("vCPUs run", ft.vmi_running(now))
        if "vCPUs run" in at:
            with contextlib.suppress(OSError, ValueError):
                ft.Guest(address).command("status", 0.3)
                see("answers", True)
        if time.monotonic() > begin + 90:
            raise TimeoutError(f"{name} does not answer: {at}; {now and now.get('status')}")
        time.sleep(0.02)
    return at, now


def boot_by_hand(hand):
    """Seconds from QEMU's start to the guest's first answer."""
    v = hand.new(0)
    t = time.monotonic()
    v.start("a")
    try:
        hand.wait()
        return time.monotonic() - t
    finally:
        v.stop()


def bench_fenced(b):
    """A node loses its power, an agent fences it: until its VM answers elsewhere, by parts; and a boot by hand."""
    runs = 2 if b.args.quick else max(20, b.args.runs)
    c = b.up(3)
    lostnode.agent(c)
    c.api.patch("FerryConfig", "ferry", {"spec": {"fencing": "Agent", "fenceAgent": {
        "program": "plug", "silenceSeconds": SILENCE, "timeoutSeconds": 10}}})
    # not on the first node: the way from here to the VMs leads through it
    away = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-1"]}]}]}}}
    b.start_guest("lost", "128Mi", service=False, affinity=away)
    vmi = c.api.get("VirtualMachineInstance", "lost")
    seen, boots = [], []
    with Hand(b, 0, 128) as hand:
        hand.count = 1
        for _ in range(runs):
            boots.append(boot_by_hand(hand))
            argv = lostnode.argv_of(lostnode.outer(c, vmi["status"]["nodeName"]))
            node = vmi["status"]["nodeName"]
            time.sleep(11)  # one that is younger may have a pod that was only not seen yet
            at, vmi = lost_until_answers(c, vmi, "lost")
            seen.append(at)
            lostnode.switch_on(c, node, argv)
    whole = [at["answers"] for at in seen]
    b.add("a lost node is fenced: its VM answers elsewhere, p95", p95(whole), "s", "<= 10", p95(whole) <= 10,
          samples=whole)
    before = [0.0] * runs
    for step in STEPS:
        now = [at[step] for at in seen]
        b.add(f"the same: until {step}, median of the part", statistics.median(n - o for n, o in zip(now, before)), "s",
              samples=now)
        before = now
    b.add("the same: boot by hand, to the first answer", statistics.median(boots), "s", samples=boots)
    own = statistics.median(whole) - SILENCE - statistics.median(boots)
    b.add(f"the same: beyond the silence of {SILENCE} s and that boot", own, "s")
