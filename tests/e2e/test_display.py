"""The screen of a guest: RFB (VNC) sessions and pictures, as virtctl and viewers use them."""
import base64
import json
import os
import select
import socket
import struct
import subprocess
import time

import pytest

import ferrytest as ft
from conftest import kernel_boot, qemu_pids

PNG = b"\x89PNG\r\n\x1a\n"


def url(name, what):
    return f"/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/{name}/{what}"


class Refused(Exception):
    def __init__(self, status, body):
        super().__init__(f"{status}: {body}")
        self.status = status
        self.message = json.loads(body)["message"]


class Rfb:
    """A viewer: RFB 3.8 (RFC 6143) over the API server's websocket (RFC 6455)."""

    def __init__(self, api, name, query=""):
        self.s = api.ctx.wrap_socket(socket.create_connection((api.host, api.port), 30), server_hostname=api.host)
        self.s.sendall((f"GET {url(name, 'vnc')}{query} HTTP/1.1\r\nHost: {api.host}\r\nUpgrade: websocket\r\n"
                        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: plain.kubevirt.io\r\n"
                        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n\r\n").encode())
        self.raw, self.bytes, self.closed = b"", b"", None
        while b"\r\n\r\n" not in self.raw:
            self.more()
        head, self.raw = self.raw.split(b"\r\n\r\n", 1)
        status = int(head.split()[1])
        if status != 101:
            length = int(next(h for h in head.lower().split(b"\r\n") if h.startswith(b"content-length:")).split(b":")[1])
            while len(self.raw) < length:
                self.more()
            self.s.close()
            raise Refused(status, self.raw[:length])
        assert b"plain.kubevirt.io" in head

    def more(self):
        got = self.s.recv(65536)
        if not got:
            raise EOFError
        self.raw += got

    def need(self, n):
        while len(self.raw) < n:
            self.more()

    def frame(self):
        """One frame of the server: its bytes go to self.bytes, or it is the end."""
        self.need(2)
        kind, n, at = self.raw[0] & 15, self.raw[1] & 127, 2
        if n >= 126:
            at = 4 if n == 126 else 10
            self.need(at)
            n = int.from_bytes(self.raw[2:at], "big")
        self.need(at + n)
        data, self.raw = self.raw[at:at + n], self.raw[at + n:]
        if kind == 8:
            self.closed = struct.unpack(">H", data[:2])[0]
            self.write(data, 8)
        elif kind in (0, 2):
            self.bytes += data

    def read(self, n):
        while len(self.bytes) < n:
            self.frame()
            if self.closed:
                raise EOFError(f"closed with {self.closed}")
        out, self.bytes = self.bytes[:n], self.bytes[n:]
        return out

    def write(self, data, kind=2):
        mask = os.urandom(4)
        assert len(data) < 126
        self.s.sendall(bytes([0x80 | kind, 0x80 | len(data)]) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def handshake(self, shared=1):
        assert self.read(12) == b"RFB 003.008\n"
        self.write(b"RFB 003.008\n")
        n = self.read(1)[0]
        assert 1 in self.read(n)  # no password: the API server has let us in
        self.write(b"\x01")
        assert self.read(4) == b"\0\0\0\0"
        self.write(bytes([shared]))
        self.width, self.height = struct.unpack(">HH", self.read(4))
        self.read(16)
        self.name = self.read(struct.unpack(">I", self.read(4))[0]).decode()
        # 32 bits for each pixel, and nothing but raw rectangles
        self.write(struct.pack(">BxxxBBBBHHHBBBxxx", 0, 32, 24, 0, 1, 255, 255, 255, 16, 8, 0))
        self.write(struct.pack(">BxHi", 2, 1, 0))
        return self

    def picture(self):
        """A whole update; returns how many pixels came."""
        self.write(struct.pack(">BBHHHH", 3, 0, 0, 0, self.width, self.height))
        pixels = 0
        while pixels < self.width * self.height:
            kind = self.read(1)[0]
            assert kind == 0, f"message {kind}"
            for _ in range(struct.unpack(">xH", self.read(3))[0]):
                _, _, w, h, encoding = struct.unpack(">HHHHi", self.read(12))
                assert encoding == 0
                self.read(w * h * 4)
                pixels += w * h
        return pixels

    def wait_closed(self, timeout=30):
        self.s.settimeout(timeout)
        while not self.closed:
            self.frame()
        return self.closed

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.s.close()


def size_of(png):
    assert png[:8] == PNG and png[12:16] == b"IHDR", png[:40]
    return struct.unpack(">II", png[16:24])


def screenshot(api, name, query=""):
    status, body, headers = api.raw("GET", url(name, "vnc/screenshot") + query, accept="*/*")
    assert status == 200, body
    assert headers["Content-Type"] == "image/png"
    return body


def refused(api, name, what):
    status, body, _ = api.raw("GET", url(name, what))
    return status, json.loads(body)["message"]


def devices(name, vm, **more):
    vm["spec"]["template"]["spec"]["domain"]["devices"].update(more)
    return vm


def plain(name, images):
    return ft.vm(name, "128Mi", kernel=kernel_boot(images))


def listens(pid):
    """Sockets of a process that listen at a network."""
    with open(f"/proc/{pid}/net/tcp") as f:
        rows = [r.split() for r in f.readlines()[1:]]
    inodes = {os.readlink(p) for p in (f"/proc/{pid}/fd/{d}" for d in os.listdir(f"/proc/{pid}/fd"))
              if os.path.islink(p)}
    return [r[1] for r in rows if r[3] == "0A" and f"socket:[{r[9]}]" in inodes]


def test_a_viewer_sees_the_screen_before_and_after_a_move(cluster, make_vm, images):
    make_vm("shown", manifest=plain("shown", images))
    api = cluster.api
    assert api.get("VirtualMachineInstance", "shown")["status"]["ferry"]["video"] == "vga"
    (pid,) = next(iter(qemu_pids(cluster, "shown").values()))
    assert listens(pid) == []
    for _ in range(2):
        with Rfb(api, "shown") as v:
            v.handshake()
            assert "default/shown" in v.name
            assert v.picture() == v.width * v.height > 0
            assert size_of(screenshot(api, "shown")) == (v.width, v.height)
            obj, _ = ft.move(api, "shown")
            assert obj["status"]["phase"] == "Succeeded", obj["status"]
            assert v.wait_closed() == 1000  # cleanly; the viewer connects again
    with Rfb(api, "shown") as v:
        assert v.handshake().picture() > 0


def test_the_screen_is_there_while_the_guest_moves(cluster, make_vm, images):
    make_vm("shown-on-the-way", manifest=plain("shown-on-the-way", images))
    api = cluster.api
    name = "shown-on-the-way-1"
    with Rfb(api, "shown-on-the-way") as v:
        v.handshake()
        api.create(ft.migration(name, "shown-on-the-way"))
        pictures = 0
        try:
            while True:
                pictures += v.picture() > 0
        except EOFError:
            pass
        assert pictures > 0
        done = api.wait("VirtualMachineInstanceMigration", name,
                        lambda m: m["status"].get("phase") in ft.FINAL, 120)
        assert done["status"]["phase"] == "Succeeded", done["status"]
        assert v.closed in (1000, None)
    assert size_of(screenshot(api, "shown-on-the-way")) > (0, 0)


def test_a_second_viewer_replaces_the_first_unless_that_is_preserved(cluster, make_vm, images):
    make_vm("viewers", manifest=plain("viewers", images))
    api = cluster.api
    with Rfb(api, "viewers") as first:
        first.handshake()
        with pytest.raises(Refused) as e:
            Rfb(api, "viewers", "?preserveSession=true")
        assert (e.value.status, e.value.message) == (503, "Active VNC connection. Request denied.")
        assert first.picture() > 0
        with Rfb(api, "viewers") as second:
            assert first.wait_closed() == 1000
            assert second.handshake().picture() > 0
    # one that connects and says nothing is in nobody's way, either
    with Rfb(api, "viewers") as silent:
        silent.read(12)
        with Rfb(api, "viewers", "?preserveSession=false") as third:
            assert third.handshake().picture() > 0
            assert silent.wait_closed() == 1000


def test_hostile_viewers_do_not_disturb_the_guest(cluster, make_vm, images):
    address = make_vm("attacked", manifest=plain("attacked", images))
    api = cluster.api
    boot = ft.Guest(address).status()["bootID"]
    for words in (b"\xff" * 100, b"RFB 999.999\n" + b"\xff" * 60, b"RFB 003.008\n\x01\x01" + b"\x06\0\0\0\xff\xff\xff\xff" + b"A" * 80):
        with Rfb(api, "attacked") as v:
            v.read(12)
            v.write(words)
            v.s.settimeout(10)
            try:
                while not v.closed:
                    v.frame()
            except (EOFError, TimeoutError):
                pass
    with Rfb(api, "attacked") as v:
        assert v.handshake().picture() > 0
    assert ft.Guest(address).status()["bootID"] == boot


def test_a_picture_in_virtctls_way(cluster, make_vm, images, tmp_path):
    make_vm("pictured", manifest=devices("pictured", plain("pictured", images), autoattachInputDevice=True,
                                         video={"type": "virtio"}))
    api = cluster.api
    assert api.get("VirtualMachineInstance", "pictured")["spec"]["domain"]["devices"]["inputs"] == [
        {"name": "default-0", "bus": "usb", "type": "tablet"}]
    f = tmp_path / "a.png"
    cluster.ferry("vnc", "screenshot", "pictured", "--file", str(f), "--move-cursor")
    assert size_of(f.read_bytes()) > (0, 0)
    api.sub("virtualmachineinstances", "pictured", "pause")
    assert size_of(screenshot(api, "pictured", "?moveCursor=true")) == size_of(f.read_bytes())
    api.sub("virtualmachineinstances", "pictured", "unpause")
    assert refused(api, "pictured", "vnc/screenshot?moveCursor=2") == (
        400, "query parameter 'moveCursor' must be true or false")
    # with these devices it moves, too
    obj, _ = ft.move(api, "pictured")
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    assert size_of(screenshot(api, "pictured", "?moveCursor=true")) > (0, 0)


@pytest.mark.parametrize("model", ["cirrus", "bochs", "ramfb"])
def test_every_graphics_card_runs_and_moves(cluster, make_vm, images, model):
    name = f"card-{model}"
    make_vm(name, manifest=devices(name, plain(name, images), video={"type": model},
                                   inputs=[{"name": "pen", "bus": "virtio", "type": "tablet"}]))
    with Rfb(cluster.api, name) as v:
        assert v.handshake().picture() > 0
    obj, _ = ft.move(cluster.api, name)
    assert obj["status"]["phase"] == "Succeeded", obj["status"]
    assert size_of(screenshot(cluster.api, name)) > (0, 0)


def test_without_a_graphics_card_the_answer_is_kubevirts(cluster, make_vm, images):
    make_vm("blind", manifest=devices("blind", plain("blind", images), autoattachGraphicsDevice=False))
    api = cluster.api
    assert "video" not in api.get("VirtualMachineInstance", "blind")["status"]["ferry"]
    for what in ("vnc", "vnc/screenshot"):
        assert refused(api, "blind", what) == (400, "No graphics devices are present.")
    p = cluster.ferry("vnc", "blind", "--proxy-only", check=False)
    assert p.returncode == 1 and "No graphics devices are present." in p.stderr
    status, text = refused(api, "nobody", "vnc")
    assert status == 404 and text == 'virtualmachineinstance.kubevirt.io "nobody" not found'


def test_a_viewer_connects_to_the_local_port(cluster, make_vm, images):
    make_vm("proxied", manifest=plain("proxied", images))
    p = subprocess.Popen([f"{cluster.bin}/ferry", "vnc", "proxied", "--proxy-only", "--kubeconfig", cluster.kubeconfig],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert select.select([p.stdout], [], [], 30)[0]
        port = json.loads(p.stdout.readline())["port"]
        with socket.create_connection(("127.0.0.1", port), 10) as s:
            s.settimeout(20)
            f = s.makefile("rb")
            assert f.read(12) == b"RFB 003.008\n"
            s.sendall(b"RFB 003.008\n")
            assert 1 in f.read(f.read(1)[0])
            s.sendall(b"\x01")
            assert f.read(4) == b"\0\0\0\0"
            f.close()
        assert p.wait(20) == 0  # the viewer has gone
    finally:
        p.kill()
        p.wait()


def test_a_second_console_replaces_the_first(cluster, make_vm, images):
    make_vm("two-consoles", manifest=plain("two-consoles", images))

    def console():
        return subprocess.Popen([f"{cluster.bin}/ferry", "console", "two-consoles", "--kubeconfig", cluster.kubeconfig],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def connected(p):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if select.select([p.stderr], [], [], 1)[0]:
                assert b"Successfully connected" in p.stderr.readline()
                return
        pytest.fail("the console did not open")
    first, second = console(), None
    try:
        connected(first)
        second = console()
        connected(second)
        assert first.wait(20) == 0  # closed by the agent
        assert second.poll() is None
        assert select.select([second.stdout], [], [], 30)[0], "the guest's heartbeat"
    finally:
        for p in filter(None, (first, second)):
            p.kill()
            p.wait()
