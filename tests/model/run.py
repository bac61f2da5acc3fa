#!/usr/bin/env python3
"""Check the model of the hand-over (handoff.pml) with SPIN: every property holds, every mutant breaks its own.

Usage: tests/model/run.py --tables PROGRAM --work DIR [--faults N] [--no-mutants] [NAME...]

PROGRAM prints the agents' tables (tables.c).  Each search is complete, or it counts as failed: there is no
bit state hashing, and a limit of depth or memory that was reached is a failure.  One line per check:
"ok NAME: what" or "FAIL NAME: what".  docs/internals/handoff.md says what each of them means.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
DEPTH, MEMORY_MB, SECONDS = 20000, 3000, 300

# claim, faults
HOLD = [("settles", 2), ("safe", 3)]
# what they deny must be possible: else the model would prove its properties by doing nothing
REACH = [("can_move", 0), ("can_cancel", 0), ("can_cancel_too_late", 0), ("can_be_lost", 1), ("can_take_back", 0)]
# mutant, the claim that must fail, with how many faults
MUTANTS = [
    ("M_NO_DURABLE_RELEASE", "one_runner", 1),
    ("M_RESUME_AFTER_RELEASE", "one_runner", 0),
    ("M_TARGET_COMPLETED_COUNTS", "one_runner", 1),
    ("M_NO_EPOCH", "own_epoch", 0),
    ("M_NO_EPOCH", "one_writer", 1),
    ("M_BEGIN_BEFORE_WRITTEN", "not_lost", 0),
    ("M_PERMISSION_ONCE", "not_lost", 1),
    ("M_LAUNCHER_WAITS_AT_PRESWITCHOVER", "not_lost", 1),
    ("M_UNRELEASED_STANDS", "not_lost", 1),
    ("M_UNDER_WAY_REFUSES", "not_lost", 1),
    ("M_CANCEL_BEFORE_ADOPTED", "not_lost", 1),
    ("M_DEAD_SOURCE_SPEAKS", "not_lost", 1),
    ("M_RELEASE_NOT_COMPLETED", "not_lost", 2),
    ("M_CANCEL_ONCE", "ends", 1),
    ("M_RESUMED_NOT_RECORDED", "ends", 2),
    ("M_COMPLETED_UNHEARD", "ends", 2),
]
# an edge taken out of the printed tables, as if it had been taken out of the C table
EDGES = [
    ("SRC_CANCELLING", "SRCEV_RELEASED", "not_lost", 0),
    ("DST_PERMITTED", "DSTEV_RESUMED", "ends", 0),
]


class Build:
    """One compiled search: the model with some -D, and perhaps without an edge of the tables.  Most are over
    before an optimizer would be."""

    def __init__(self, a, name, defs, edge=None, optimize="-O0"):
        self.dir = os.path.join(a.work, name)
        shutil.rmtree(self.dir, ignore_errors=True)
        os.makedirs(self.dir)
        shutil.copy(os.path.join(HERE, "handoff.pml"), self.dir)
        tables = subprocess.run([a.tables], check=True, capture_output=True, text=True).stdout
        if edge:
            tables, n = re.subn(rf"(_next_{edge[1]}\(s_\).*?)\(s_\) == {edge[0]} ->", r"\1false ->", tables)
            assert n == 1, f"the tables have no such edge: {edge}"
        with open(os.path.join(self.dir, "tables.inc"), "w") as f:
            f.write(tables)
        self.sh(["spin", *defs, "-a", "handoff.pml"])
        self.sh(["gcc", optimize, "-w", f"-DMEMLIM={MEMORY_MB}", "-o", "pan", "pan.c"])

    def sh(self, args):
        p = subprocess.run(args, cwd=self.dir, capture_output=True, text=True)
        if p.returncode:
            raise RuntimeError(f"{' '.join(args)}: {p.stdout}{p.stderr}")

    def search(self, claim):
        """(errors, what was searched); errors is None when the search was not complete and found nothing."""
        try:
            p = subprocess.run(["./pan", "-a", f"-m{DEPTH}", "-N", claim], cwd=self.dir, capture_output=True,
                               text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return None, f"not complete after {SECONDS} s"
        out = p.stdout + p.stderr
        errors = re.search(r"errors: (\d+)", out)
        states = re.search(r"(\d+) states, stored", out)
        took = re.search(r"elapsed time ([\d.e+]+) seconds", out)
        if not errors or not states or f"({claim})" not in out:
            return None, out[-300:]
        n = int(errors.group(1))
        bad = re.search(r"max search depth too small|out of memory|[Ss]earch not completed|BITSTATE|hash-compact", out)
        if n == 0 and bad:
            return None, f"the search was not complete: {bad.group(0)}"
        return n, f"{int(states.group(1)):,} states, {float(took.group(1)) if took else 0:.1f} s"


def holds(a, claim, faults):
    faults = a.faults if a.faults is not None else faults
    n, what = Build(a, f"hold-{claim}", [f"-DFAULTS={faults}"], optimize="-O2").search(claim)
    return n == 0, f"holds/{claim}", f"up to {faults} faults: {what}" if n in (0, None) else f"{faults} faults: violated"


def reaches(a, claim, faults):
    n, what = Build(a, f"reach-{claim}", [f"-DFAULTS={faults}"]).search(claim)
    return bool(n), f"reaches/{claim}", "found" if n else f"never happens: {what}"


def breaks(a, mutant, claim, faults):
    n, what = Build(a, f"{mutant}-{claim}", [f"-DFAULTS={faults}", f"-D{mutant}"]).search(claim)
    return bool(n), f"mutant/{mutant}", f"{claim} fails with {faults} faults" if n else f"{claim} was not broken: {what}"


def edge_breaks(a, state, event, claim, faults):
    n, what = Build(a, f"{state}-{event}", [f"-DFAULTS={faults}"], (state, event)).search(claim)
    return (bool(n), f"edge/{state}-{event}",
            f"without it {claim} fails with {faults} faults" if n else f"{claim} was not broken: {what}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tables", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("--faults", type=int, help="other bounds for the properties (3 takes minutes and gigabytes)")
    p.add_argument("--no-mutants", action="store_true")
    p.add_argument("names", nargs="*", help="only checks whose name has one of these")
    a = p.parse_args()
    a.tables, a.work = os.path.abspath(a.tables), os.path.abspath(a.work)
    todo = [(holds, c) for c in HOLD]
    if not a.no_mutants:
        todo += [(reaches, c) for c in REACH] + [(breaks, c) for c in MUTANTS] + [(edge_breaks, c) for c in EDGES]
    if a.names:
        todo = [(f, c) for f, c in todo if any(n in " ".join(map(str, c)) for n in a.names)]
    failed = 0

    def one(t):
        try:
            return t[0](a, *t[1])
        except Exception as e:
            return False, f"{t[0].__name__}/{t[1][0]}", str(e)

    with ThreadPoolExecutor(2) as pool:
        for ok, name, what in pool.map(one, todo):
            failed += not ok
            print(f"{'ok' if ok else 'FAIL'} {name}: {what}", flush=True)
    return 1 if failed or not todo else 0


if __name__ == "__main__":
    sys.exit(main())
