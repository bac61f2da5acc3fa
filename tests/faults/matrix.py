"""The fault matrix of a move: when x what, and how it may end.

A moment is a failpoint (docs/internals/launcher.md, handoff.md) or a phase that is met; a fault is what is done then.
The letters of an outcome:

  S  the guest runs on at the source; the migration says Failed and why
  T  the guest runs at the target; the migration says Succeeded
  X  the guest was lost; its VMI says Failed, and the run strategy starts another one
  D  the virtual machine is gone, because somebody deleted it

"Waits, and goes on by itself" is T here (S after an abort).
"""
import collections

# hold: who gets there stands until the fault is done.  Without it the fault comes while the move goes on.
Moment = collections.namedtuple("Moment", "phase name side hold")

MOMENTS = [
    Moment("Ac", "created", None, False),
    Moment("Sc", "Scheduling", None, False),
    Moment("Sc", "Scheduled", None, False),
    Moment("Pt", "target-agent.prepares", "target", True),
    Moment("Pt", "target.listens", "target", True),
    Moment("Tr", "source-agent.asks-key", "source", True),
    Moment("Tr", "source.starts", "source", True),
    Moment("Pc", "source.copies", "source", False),
    # It would not end; somebody has asked to finish it with a pause ...
    Moment("Fi", "asked", None, False),
    Moment("Fi", "source-agent.finishes", "source", True),
    Moment("Fi", "source.finishes", "source", True),
    # ... and here the guest stands for it, and the rest of its memory goes over.
    Moment("Fi", "standing", None, False),
    # The guest stands at the source, and may still go on there ...
    Moment("So", "source.stands", "source", True),
    Moment("So", "source-agent.continues", "source", True),
    Moment("So", "source.continues", "source", True),
    Moment("So", "source.completed", "source", True),
    Moment("So", "source.release-fails", "source", True),
    # ... from here on it is released: only the target may run it ...
    Moment("So", "source.released", "source", True),
    Moment("So", "source-agent.permits", "source", True),
    Moment("So", "target-agent.permitted", "target", True),
    Moment("So", "target.permitted", "target", True),
    Moment("So", "target.recorded", "target", True),
    # ... and here it runs.
    Moment("So", "target.runs", "target", True),
    Moment("Cl", "target-agent.runs", "target", True),
    Moment("Cl", "target-agent.written", "target", True),
    Moment("Cl", "source-agent.gives", "source", True),
    Moment("Cl", "agent.cleaned", "source", True),
    # A cancel is on its way.
    Moment("Ab", "source-agent.cancels", "source", True),
    Moment("Ab", "source.cancels", "source", True),
    # The move has failed after the switch: the guest runs at the source, the VMI says so, its frames still go away.
    Moment("Bk", "source-agent.closes", "source", True),
    # Post-copy: the guest runs at the target, and a part of its memory is at the source still ...
    Moment("Po", "streaming", None, False),
    # ... and the link between the halves is cut, until the fault is over.
    Moment("Po", "paused", None, False),
]
COMMIT = "source.released"  # from this moment on the decision is on the disk
TOLD = "target-agent.permitted"  # and from this one on the target knows it
ORDER = [m.name for m in MOMENTS]
EARLY = ("Ac", "Sc", "Pt", "Tr")

# kind: how it is done (run.py); what: on what; seconds: how long, None: until the move has ended.
Fault = collections.namedtuple("Fault", "name kind what seconds")

