"""What tests/run-tests schedules with: processes that all end, lanes of work beside each other, whole lines of output.

docs/internals/testing.md has the picture.
"""
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

LOW = 10  # nice: a tenth of what another has while both want the processor, so nothing starves
POLITE_SECONDS = 60  # that a stopped run has to take its clusters down itself

_lock = threading.Lock()
_running = {}  # Popen: the signal that asks it to end
_stopping = threading.Event()
_alone = threading.Event()  # nobody is left whom nice processes could disturb
_this = threading.local()  # .nice: of what this thread starts


class Stopped(Exception):
    """Nothing is started any more."""


def be_nice(level):
    """What the calling thread starts from now on leaves the processors to others; 0: as all."""
    _this.nice = level


def is_nice():
    return getattr(_this, "nice", 0)


@contextlib.contextmanager
def nice(level):
    before = is_nice()
    be_nice(level)
    try:
        yield
    finally:
        be_nice(before)


def start(args, ask=signal.SIGTERM, **kw):
    """A Popen in a session of its own, so that a Ctrl-C reaches it through stop(), once; ask: what ends it cleanly."""
    level = 0 if _alone.is_set() else is_nice()
    if level:
        args = ["nice", "-n", str(level), *args]
    with _lock:
        if _stopping.is_set():
            raise Stopped
        p = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             errors="replace", start_new_session=True, **kw)
        _running[p] = ask
    if level:
        _session_nice(p, level)
    return p


def _session_nice(p, level):
    """Where the kernel shares out by session, nice counts inside of one only."""
    with contextlib.suppress(OSError), open(f"/proc/{p.pid}/autogroup", "w") as f:
        f.write(str(level))


def lift():
    """All guests have ended: what was nice need not be any more (on a machine that others use, it would get nothing)."""
    _alone.set()
    with _lock:
        running = list(_running)
    for p in running:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PGRP, p.pid, 0)
        _session_nice(p, 0)


def _signal(p, number):
    with contextlib.suppress(ProcessLookupError):
        if p.poll() is None:
            os.killpg(p.pid, number)


def sh(args, timeout, told=None, **kw):
    """Runs a program; returns (exit code, output), 124 after the timeout, 127 when there is none.  told(line): each line
    as it comes.  Raises Stopped when stop() ended it."""
    try:
        p = start(args, **kw)
    except FileNotFoundError as e:
        return 127, str(e)
    late = threading.Event()

    def end():
        late.set()
        _signal(p, signal.SIGKILL)
    timer = threading.Timer(timeout, end)
    timer.daemon = True
    timer.start()
    lines = []
    try:
        for line in p.stdout:
            lines.append(line)
            if told and not _stopping.is_set():
                told(line)
        code = p.wait()
    finally:
        timer.cancel()
        if p.poll() is not None:  # else this thread was interrupted, and stop() ends it
            p.stdout.close()
            with _lock:
                _running.pop(p, None)
    if _stopping.is_set():
        raise Stopped
    out = "".join(lines)
    return (124, f"{out}\nstopped after {timeout} s") if late.is_set() else (code, out)


def stop():
    """Asks all that runs to end, waits for it, and kills what has not ended by then.  Nothing starts any more."""
    with _lock:
        _stopping.set()
        running = list(_running.items())
    for p, ask in running:
        _signal(p, ask)
    end = time.monotonic() + POLITE_SECONDS
    for p, _ in running:
        try:
            p.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            _signal(p, signal.SIGKILL)


class Screen:
    """Lines of several threads, whole: results to stdout, what goes on to stderr."""

    def __init__(self):
        self.lock = threading.Lock()

    def out(self, *lines):
        with self.lock:
            sys.stderr.flush()
            print(*lines, sep="\n", flush=True)

    def live(self, line):
        with self.lock:
            sys.stdout.flush()
            print(line, file=sys.stderr, flush=True)


class Task:
    """What one lane does without a break.  run(lane) gets the lane's number, from 1."""

    def __init__(self, part, name, seconds, run):
        self.part, self.name, self.seconds, self.run = part, name, seconds, run
        self.took = 0.0


class Lanes:
    """Takes the longest task first, so that all lanes end together."""

    def __init__(self, tasks, lanes, ended):
        """ended(task): called in the lane's thread, also when the task raised something (task.error)."""
        self.todo = sorted(tasks, key=lambda t: -t.seconds)
        self.busy = [0.0] * lanes
        self.ended = ended
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self._lane, args=(i,), daemon=True) for i in range(1, lanes + 1)]

    def start(self):
        for t in self.threads:
            t.start()

    def join(self):
        for t in self.threads:
            t.join()

    def _lane(self, i):
        while True:
            with self.lock:
                if not self.todo or _stopping.is_set():
                    return
                task = self.todo.pop(0)
            began = time.monotonic()
            task.error = None
            try:
                task.run(i)
            except Stopped:
                return
            except Exception as e:
                task.error = e
            task.took = time.monotonic() - began
            self.busy[i - 1] += task.took
            self.ended(task)


def processor_times():
    """(seconds that the machine's processors worked, seconds that there were), since it was started."""
    with open("/proc/stat") as f:
        t = [int(x) / os.sysconf("SC_CLK_TCK") for x in f.readline().split()[1:9]]
    return sum(t) - t[3] - t[4], sum(t)
