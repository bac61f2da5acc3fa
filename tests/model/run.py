#!/usr/bin/env python3
"""Check the models of the hand-over with SPIN (handoff.pml, and postcopy.pml for what post-copy adds): every
property holds, every mutant breaks its own.

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

# Of each model: what holds (claim, faults); what must be possible, else the model would prove its properties by
# doing nothing (claim, faults); mutants (defines, the claim that must fail, faults); edges taken out of the printed
# tables, as if they had been taken out of the C table (state, event, the claim that must fail, faults).
MODELS = {
    "handoff": {
        "holds": [("settles", 2), ("safe", 3)],
        "reaches": [("can_move", 0), ("can_cancel", 0), ("can_cancel_too_late", 0), ("can_be_lost", 1),
                    ("can_take_back", 0)],
        "mutants": [
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
        ],
        "edges": [
            ("SRC_CANCELLING", "SRCEV_RELEASED", "not_lost", 0),
            ("DST_PERMITTED", "DSTEV_RESUMED", "ends", 0),
        ],
    },
    "postcopy": {
        "holds": [("settles", 2), ("safe", 3)],
        "reaches": [("can_move", 0), ("can_be_mended", 1), ("can_wait", 1), ("can_fall_back", 1),
                    ("can_cancel_too_late", 1), ("can_lose_half", 1)],
        "mutants": [
            ("M_BARE_ACTIVE", "one_runner", 1),
            ("M_PERMISSION_BEFORE_RELEASE", "one_runner", 1),
            ("M_CANCEL_WHEN_SPLIT", "one_runner", 1),
            ("M_CANCEL_AFTER_SWITCH", "not_lost", 0),
            ("M_CANCEL_BEFORE_ADOPTED", "not_lost", 1),
            ("M_LATE_IS_NO", "not_lost", 1),
            ("M_RESUME_WHEN_SPLIT", "one_runner", 0),
            ("M_RELEASED_AGAIN", "one_runner", 1),
            ("M_KILLED_WHEN_TAKEN", "not_lost", 0),
            ("M_NO_SPLIT_RECORD", "not_lost", 1),
            ("M_MENDED_ONCE", "not_lost", 2),
            ("M_ADDRESS_NOT_RECORDED", "not_lost", 2),
            ("M_PORTS_FORGOTTEN", "not_lost", 2),
            ("M_LOST_BEFORE_RUN", "not_lost", 1),
            ("M_ADOPTED_LISTENING", "not_lost", 2),
            ("M_HALF_OF_THE_LIVING", "not_lost", 1),
            ("M_HALF_UNASKED", "not_lost", 2),
            ("M_DEAD_SOURCE_SPEAKS", "settles", 1),
            ("M_RELEASE_ONCE", "not_lost", 1),
            ("M_ADOPTED_WHOLE", "ends", 1),
            ("M_COMPLETED_UNHEARD", "ends", 1),
            ("M_FAILED_TARGET_ASKED M_FAILURE_UNHEARD", "ends", 2),
            ("M_FAILURE_UNHEARD", "ends", 2),
            ("M_ASKED_FOR_EVER", "ends", 1),
        ],
        "edges": [
            ("SRC_RELEASED", "SRCEV_SHARED", "not_lost", 0),
            ("SRC_STREAMING", "SRCEV_SENT", "ends", 0),
            ("DST_FETCHING", "DSTEV_WHOLE", "ends", 0),
            ("DST_FETCHING", "DSTEV_FAILED", "ends", 1),
        ],
    },
}

class Build:
    """One compiled search: the model with some -D, and perhaps without an edge of the tables.  Most are over
    before an optimizer would be."""

    def __init__(self, a, model, name, defs, edge=None, optimize="-O0"):
        self.seconds = a.seconds
        self.dir = os.path.join(a.work, f"{model}-{name}")
        shutil.rmtree(self.dir, ignore_errors=True)
        os.makedirs(self.dir)
        shutil.copy(os.path.join(HERE, f"{model}.pml"), self.dir)
        tables = subprocess.run([a.tables], check=True, capture_output=True, text=True).stdout
        if edge:
            tables, n = re.subn(rf"(_next_{edge[1]}\(s_\).*?)\(s_\) == {edge[0]} ->", r"\1false ->", tables)
            assert n == 1, f"the tables have no such edge: {edge}"
        with open(os.path.join(self.dir, "tables.inc"), "w") as f:
            f.write(tables)
        self.sh(["spin", *defs, "-a", f"{model}.pml"])
        self.sh(["gcc", optimize, "-w", f"-DMEMLIM={MEMORY_MB}", "-o", "pan", "pan.c"])

    def sh(self, args):
        p = subprocess.run(args, cwd=self.dir, capture_output=True, text=True)
        if p.returncode:
            raise RuntimeError(f"{' '.join(args)}: {p.stdout}{p.stderr}")

    def search(self, claim):
        """(errors, what was searched); errors is None when the search was not complete and found nothing."""
        try:
            p = subprocess.run(["./pan", "-a", f"-m{DEPTH}", "-N", claim], cwd=self.dir, capture_output=True,
                               text=True, timeout=self.seconds)
        except subprocess.TimeoutExpired:
            return None, f"not complete after {self.seconds} s"
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


def holds(a, model, claim, faults):
    faults = a.faults if a.faults is not None else faults
    n, what = Build(a, model, f"hold-{claim}", [f"-DFAULTS={faults}"], optimize="-O2").search(claim)
    return (n == 0, f"{model}/holds/{claim}",
            f"up to {faults} faults: {what}" if n in (0, None) else f"{faults} faults: violated")


def reaches(a, model, claim, faults):
    n, what = Build(a, model, f"reach-{claim}", [f"-DFAULTS={faults}"]).search(claim)
    return bool(n), f"{model}/reaches/{claim}", "found" if n else f"never happens: {what}"


def breaks(a, model, mutant, claim, faults):
    defs, name = [f"-D{m}" for m in mutant.split()], mutant.replace(" ", "+")
    n, what = Build(a, model, f"{name}-{claim}", [f"-DFAULTS={faults}", *defs]).search(claim)
    return bool(n), f"{model}/mutant/{name}", f"{claim} fails with {faults} faults" if n else f"{claim} was not broken: {what}"


def edge_breaks(a, model, state, event, claim, faults):
    n, what = Build(a, model, f"{state}-{event}", [f"-DFAULTS={faults}"], (state, event)).search(claim)
    return (bool(n), f"{model}/edge/{state}-{event}",
            f"without it {claim} fails with {faults} faults" if n else f"{claim} was not broken: {what}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tables", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("--faults", type=int, help="other bounds for the properties (3 takes minutes and gigabytes)")
    p.add_argument("--seconds", type=int, default=SECONDS, help="that a search may take")
    p.add_argument("--no-mutants", action="store_true")
    p.add_argument("names", nargs="*", help="only checks whose name has one of these")
    a = p.parse_args()
    a.tables, a.work = os.path.abspath(a.tables), os.path.abspath(a.work)
    kinds = {"holds": holds} if a.no_mutants else {
        "holds": holds, "reaches": reaches, "mutants": breaks, "edges": edge_breaks}
    # the long ones first, of both models, so that no core waits for the last
    todo = [(f, (model, *c)) for kind, f in kinds.items() for model, checks in MODELS.items() for c in checks[kind]]
    if a.names:
        todo = [(f, c) for f, c in todo if any(n in " ".join(map(str, c)) for n in a.names)]
    failed = 0

    def one(t):
        try:
            return t[0](a, *t[1])
        except Exception as e:
            return False, f"{t[1][0]}/{t[0].__name__}/{t[1][1]}", str(e)

    with ThreadPoolExecutor(2) as pool:
        for ok, name, what in pool.map(one, todo):
            failed += not ok
            print(f"{'ok' if ok else 'FAIL'} {name}: {what}", flush=True)
    return 1 if failed or not todo else 0


if __name__ == "__main__":
    sys.exit(main())