DAEMONS = ["apiserver", "controller", "source-agent", "target-agent", "source-launcher", "target-launcher"]
QEMUS = ["source-qemu", "target-qemu"]
FAULTS = (
    [Fault(f"kill-{w}", "kill", w, 0) for w in DAEMONS + QEMUS] +
    [Fault(f"end-{w}", "end", w, 0) for w in DAEMONS] +
    [Fault(f"stop-{w}", "stop", w, 3) for w in DAEMONS + QEMUS] +
    [Fault(f"away-{w}", "away", w, 4) for w in DAEMONS[:4]] +
    [Fault(f"hang-{w}", "stop", w, 13) for w in QEMUS] +  # longer than the switch may take
    [Fault("gone-apiserver", "gone", "apiserver", 20)] +  # longer than the whole move
    [Fault("cut-data", "cut", ["data"], 2),
     Fault("cut-data-from-source", "cut", ["data-from-source"], 2),
     Fault("cut-data-from-target", "cut", ["data-from-target"], 2),
     Fault("cut-data-for-good", "cut", ["data"], None),
     Fault("cut-agents", "cut", ["agents"], 3),
     Fault("cut-api-from-source", "cut", ["api-from-source"], 3),
     Fault("cut-api-from-target", "cut", ["api-from-target"], 3),
     Fault("cut-source", "cut", ["all-from-source", "all-to-source"], 4),
     Fault("cut-target", "cut", ["all-from-target", "all-to-target"], 4),
     Fault("mute-source", "cut", ["all-from-source"], 3),
     Fault("mute-target", "cut", ["all-from-target"], 3),
     Fault("expired-source", "expire", "source", 3),
     Fault("expired-target", "expire", "target", 3),
     Fault("clock-ahead-at-source", "clock", ("source", 1), 3),
     Fault("clock-ahead-at-target", "clock", ("target", 1), 3),
     Fault("clock-back-at-source", "clock", ("source", -1), 3),
     Fault("clock-back-at-target", "clock", ("target", -1), 3),
     Fault("lost-source", "lose", "source", None),  # the whole machine, until the VM runs elsewhere without it
     Fault("lost-target", "lose", "target", None),
     Fault("storage-hangs", "freeze", None, 3),
     Fault("storage-hangs-long", "freeze", None, 20),  # longer than the switch may take
     # Somebody else holds the locks on the guest's disk, so that nobody can take it anew.
     Fault("disk-held", "hold", None, 3),
     Fault("disk-held-long", "hold", None, 20),
     Fault("disk-held-for-good", "hold", None, None),
     Fault("abort", "abort", None, 0),
     Fault("second-move", "second", None, 0),
     Fault("delete-vm", "delete", None, 0),
     Fault("reboot", "reboot", None, 0),
     Fault("record-fails", "fail", None, 0)])

# With a move that is finished on request.
FINISHING = ([f"{k}-{w}" for k in ("kill", "stop") for w in DAEMONS + QEMUS] +
             ["cut-data", "cut-data-for-good", "gone-apiserver", "abort"])


def is_released(m):
    return m.phase in ("So", "Cl") and ORDER.index(m.name) >= ORDER.index(COMMIT)


def has_target(m):
    """Is there a QEMU (and a launcher) at the target?"""
    return m.phase not in ("Ac", "Sc") or m.name == "Scheduled"


def exists(m, f):
    """Not every fault can be had at every moment."""
    if (f.kind == "fail") != (m.name == "source.release-fails"):
        return False
    if (f.what in ("target-launcher", "target-qemu") or f.name == "lost-target") and not has_target(m):
        return False
    if m.name == "paused" and (f.kind in ("cut", "gone", "reboot")):  # it is cut; nobody is reached until it is not
        return False
    if m.phase == "Fi":  # what differs from memory that goes over is who has heard of the wish, and may die with it
        return f.name in FINISHING and (f.kind != "gone" or m.name != "asked")  # nobody would hear of it
    if f.kind == "stop" and f.seconds > 10:
        return m.phase in ("Pc", "So", "Po", "Ab")
    if f.kind == "abort":
        return m.phase != "Ab"
    if f.kind == "second":  # once the VMI is written the move may have ended, and a second one is right
        return m.phase not in ("Cl", "Bk") or m.name == "target-agent.runs"
    if f.kind == "gone":  # from here on the two agents need nobody else; before, the start is perhaps not written yet
        return m.phase in ("Pc", "So", "Cl", "Po", "Ab", "Bk") or m.name == "source.starts"
    if f.kind == "hold":  # from when the target opens its disks until it has taken them
        return m.phase == "Pt" or (m.phase == "So" and ORDER.index(m.name) <= ORDER.index("target.recorded"))
    if f.kind == "reboot":  # a guest that stands hears nothing
        return m.phase in EARLY + ("Pc", "Po")
    return True


