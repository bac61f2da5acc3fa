#!/usr/bin/env python3
"""The fault matrix of live migration with real processes (docs/internals/faults.md).

  run.py                          64 cells, so that each moment and each fault is among them
  run.py --long                   every cell, five times
  run.py --once --part 2/3        the second third of all cells, once (three of them run beside each other)
  run.py --seed 7 --cell NAME     one again, as it was
  run.py --list [WORD...]         the cells, and how each may end

Each run: wait for the moment by its event, wait up to 50 ms, do the fault, let everything go on; then the outcome must be
one of the cell's, and everything else as if no move had been.
"""
import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback

sys.dont_write_bytecode = True
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests", "lib"))
os.environ.setdefault("FERRY_BIN", os.path.join(TOP, "build/release/src/main"))
import ferrytest as ft  # noqa: E402
import matrix  # noqa: E402
from world import AWAY, NAME, NODES, Monitors, Violation, World, other  # noqa: E402

MEMORY_PORTS = "49152-51300"
AGENT_PORT = 8186
END = 75  # seconds that a move may take to end after its fault is over
IP = {"node-1": f"{ft.UNDERLAY}.11", "node-2": f"{ft.UNDERLAY}.12", None: f"{ft.UNDERLAY}.1"}

class Run:
    """One cell, once."""

    def __init__(self, world, cell, rng):
        self.w = world
        self.moment, self.fault = matrix.CELLS[cell]
        self.cell = cell
        self.offset = rng.uniform(0, 0.05)
        self.migration = None
        self.points = []
        self.undo = []
        self.cuts = []
        self.told = []
        self.monitors = None
        self.lost = None  # the node, when it is
        self.known = set()  # pods that had a QEMU before it came back
        self.status = {}
        self.times = []
        self.since = time.monotonic()

    def node_of(self, side):
        return self.source if side == "source" else other(self.source)

    # -- the moment

    def point(self, side, name):
        p = self.w.point(self.node_of(side), name)
        self.points.append(p)
        return p

    def start(self):
        w = self.w
        w.n += 1
        self.name = f"m{w.n}"
        vmi = w.api.get("VirtualMachineInstance", NAME)
        self.source = vmi["status"]["nodeName"]
        self.vmi_uid = vmi["metadata"]["uid"]
        m = self.moment
        if m.phase in ("Po", "Fi"):
            w.outrun(True, post_copy=m.phase == "Po")
        self.before = w.guest.status()
        self.monitors = Monitors(w)
        at = self.point(m.side, m.name) if m.side else None
        if m.phase in ("Ab", "Fi"):
            copies = self.point("source", "source.copies")
        elif m.phase == "Bk":
            release = self.point("source", "source.release-fails")
        self.migration = w.api.create(ft.migration(self.name, NAME))
        if m.phase == "Ab":
            copies.wait(30)
            copies.release()
            self.abort()
        elif m.phase == "Fi":
            copies.wait(30)
            copies.release()
            self.finish(m.name)
        elif m.phase == "Bk":
            release.wait(30)
            release.fail()
        if at:
            at.wait(30)
            if m.phase == "Bk":
                self.wait_failed()
            if not m.hold:
                at.release()
        elif m.phase == "Po":
            self.split(m.name)
        elif m.phase != "Fi" and m.name != "created":
            self.watch_phase(m.name)
        time.sleep(self.offset)  # of the fault's moment, which the event has given
        return at

    def watch_phase(self, phase):
        order = ["Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", *ft.FINAL]
        rv = self.migration["metadata"]["resourceVersion"]
        for _, _, obj in self.w.api.watch("VirtualMachineInstanceMigration", self.name, rv, 30):
            p = ft.phase(obj)
            if p and order.index(p) >= order.index(phase):
                return
        raise TimeoutError(f"the migration never became {phase}")

    def wait_failed(self):
        """The VMI says so."""
        uid = self.migration["metadata"]["uid"]

        def says(v):
            ms = v["status"].get("migrationState") or {}
            return ms.get("migrationUid") == uid and ms.get("failed")
        self.w.api.wait("VirtualMachineInstance", NAME, says, 30)

    def finish(self, name):
        """Asked for, as `ferry migrate finish` asks; the guest stands for it once QEMU has been let go on."""
        continues = self.point("source", "source.continues") if name == "standing" else None
        self.w.api.patch("VirtualMachineInstanceMigration", self.name,
                         {"metadata": {"annotations": {"ferry.dev/finish": "pause"}}})
        if continues:
            continues.wait(30)
            ft.poll(lambda: self.monitors.running() == [], 5, "QEMU has said that it stands")
            continues.release()

    def split(self, name):
        """The guest runs at the target, and what it lacks is at the source."""
        uid = self.migration["metadata"]["uid"]

        def vmi(test):
            def met(v):
                ms = v["status"].get("migrationState") or {}
                return ms.get("migrationUid") == uid and test(ms, (v["status"].get("ferry") or {}).get("migration") or {})
            self.w.api.wait("VirtualMachineInstance", NAME, met, 60)
        vmi(lambda ms, _: ms.get("mode") == "PostCopy")
        if name == "paused":
            self.cut("data")
        vmi(lambda ms, _: ms.get("targetNodeDomainDetected"))
        if name == "paused":
            vmi(lambda _, ferry: ferry.get("stage") == "postcopy-paused")

    # -- the faults

    def pids(self, what):
        side, _, kind = what.rpartition("-")
        return self.w.pids(kind, self.node_of(side) if side else None)

    def do_kill(self, f, signo=signal.SIGKILL):
        self.w.signal_all(self.victims(f), signo)

    def victims(self, f):
        pids = self.pids(f.what)
        # At the end of a move the source's own may be gone a moment before us, and the target's once it has failed.
        goes = {"Cl": "source", "Bk": "target"}.get(self.moment.phase)
        self.must(pids or (goes and f.what.startswith(goes)), f"there is no {f.what}")
        return pids

    def do_end(self, f):
        self.do_kill(f, signal.SIGTERM)

    def do_stop(self, f):
        pids = self.victims(f)
        self.w.signal_all(pids, signal.SIGSTOP)
        self.undo.append(lambda: self.w.signal_all(pids, signal.SIGCONT))

    def do_away(self, f):
        """Killed, and not started again for a while."""
        who = self.node_of(f.what.split("-")[0]) if "-" in f.what else f.what
        top = self.w.supervisor(who)
        pids = self.pids(f.what)
        self.w.signal_all([top], signal.SIGSTOP)
        self.undo.append(lambda: self.w.signal_all([top], signal.SIGCONT))
        self.w.signal_all(pids, signal.SIGKILL)

    def do_gone(self, f):
        """Away for longer than all that is left of the move."""
        self.do_away(f)

    def do_cut(self, f):
        self.cut(*f.what)

    def cut(self, *what):
        s, t = self.source, other(self.source)

        def pair(a, b, match=""):
            return a, f"ip saddr {IP[a]} ip daddr {IP[b]} {match}"
        data_s = [pair(s, t, f"tcp dport {MEMORY_PORTS}")]
        data_t = [pair(t, s, f"tcp sport {MEMORY_PORTS}")]
        rules = {
            "data": data_s + data_t, "data-from-source": data_s, "data-from-target": data_t,
            "agents": [pair(a, b, f"tcp {p} {AGENT_PORT}") for a, b in ((s, t), (t, s)) for p in ("dport", "sport")],
            "api-from-source": [pair(s, None)], "api-from-target": [pair(t, None)],
            "all-from-source": [(s, f"ip saddr {IP[s]}")], "all-from-target": [(t, f"ip saddr {IP[t]}")],
            "all-to-source": [(None, f"ip daddr {IP[s]}"), pair(t, s)],
            "all-to-target": [(None, f"ip daddr {IP[t]}"), pair(s, t)],
        }
        before = list(self.cuts)
        self.cuts += [r for x in what for r in rules[x]]
        self.w.cut(*self.cuts)

        def mend():
            self.cuts = before
            self.w.cut(*before)
        self.undo.append(mend)

    def do_lose(self, f):
        """A machine is lost with all that runs on it; nothing of it says goodbye."""
        node = self.lost = self.node_of(f.what)
        self.cut(f"all-from-{f.what}", f"all-to-{f.what}")
        how = self.w.lose(node)
        self.cuts = []
        self.w.cut()  # there is no link any more that could be cut
        self.undo = [lambda: self.w.switch_on(node, how)]
        if node == NODES[0]:
            self.w.go_by(other(node))

    def do_expire(self, f):
        """The agent comes back with a certificate that is over, and later with its own one."""
        node = self.node_of(f.what)
        self.w.expire(node)

        def renew():
            self.w.renew(node)
            with contextlib.suppress(ProcessLookupError):  # its supervisor waits: it starts with the right one
                self.w.signal_all(self.w.pids("agent", node), signal.SIGKILL)
        self.undo.append(renew)
        self.w.signal_all(self.w.pids("agent", node), signal.SIGKILL)

    def do_clock(self, f):
        """A node's clock is an hour off, and then right again: two jumps."""
        side, hours = f.what
        node = self.node_of(side)
        self.w.turn_clock(node, hours * 3600)
        self.undo.append(lambda: self.w.turn_clock(node, 0))

    def do_freeze(self, f):
        """Whatever writes to the disk that both nodes see hangs."""
        self.w.storage.freeze()
        self.undo.append(self.w.storage.thaw)

    def do_hold(self, f):
        """A stranger holds QEMU's locks on the guest's disk, as one that runs with it would."""
        self.undo.append(self.w.hold_disk())

    def abort(self):
        with contextlib.suppress(ft.ApiError):
            self.w.ask(lambda: self.w.api.delete("VirtualMachineInstanceMigration", self.name))

    def do_abort(self, f):
        self.abort()

    def do_second(self, f):
        try:
            self.w.api.create(ft.migration(f"{self.name}-second", NAME))
        except ft.ApiError as e:
            if e.status == 400 and "in-flight migration" in e.message:
                return
            raise
        raise Violation("a second move was taken while one is under way")

    def do_delete(self, f):
        self.w.api.delete("VirtualMachine", NAME)

    def do_reboot(self, f):
        self.w.guest.last_word("reboot")

    def do_fail(self, f):
        self.points[0].fail()

    # -- the end

    def final(self):
        """The migration once it has ended (or is gone): what it says, or what the VMI says of it."""
        end = time.monotonic() + END
        uid = self.migration["metadata"]["uid"]
        seen = None
        while time.monotonic() < end:
            obj = self.w.find("VirtualMachineInstanceMigration", self.name)
            if obj is None or ft.phase(obj) in ft.FINAL:
                break
            seen = obj
            time.sleep(0.05)
        else:
            raise Violation(f"the move does not end: {json.dumps(seen['status'])[:1500]}")
        vmi = self.w.find("VirtualMachineInstance", NAME)
        ms = ((vmi or {}).get("status", {}).get("migrationState") or {})
        self.status = (obj or {}).get("status") or {}
        if ms.get("migrationUid") != uid:
            ms = self.status.get("migrationState") or {}
        self.ms = ms
        return vmi

    def reason(self):
        return (self.ms.get("failureReason") or (self.status.get("ferry") or {}).get("reason") or
                (self.status.get("ferry") or {}).get("message"))

    def is_lost(self, vmi):
        return vmi is None or vmi["metadata"]["uid"] != self.vmi_uid or ft.phase(vmi) in ft.FINAL

    def outcome(self):
        """The letter."""
        if self.fault.kind == "delete":
            self.w.wait_for("VirtualMachine", NAME, lambda v: v is None, END)
            self.w.wait_for("VirtualMachineInstance", NAME, lambda v: v is None, 20)
            return "D"
        vmi = self.final()
        phase = self.status.get("phase")
        is_gone = phase is None
        may = matrix.may_end(self.moment, self.fault)
        if (may == "X" or "X" in may and phase == "Failed") and not self.is_lost(vmi):
            # A move that had ended says nothing of a guest that dies a moment later: its VMI does.
            with contextlib.suppress(TimeoutError):
                vmi = self.w.wait_for("VirtualMachineInstance", NAME, self.is_lost, 20)
        if self.is_lost(vmi):
            if phase == "Failed" and not self.reason():
                self.told.append("no reason in the migration")
            return "X"
        said = self.ms.get("completed") and not self.ms.get("failed")
        if (phase == "Succeeded") or (is_gone and said):
            self.must(said, f"Succeeded, and the VMI says {self.ms}")
            return "T"
        self.must(phase == "Failed" or is_gone, f"ended as {phase}")
        self.must(not said, f"Failed, and the VMI says {self.ms}")
        self.must(self.reason() or is_gone, "Failed without a reason")
        return "S"

    def must(self, fact, text):
        if not fact:
            raise Violation(f"{text}; migration {json.dumps(self.status)[:800]}")

    def check_place(self, letter):
        want = self.source if letter == "S" else other(self.source)
        vmi = self.w.wait_for("VirtualMachineInstance", NAME, lambda v: v and v["status"].get("nodeName"), 10)
        self.must(vmi["status"]["nodeName"] == want, f"{letter}, and the VMI names {vmi['status']['nodeName']}")
        self.must(ft.phase(vmi) == "Running", f"the VMI is {ft.phase(vmi)}")

        def where():
            return [n for n in NODES if self.w.pids("qemu", n)]
        try:
            ft.poll(lambda: where() == [want], 20, "one QEMU")
        except TimeoutError:
            raise Violation(f"{letter}: QEMU runs on {where()}, not on {want} alone") from None

    def check_guest(self):
        w, b = self.w, self.before
        now = w.guest.wait(30)
        if self.fault.kind != "reboot":
            self.must(now["bootID"] == b["bootID"], "the guest has booted anew")
            self.must(now["heartbeat"] >= b["heartbeat"], f"the heartbeat went back: {b} {now}")

            def works():
                s = w.guest.status()
                return s["memChecks"] > now["memChecks"] and s["diskChecks"] > now["diskChecks"]
            ft.poll(works, 30, "the guest goes on checking its memory and disk")
            now = w.guest.status()
            if now["kernelBad"] != b["kernelBad"] and not now["kernelText"]:
                now = w.guest.status()  # it is counted a moment before its text is there
            self.must(not ft.kernel_complains(now, b), f"the guest's kernel complains: {now['kernelText']}")
        self.must(now["memBad"] == 0 and now["diskBad"] == 0, f"corrupt: {now}")

    def check_finished(self):
        self.must(self.ms.get("mode") == "Paused", f"it was not finished with a pause: {self.ms}")
        ferry = self.status.get("ferry") or {}
        self.must(ferry.get("finishRequested") and ferry.get("pauseMs"), f"the wish is forgotten: {ferry}")

    def allowed(self, letter):
        may = matrix.may_end(self.moment, self.fault)
        if letter not in may:
            raise Violation(f"ended as {letter}, may end as {'/'.join(may)}: {self.reason()}; VMI "
                            f"{json.dumps(self.ms)[:600]}; migration {json.dumps(self.status)[:600]}")
        return letter

    def check(self):
        letter = self.outcome()
        self.lap("end")
        if self.moment.phase == "Po" and letter == "T":
            self.must(self.ms.get("mode") == "PostCopy", f"it was no post-copy: {self.ms}")
            self.w.outrun(False)
        self.letter = self.allowed(letter)
        if self.moment.phase == "Fi" and letter == "T":
            self.check_finished()
        if letter in "ST":
            self.check_place(letter)
            self.check_guest()
            if self.moment.phase == "Fi":
                self.w.outrun(False)
        elif letter == "D":
            self.w.make_vm()
        if letter == "X" or self.fault.kind == "reboot":
            self.w.find_guest()
        if self.lost:
            self.check_returned()
        self.monitors.close()
        self.monitors.check()
        self.lap("guest")
        self.w.forget(self.name)
        self.lap("forget")
        self.w.settle()
        self.lap("settle")

    def lap(self, name):
        now = time.monotonic()
        self.times.append((name, now - self.since))
        self.since = now

    def go(self):
        if self.fault.kind == "lose":
            self.w.mind_silence(True)
        try:
            held = self.start()
            self.lap("event")
            getattr(self, f"do_{self.fault.kind}")(self.fault)
            if held:
                held.release()
            self.wait_out()
            self.heal()
            self.w.calm()
            self.lap("calm")
            self.check()
        finally:
            self.heal()
            if self.monitors:
                self.monitors.close()
            if self.moment.phase in ("Po", "Fi"):
                self.w.end_outrun()
            if self.fault.kind == "lose":
                self.w.mind_silence(False)

    def wait_out(self):
        """As long as the fault lasts."""
        if self.fault.kind == "gone":
            self.ends_by_itself()
            return
        if self.fault.kind == "lose":
            self.goes_on_without()
            return
        if self.fault.seconds is not None:
            time.sleep(self.fault.seconds)
            return
        end = time.monotonic() + 60
        while time.monotonic() < end:
            obj = self.w.find("VirtualMachineInstanceMigration", self.name)
            if obj is None or ft.phase(obj) in ft.FINAL:
                return
            time.sleep(0.1)

    def goes_on_without(self):
        """The machine stays away and is called lost: the VM runs elsewhere, if it does not there already."""
        w, node = self.w, self.lost
        w.call_lost(node, True)
        ft.poll(lambda: not w.pods_on(node), 40, f"all pods of {node} are over", 0.2)
        letter = self.allowed(self.outcome())
        if letter == "X":
            vmi = w.find_guest()
            self.must(vmi["status"]["nodeName"] == other(node), f"it was started on {vmi['status']['nodeName']}")
        else:
            self.check_place(letter)
            self.check_guest()
        self.known = set(self.monitors.by_pod)
        self.lap("without")

    def check_returned(self):
        """What was lost and is back has started nothing."""
        new = [m.label for uid, m in self.monitors.by_pod.items()
               if uid not in self.known and m.label.split()[0] == self.lost]
        self.must(not new, f"the machine that was lost has started {new}")

    def ends_by_itself(self):
        """While nobody can be told: the guest runs where it shall, alone, and answers until the fault is over."""
        over = time.monotonic() + self.fault.seconds
        want = self.source if self.moment.phase in ("Ab", "Bk") else other(self.source)
        try:
            ft.poll(lambda: self.monitors.running() == [want], self.fault.seconds, "the move ends by itself")
        except TimeoutError:
            raise Violation(f"without the API server the guest runs on {self.monitors.running()}, not on {want}") from None
        while time.monotonic() < over:
            try:
                self.w.guest.wait(8)
            except TimeoutError:
                raise Violation(f"without the API server nobody reaches the guest, which runs on {want}") from None
            time.sleep(0.5)

    def heal(self):
        for p in self.points:
            p.release()
        while self.undo:
            self.undo.pop()()


