"""Processes of a cluster that are held where they are (docs/internals/base.md, failpoints)."""
import contextlib
import os
import socket
import struct


class Point:
    """A failpoint that is wanted, on one node (docs/internals/base.md): who gets there stands until release()."""

    def __init__(self, folder, name):
        self.name = name
        self.dir = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        self.path = os.path.join(folder, name)
        self.held = []
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"/proc/self/fd/{self.dir}/{name}")  # the path itself may be too long for a socket
        self.listener.listen(8)

    def wait(self, timeout):
        """The pid of the process that stands there."""
        self.listener.settimeout(timeout)
        try:
            c, _ = self.listener.accept()
        except TimeoutError:
            raise TimeoutError(f"nobody came to the point '{self.name}' in {timeout:.0f} s") from None
        self.held.append(c)
        self.unwant()  # the next one to get there goes on
        pid, _, _ = struct.unpack("3i", c.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return pid

    def fail(self):
        for c in self.held:
            with contextlib.suppress(OSError):
                c.sendall(b"f")

    def unwant(self):
        if self.listener:
            self.listener.close()
            self.listener = None
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)
            os.close(self.dir)

    def release(self):
        self.unwant()
        for c in self.held:
            c.close()
        self.held = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()