def machine_lost(m, side):
    if side == "target" or m.phase == "Po":
        return qemu_lost(m, side)
    # With the machine goes the word that only the source can give, unless it has reached the target before.
    return "T" if is_released(m) and ORDER.index(m.name) >= ORDER.index(TOLD) else "X"


def qemu_lost(m, side):
    if m.phase == "Po":
        # Two halves; only when the last page has come is the target's a whole one.
        return "XT" if side == "source" and m.name == "streaming" else "X"
    if side == "source":
        if m.phase in EARLY + ("Pc", "Fi", "Ab", "Bk"):
            return "X"
        if is_released(m):
            return "T"
        # All is over there when QEMU says completed; before that the only copy dies.
        return "XT" if m.name == "source.completed" else "X"
    if m.phase in EARLY + ("Pc", "Fi", "Ab", "Bk"):
        return "S"
    # From completed on nobody but the target can run it (docs/internals/handoff.md).
    return "X" if is_released(m) or m.name == "source.completed" else "S"


def may_end(m, f):
    """The letters of the outcomes that this cell may have."""
    if f.kind == "fail":
        return "S"
    if f.kind == "delete":
        return "D"
    if f.kind == "kill" and f.what in QEMUS:
        return qemu_lost(m, f.what.split("-")[0])
    if f.kind == "hold":
        return "X" if f.seconds is None else "T"  # a target takes them last, when only it may run
    if f.kind == "lose":
        return machine_lost(m, f.what)
    if m.phase in ("Ab", "Bk"):
        return "S"
    if m.phase == "Po":
        return "T"
    if is_released(m):
        return "T"
    if f.kind in ("second", "clock") or f.what in ("apiserver", "controller"):
        return "T"
    if f.name == "cut-data-for-good" and m.phase in EARLY + ("Pc", "Fi"):
        return "S"
    # A wish that has been heard is carried out by whoever comes next, until the guest stands.
    if m.phase == "Fi" and m.name != "standing" and f.what in ("source-agent", "target-agent"):
        return "T"
    return "ST"


CELLS = {f"{m.phase}.{m.name}/{f.name}": (m, f) for m in MOMENTS for f in FAULTS if exists(m, f)}


# What each of these found is mended (docs/internals/faults.md), and must stay so: they are in every selection.
FOUND = ["Cl.target-agent.written/kill-target-agent", "Tr.source.starts/end-source-launcher",
         "Pc.source.copies/lost-source", "Po.streaming/lost-target", "So.source.continues/disk-held",
         "Cl.agent.cleaned/kill-source-agent", "Cl.target-agent.runs/kill-source-launcher", "So.target.recorded/end-source-agent",
         "Cl.source-agent.gives/away-source-agent", "Ab.source.cancels/expired-target",
         "Cl.target-agent.written/away-source-agent", "Pc.source.copies/end-source-agent",
         "Bk.source-agent.closes/kill-source-agent", "So.target.runs/kill-target-agent", "Pc.source.copies/clock-ahead-at-source"]


def choose(rng, n):
    """n cells: what has found something, then so that every moment and every fault is among them while n allows it.  And
    those that are not."""
    names = sorted(CELLS)
    rng.shuffle(names)
    todo_m, todo_f = set(ORDER), {f.name for f in FAULTS}
    out = []

    def gain(name):
        m, f = CELLS[name]
        return (name in FOUND, (m.name in todo_m) + (f.name in todo_f))
    while names and len(out) < n:
        best = max(names, key=gain)  # the first one of the shuffled that brings most
        m, f = CELLS[best]
        todo_m.discard(m.name)
        todo_f.discard(f.name)
        names.remove(best)
        out.append(best)
    rng.shuffle(out)
    return out, sorted(todo_m | todo_f)