class Suite:
    def __init__(self, a):
        self.a = a
        self.world = None
        self.failed = []
        self.has_turned = False  # the times in this world's logs tell no order

    def one(self, i, total, cell, rep):
        rng = random.Random(f"{self.a.seed}/{cell}/{rep}")
        t = time.monotonic()
        run = None
        try:
            if not self.world:
                self.world = World(self.a.work, self.a.tiny)
                self.world.up()  # what it has made goes also when it is interrupted in it
                t = time.monotonic()
            run = Run(self.world, cell, rng)
            run.go()
            how = ", ".join([f"ended as {run.letter}", *run.told])
            if self.a.times:
                how += " (" + ", ".join(f"{k} {v:.1f}" for k, v in run.times) + ")"
            print(f"ok {cell}: {how}, {time.monotonic() - t:.1f} s, {run.offset * 1000:.0f} ms after the event "
                  f"({i}/{total})", flush=True)
        except Exception as e:  # a violation, a time-out, or the harness: all of them end this world
            what = str(e) if isinstance(e, (Violation, TimeoutError)) else traceback.format_exc()
            print(f"FAIL {cell}: {what}\n"
                  f"  again: tests/faults/run.py --seed {self.a.seed} --cell '{cell}'"
                  f"{f' --repetition {rep}' if rep else ''}", flush=True)
            self.failed.append(cell)
            self.keep(cell, rep)
            self.close()

    def keep(self, cell, rep):
        if not self.world or not os.path.isdir(f"{self.world.state}/logs"):
            return
        to = os.path.join(self.a.work, "logs", f"faults-{cell.replace('/', '-')}-{rep}")
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(f"{self.world.state}/logs", to)
        for node in NODES:
            with contextlib.suppress(OSError, ValueError):
                pods = self.world.pods_dir(node)
                for uid in os.listdir(pods):
                    for name in ("launcher.log", "qemu.log", "serial.log", "migration.json"):
                        with contextlib.suppress(OSError):
                            shutil.copyfile(f"{pods}/{uid}/{name}", f"{to}/{node}-{uid[:8]}-{name}")
        with contextlib.suppress(OSError), open(f"{to}/net.txt", "w") as f:
            f.write(self.world.ways())
        print(f"  logs: {to}", flush=True)

    def close(self):
        world, self.world = self.world, None
        if not world:
            return
        with contextlib.suppress(Exception):
            for who in ("apiserver", "controller", *NODES):
                top = world.supervisor(who)
                world.signal_all([top, *ft.descendants(top)], signal.SIGCONT)
        kind = "clock" if self.has_turned else "moves"
        logs = os.path.join(self.a.work, "logs", f"faults-{kind}-{time.time():.0f}")
        with contextlib.suppress(OSError):
            shutil.copytree(f"{world.state}/logs", logs)
        world.down()

    def trace(self):
        """Every step of a move that a node logged is one of the hand-over's tables."""
        tables = os.environ.get("FERRY_MODEL_TABLES")
        base = os.path.join(self.a.work, "logs")
        logs = sorted(os.path.join(base, d, f) for d in os.listdir(base) if d.startswith("faults-moves-")
                      for f in os.listdir(os.path.join(base, d)) if f.startswith("node-"))
        if not tables or not logs:
            return
        p = subprocess.run([sys.executable, os.path.join(TOP, "tests/model/trace.py"), "--tables", tables, *logs],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if p.returncode:
            self.failed.append("trace")
        print(f"{'FAIL' if p.returncode else 'ok'} trace: {p.stdout.strip()[-3000:]}", flush=True)

    @staticmethod
    def turns(cell):
        return matrix.CELLS[cell][1].kind == "clock"

    def run(self, todo):
        base = os.path.join(self.a.work, "logs")
        for d in os.listdir(base) if os.path.isdir(base) else []:
            if d.startswith("faults-"):
                shutil.rmtree(os.path.join(base, d), ignore_errors=True)
        os.makedirs(base, exist_ok=True)
        todo = sorted(todo, key=lambda t: self.turns(t[0]))  # those last, in a world of their own
        todo = todo[self.a.skip:]
        done = 0
        try:
            for i, (cell, rep) in enumerate(todo, 1):
                if self.turns(cell) and not self.has_turned:
                    self.close()
                    self.has_turned = True
                self.one(i, len(todo), cell, rep)
                done = i
        except KeyboardInterrupt:
            print(f"ended early: --skip {self.a.skip + done} goes on from here", flush=True)
            self.failed.append("ended early")
        finally:
            self.close()
        self.trace()
        return done


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=int(time.strftime("%Y%m%d")), help="default: today's date")
    p.add_argument("--runs", type=int, default=64)
    p.add_argument("--long", action="store_true", help="every cell, five times")
    p.add_argument("--once", action="store_true", help="every cell, once")
    p.add_argument("--part", default="1/1", metavar="I/N", help="the Ith of N shares of the runs")
    p.add_argument("--skip", type=int, default=0, metavar="K", help="all but the first K of them: to go on after a break")
    p.add_argument("--cell", action="append", default=[], help="this one; a word picks all that have it")
    p.add_argument("--repetition", type=int, default=0)
    p.add_argument("--list", action="store_true")
    p.add_argument("--times", action="store_true", help="where a run's time goes")
    p.add_argument("--tiny", default=os.environ.get("FERRY_TINY", os.path.join(TOP, "build/tiny")))
    p.add_argument("--work", default=os.environ.get("FERRY_WORK", os.path.join(TOP, "build/tests")))
    a = p.parse_args()
    names = [c for c in matrix.CELLS if any(w == c or (w not in matrix.CELLS and w in c) for w in a.cell)]
    if a.cell and not names:
        p.error(f"no cell is called {' or '.join(a.cell)}")
    if a.list:
        for c in names or matrix.CELLS:
            print(f"{c:55} {'/'.join(matrix.may_end(*matrix.CELLS[c]))}")
        return 0
    if a.long or a.once:
        todo = [(c, r) for r in range(5 if a.long else 1) for c in names or matrix.CELLS]
        random.Random(a.seed).shuffle(todo)
    elif names:
        todo = [(c, a.repetition) for c in names]
    else:
        chosen, left_out = matrix.choose(random.Random(a.seed), a.runs)
        if left_out:
            print(f"not among them, with {a.runs} runs: {', '.join(left_out)}", flush=True)
        todo = [(c, 0) for c in chosen]
    i, n = (int(x) for x in a.part.split("/"))
    todo = todo[i - 1::n]
    os.makedirs(a.work, exist_ok=True)
    print(f"seed {a.seed}: {max(0, len(todo) - a.skip)} runs of {len(matrix.CELLS)} cells", flush=True)
    for s in (signal.SIGINT, signal.SIGTERM):  # also where a shell has it ignored: its cluster is not left behind
        signal.signal(s, signal.default_int_handler)
    suite = Suite(a)
    done = suite.run(todo)
    print(f"{done} runs, {len(suite.failed)} failed", flush=True)
    return 1 if suite.failed else 0


if __name__ == "__main__":
    sys.exit(main())
