#!/usr/bin/env python3
"""Check the agents' logs of real moves against the protocol's tables.

Usage: tests/model/trace.py --tables PROGRAM LOG...      (the logs of all nodes of one cluster)

Reads the lines that step() prints in src/virt/node/migration_source.c and migration_target.c:
  TIME info  ferry-node: move UID (source of 'ns/name'): Moving -> Switching on Stands
Rules: each transition is an edge of the printed table; each begins where the last one of its side ended, or
at Idle (an agent that was restarted); the target is permitted only after the source was released, and the
source gives the guest away only after the target has run it; a released source never goes back.
"""
import argparse
import json
import re
import subprocess
import sys

LINE = re.compile(r"^(\S+Z) +info +ferry-node: move (\S+) \((source|target) of '([^']*)'\): (\w+) -> (\w+) on (\w+)$")
NO_RETURN = {"Switching", "Cancelling", "Failed"}


def load_tables(program):
    return json.loads(subprocess.run([program, "--json"], check=True, capture_output=True, text=True).stdout)


def read(lines):
    """[(time, uid, side, vm, from, to, event)]"""
    return [m.groups() for m in map(LINE.match, (l.rstrip("\n") for l in lines)) if m]


def check(steps, tables):
    """(number of moves, what is wrong)"""
    edges = {side: {tuple(e) for e in tables[side]["edges"]} for side in ("source", "target")}
    at, seen, bad = {}, {}, []
    for time, uid, side, vm, old, new, event in sorted(steps, key=lambda s: s[0]):
        def wrong(why):
            bad.append(f"{time} move {uid} ({side} of '{vm}'): {old} -> {new} on {event}: {why}")
        s, last = seen.setdefault(uid, {"source": set(), "target": set()}), at.get((uid, side), "Idle")
        if (old, event, new) not in edges[side]:
            wrong("the table has no such edge")
        if old not in (last, "Idle"):
            wrong(f"the last state was {last}")
        if side == "target" and new in tables["target"]["may_run"] and "Released" not in s["source"]:
            wrong("the source has not been released")
        if side == "source" and new == "Given" and not s["target"] & {"Running", "Done"}:
            wrong("the target has not run it")
        if side == "source" and new in NO_RETURN and "Released" in s["source"]:
            wrong("a released source goes back")
        at[uid, side] = new
        s[side].add(new)
    return len(seen), bad


def check_files(paths, program):
    steps = []
    for p in paths:
        with open(p, errors="replace") as f:
            steps += read(f)
    return check(steps, load_tables(program))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tables", required=True)
    p.add_argument("logs", nargs="+")
    a = p.parse_args()
    n, bad = check_files(a.logs, a.tables)
    for b in bad:
        print(b)
    print(f"{n} moves, {len(bad)} steps that the protocol does not have")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
