"""Holds a connection to each guest, a byte over it four times a second, until its input ends; prints which broke.

Usage: held.py ADDRESS:PORT...   One process for many guests: twenty probes would be a load of their own.
"""
import contextlib
import json
import selectors
import socket
import subprocess
import sys
import time

EVERY = 0.25
GIVEN_UP = 20  # seconds without an echo: a connection that still looks open is as good as broken


class Line:
    def __init__(self, where):
        host, port = where.rsplit(":", 1)
        self.where, self.why, self.gap = where, None, 0.0
        self.s = socket.create_connection((host, int(port)), 30)
        self.s.setblocking(False)
        self.heard = time.monotonic()

    def send(self):
        if self.why is None:
            try:
                self.s.send(b"x")
            except BlockingIOError:
                pass
            except OSError as e:
                self.why = str(e)

    def hear(self):
        try:
            if not self.s.recv(4096):
                self.why = "closed"
        except OSError as e:
            self.why = str(e)
        now = time.monotonic()
        self.gap = max(self.gap, now - self.heard)
        self.heard = now

    def end(self):
        silent = time.monotonic() - self.heard
        if self.why is None and silent > GIVEN_UP:
            self.why = f"silent for {silent:.0f} s"
        return {"where": self.where, "why": self.why, "longestGapMs": max(self.gap, silent) * 1000}


def main():
    lines = [Line(w) for w in sys.argv[1:]]
    sel = selectors.DefaultSelector()
    sel.register(sys.stdin, selectors.EVENT_READ)
    for line in lines:
        sel.register(line.s, selectors.EVENT_READ, line)
    print("held", flush=True)
    due, over = time.monotonic(), False
    while not over:
        for key, _ in sel.select(max(0.0, due - time.monotonic())):
            if key.data is None:
                over = True
            else:
                key.data.hear()
                if key.data.why:
                    sel.unregister(key.fileobj)
        if time.monotonic() >= due:
            due += EVERY
            for line in lines:
                line.send()
    print(json.dumps([line.end() for line in lines]))


class Held:
    """The same, from a test: of guests that are reached from here, or from the namespace of a process."""

    def __init__(self, addresses, enter=None, port=7777):
        cmd = [sys.executable, __file__, *(f"{a}:{port}" for a in addresses)]
        if enter:
            cmd = ["nsenter", "-t", str(enter), "-n", *cmd]
        self.p = subprocess.Popen(cmd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.p.stdout.readline() != "held\n":
            raise RuntimeError(f"not all connections could be made: exit code {self.p.wait()}")

    def stop(self):
        """[{where, why it broke or None, longestGapMs}]"""
        with contextlib.suppress(BrokenPipeError):
            self.p.stdin.close()
            self.p.stdin = None
        try:
            out, _ = self.p.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.p.kill()
            out, _ = self.p.communicate()
        return json.loads(out)


if __name__ == "__main__":
    main()
