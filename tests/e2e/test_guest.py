"""What is asked of a guest through its VMI: reboots; the VMI stays, wherever it runs."""
import base64
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import threading
import time

import ferrytest as ft
from conftest import kernel_boot

ARGS = f"{ft.KERNEL_ARGS} tiny.heartbeat=1"


def rebooted(address, boot, timeout=240):
    """The guest has come up again, with a boot of its own."""
    def again():
        try:
            now = ft.Guest(address).command("status", 1)["bootID"]
        except (OSError, ValueError):
            return None
        return now if now != boot else None
    return ft.poll(again, timeout, f"the guest at {address} has rebooted", 0.2)


def events_of(api, name):
    return [(e["reason"], e["message"]) for e in api.list("Event")
            if e["involvedObject"]["name"] == name and e["involvedObject"]["kind"] == "VirtualMachineInstance"]


def during_a_move(api, name, do):
    """do() while the VM's memory is copied; returns what it gave."""
    with ThreadOf(lambda: ft.move(api, name)) as mover:
        api.wait("VirtualMachineInstance", name,
                 lambda v: v["status"].get("migrationState", {}).get("migrationUid") and
                 not v["status"]["migrationState"].get("completed"), 60)
        got = do()
    assert mover.result[0]["status"]["phase"] == "Succeeded"
    return got


class Port:
    """A port of a guest through the API server: as much of a websocket client as that takes."""

    def __init__(self, api, plural, name, what):
        self.s = api.ctx.wrap_socket(socket.create_connection((api.host, api.port), 30), server_hostname=api.host)
        self.s.sendall((f"GET /apis/subresources.kubevirt.io/v1/namespaces/default/{plural}/{name}/portforward/{what} HTTP/1.1\r\n"
                        f"Host: {api.host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n"
                        "Sec-WebSocket-Protocol: plain.kubevirt.io\r\n\r\n").encode())
        self.f = self.s.makefile("rb")
        self.status = int(self.f.readline().split()[1])
        head = dict(iter(lambda: tuple(self.f.readline().decode().rstrip("\r\n").split(": ", 1)), ("",)))
        self.headers = {k.lower(): v for k, v in head.items()}
        self.body = json.loads(self.f.read(int(self.headers["content-length"]))) if self.status != 101 else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.f.close()
        self.s.close()

    def send(self, data):
        mask = os.urandom(4)
        n = struct.pack(">BB", 0x82, 0x80 | len(data)) if len(data) < 126 else \
            struct.pack(">BBH", 0x82, 0x80 | 126, len(data))
        self.s.sendall(n + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def message(self):
        """The next one; control frames but a close (None) are passed over."""
        while True:
            op, n = self.f.read(2)
            n = struct.unpack(">H", self.f.read(2))[0] if n == 126 else n
            data = self.f.read(n)
            if op == 0x88:
                return None
            if op == 0x82:
                return data

    def echo(self, data):
        """What the guest's echo sends back."""
        self.send(data)
        got = b""
        while len(got) < len(data):
            got += self.message()
        return got


class ThreadOf:
    """A function's run beside the block; its end is waited for, its failure is the block's."""

    def __init__(self, fn):
        self.fn, self.result, self.error = fn, None, None
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            self.result = self.fn()
        except BaseException as e:  # pylint: disable=broad-except
            self.error = e

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.thread.join()
        if self.error:
            raise self.error


def test_reboots_keep_the_vmi_before_during_and_after_a_move(cluster, images, make_vm):
    address = make_vm("reboots", manifest=ft.vm("reboots", "128Mi", kernel=kernel_boot(images, ARGS)))
    api = cluster.api
    uid = api.get("VirtualMachineInstance", "reboots")["metadata"]["uid"]
    boot = ft.Guest(address).status()["bootID"]

    def same(v):
        return v["metadata"]["uid"] == uid and ft.vmi_running(v) and not ft.condition(v, "Paused")

    out = cluster.ferry("reset", "reboots")
    assert out.stdout == "VMI reboots was scheduled to reset\n"
    boot = rebooted(address, boot)
    out = cluster.ferry("soft-reboot", "reboots")
    assert out.stdout == "VMI reboots was scheduled to soft-reboot\n"
    boot = rebooted(address, boot)
    assert same(api.get("VirtualMachineInstance", "reboots"))

    ft.Guest(address).command("verify 24 20")  # so that the move takes its time
    code, body, _ = during_a_move(api, "reboots", lambda: api.sub("virtualmachineinstances", "reboots", "reset"))
    assert (code, body) == (200, b"")
    boot = rebooted(address, boot)
    # anew, whole at the target: a kernel that was moved while it began sometimes locks up when it powers off
    assert api.sub("virtualmachineinstances", "reboots", "reset")[0] == 200
    boot = rebooted(address, boot)
    code, body, _ = api.sub("virtualmachineinstances", "reboots", "softreboot")
    assert (code, body) == (200, b"")
    boot = rebooted(address, boot)
    assert same(api.get("VirtualMachineInstance", "reboots"))
    seen = ft.poll(lambda: (e := events_of(api, "reboots")) and ("SoftRebooted" in dict(e)) and e, 10, "it is told")
    assert ("Reset", "VirtualMachineInstance reset") in seen
    assert ("SoftRebooted", "VirtualMachineInstance soft rebooted") in seen
    assert not [e for e in seen if e[0] in ("Paused", "Stopped")]


def test_a_paused_guest_is_reset_but_not_asked_to_reboot(cluster, images, make_vm):
    address = make_vm("napper", manifest=ft.vm("napper", "128Mi", kernel=kernel_boot(images, ARGS)))
    api = cluster.api
    boot = ft.Guest(address).status()["bootID"]
    assert api.sub("virtualmachineinstances", "napper", "pause")[0] == 200
    api.wait("VirtualMachineInstance", "napper", lambda v: ft.condition(v, "Paused"), 10)
    code, body, _ = api.sub("virtualmachineinstances", "napper", "softreboot")
    assert code == 409 and json.loads(body)["message"].endswith("VMI is paused")
    assert api.sub("virtualmachineinstances", "napper", "reset")[0] == 200
    assert ft.condition(api.get("VirtualMachineInstance", "napper"), "Paused")
    assert api.sub("virtualmachineinstances", "napper", "unpause")[0] == 200
    rebooted(address, boot)


def get_sub(api, name, what):
    code, body, _ = api.raw("GET", f"/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/{name}/{what}")
    return code, json.loads(body)


def has_agent(v):
    return (ft.condition(v, "AgentConnected") or {}).get("status") == "True"


def check_facts(api, name):
    """What the guest's agent says, through its node, in KubeVirt's form."""
    code, info = get_sub(api, name, "guestosinfo")
    assert code == 200, info
    assert info["kind"] == "VirtualMachineInstanceGuestAgentInfo" and info["guestAgentVersion"] == "7.2.0"
    assert info["hostname"] == "tiny" and info["os"]["prettyName"] == "Tiny 1" and info["timezone"] == "UTC, 0"
    assert {"name": "guest-ping", "enabled": True} in info["supportedCommands"]
    code, users = get_sub(api, name, "userlist")
    assert (code, users["items"]) == (200, [{"userName": "root", "loginTime": 1700000000.5}])
    code, disks = get_sub(api, name, "filesystemlist")
    assert code == 200 and disks["items"] == info["fsInfo"]["disks"]
    assert disks["items"][0] == {"diskName": "vda1", "mountPoint": "/", "fileSystemType": "ext4", "usedBytes": 1000,
                                 "totalBytes": 4000, "disk": [{"serial": "s1", "busType": "virtio"}]}


def freeze(api, name, timeout):
    return api.sub("virtualmachineinstances", name, "freeze", {"unfreezeTimeout": timeout})[:2]


def thaw(api, name):
    return api.sub("virtualmachineinstances", name, "unfreeze")[:2]


def kubectl(cluster, what, body):
    """As the guide has it."""
    path = f"/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/{what}"
    subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig, "replace", "--raw", path, "-f", "-"], input=body, text=True,
                   check=True, capture_output=True)


def frozen(v):
    return v["status"].get("fsFreezeStatus") == "frozen"


def test_the_guests_agent_answers_before_during_and_after_a_move(cluster, images, make_vm):
    args = f"{ARGS} tiny.agent=1"
    address = make_vm("spoken", manifest=ft.vm("spoken", "128Mi", kernel=kernel_boot(images, args)))
    api = cluster.api
    vmi = api.wait("VirtualMachineInstance", "spoken", has_agent, 60)
    assert not ft.condition(vmi, "AgentVersionNotSupported")
    assert vmi["status"]["guestOSInfo"]["id"] == "tiny" and vmi["status"]["ferry"]["guestAgentChannel"]
    nics = vmi["status"]["interfaces"]
    assert len(nics) == 1 and nics[0]["infoSource"] == "domain, guest-agent" and nics[0]["interfaceName"] == "eth0"
    assert nics[0]["ipAddress"] == address
    check_facts(api, "spoken")

    # a freeze is told, twice is as once, and ends by itself
    assert freeze(api, "spoken", "5m0s") == (200, b"")
    api.wait("VirtualMachineInstance", "spoken", frozen, 10)
    assert freeze(api, "spoken", "5m0s") == (200, b"")
    kubectl(cluster, "spoken/unfreeze", "")
    api.wait("VirtualMachineInstance", "spoken", lambda v: not frozen(v), 10)
    kubectl(cluster, "spoken/freeze", '{"unfreezeTimeout": "5m0s"}')
    api.wait("VirtualMachineInstance", "spoken", frozen, 10)
    assert thaw(api, "spoken") == (200, b"")
    api.wait("VirtualMachineInstance", "spoken", lambda v: not frozen(v), 10)
    assert freeze(api, "spoken", "3s") == (200, b"")
    api.wait("VirtualMachineInstance", "spoken", frozen, 10)
    api.wait("VirtualMachineInstance", "spoken", lambda v: not frozen(v), 30)

    # during a move; and a freeze goes along with its end
    ft.Guest(address).command("verify 24 20")
    during_a_move(api, "spoken", lambda: check_facts(api, "spoken"))
    vmi = api.get("VirtualMachineInstance", "spoken")
    assert has_agent(vmi)
    check_facts(api, "spoken")
    got = during_a_move(api, "spoken", lambda: freeze(api, "spoken", "90s"))
    assert got == (200, b"")
    vmi = api.wait("VirtualMachineInstance", "spoken", frozen, 20)
    assert vmi["status"]["ferry"]["fsThawTime"]
    code, body, _ = api.sub("virtualmachineinstances", "spoken", "freeze")
    assert code == 400 and json.loads(body)["message"].endswith("unfreezeTimeout: is required")
    vmi = api.wait("VirtualMachineInstance", "spoken", lambda v: not frozen(v), 150)
    assert "fsThawTime" not in vmi["status"]["ferry"]
    check_facts(api, "spoken")

    # the agent reboots it; it is away for a while, and back
    boot = ft.Guest(address).status()["bootID"]
    assert api.sub("virtualmachineinstances", "spoken", "softreboot")[:2] == (200, b"")
    rebooted(address, boot)
    api.wait("VirtualMachineInstance", "spoken", has_agent, 60)
    assert api.get("VirtualMachineInstance", "spoken")["metadata"]["uid"] == vmi["metadata"]["uid"]


def test_a_guest_without_an_agent_says_so(cluster, make_vm):
    make_vm("mute")
    api = cluster.api
    for what in ("guestosinfo", "userlist", "filesystemlist"):
        code, body = get_sub(api, "mute", what)
        assert code == 409 and body["message"].endswith("VMI does not have guest agent connected")
    code, body = freeze(api, "mute", "10s")
    assert code == 409 and json.loads(body)["message"].endswith("VMI does not have guest agent connected")
    assert not ft.condition(api.get("VirtualMachineInstance", "mute"), "AgentConnected")


def check_ports(api, name):
    for plural in ("virtualmachines", "virtualmachineinstances"):
        for what in ("7777", "7777/tcp", "7777/udp"):
            with Port(api, plural, name, what) as p:
                assert p.status == 101, p.body
                assert p.headers["sec-websocket-protocol"] == "plain.kubevirt.io"
                assert p.echo(b"one" * 300) == b"one" * 300
                assert p.echo(b"two") == b"two"


def test_ports_are_forwarded_before_during_and_after_a_move(cluster, images, make_vm):
    address = make_vm("ported", manifest=ft.vm("ported", "128Mi", kernel=kernel_boot(images, ARGS)))
    api = cluster.api
    check_ports(api, "ported")
    for what, code, text in (("0", 400, "port must be a number in 1..65535"),
                             ("65536", 400, "port must be a number in 1..65535"),
                             ("7777/sctp", 400, "protocol must be tcp or udp"),
                             ("9", 500, "Internal error occurred: dialing VM: dial tcp "
                                        f"{address}:9: Connection refused")):
        with Port(api, "virtualmachineinstances", "ported", what) as p:
            assert (p.status, p.body["message"]) == (code, text)
    ft.Guest(address).command("verify 24 20")
    during_a_move(api, "ported", lambda: check_ports(api, "ported"))
    check_ports(api, "ported")
    assert api.sub("virtualmachineinstances", "ported", "pause")[0] == 200
    api.wait("VirtualMachineInstance", "ported", lambda v: ft.condition(v, "Paused"), 10)
    with Port(api, "virtualmachines", "ported", "7777") as p:
        assert p.status == 409 and p.body["message"].endswith("VMI is paused")


class Forwarded:
    """`ferry port-forward` in the background; .ports in the order of its arguments."""

    def __init__(self, cluster, *args):
        self.p = subprocess.Popen([f"{cluster.bin}/ferry", "port-forward", *args, "--kubeconfig", cluster.kubeconfig],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = [self.p.stdout.readline() for a in args if re.match(r"(udp/)?[\d:]", a)]
        self.ports = [int(re.match(r"Forwarding (?:udp )?from 127\.0\.0\.1:(\d+) -> \d+$", x)[1]) for x in self.lines]

    def end(self):
        self.p.send_signal(signal.SIGINT)
        err = self.p.communicate(timeout=20)[1]
        return self.p.returncode, err


def test_local_ports_lead_to_a_guests(cluster, make_vm):
    make_vm("forwarded")
    f = Forwarded(cluster, "vm/forwarded", "0:7777", ":7778", "0:9")
    try:
        echo, command, nobody = f.ports
        assert "uptime" in ft.Guest("127.0.0.1", command, timeout=20).status()
        # Two at once; one says a lot before it reads anything.
        a, b = (socket.create_connection(("127.0.0.1", echo), 20) for _ in range(2))
        data = os.urandom(1 << 20)
        with ThreadOf(lambda: a.sendall(data)):
            b.sendall(b"small")
            assert b.recv(5, socket.MSG_WAITALL) == b"small"
            time.sleep(0.5)
            got = b""
            while len(got) < len(data):
                got += a.recv(1 << 16)
        assert got == data
        a.close()
        # A port that the guest refuses ends that connection, not the command.
        with socket.create_connection(("127.0.0.1", nobody), 20) as s:
            assert s.recv(1) == b""
        b.sendall(b"again")
        assert b.recv(5, socket.MSG_WAITALL) == b"again"
    finally:
        code, err = f.end()
    assert code == 0
    assert err.count(f"Handling connection for {echo}") == 2 and err.count("error: ") == 1, err


def udp_peer(port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(("127.0.0.1", port))
    s.settimeout(1)
    return s


def udp_echo(s, data, tries=30):
    """Until the guest's echo of it is here: a datagram may be lost, and one that came late is not ours."""
    for _ in range(tries):
        s.send(data)
        try:
            while (got := s.recv(65536)) != data:
                pass
            return got
        except OSError:
            pass
    raise TimeoutError(f"no echo of {len(data)} bytes")


def test_local_udp_ports_lead_to_a_guests(cluster, images, make_vm):
    make_vm("datagrams", manifest=ft.vm("datagrams", "128Mi", kernel=kernel_boot(images, ARGS)))
    api = cluster.api
    f = Forwarded(cluster, "vm/datagrams", "udp/0:7777", "udp/:9", "0:7777")
    try:
        echo, nobody, tcp = f.ports
        a, b = udp_peer(echo), udp_peer(echo)
        for size in (1, 1400, 1501, 8000):
            assert len(udp_echo(a, os.urandom(size))) == size
        assert udp_echo(b, b"of b") == b"of b"
        with socket.create_connection(("127.0.0.1", tcp), 20) as s:  # beside it
            s.sendall(b"stream")
            assert s.recv(6, socket.MSG_WAITALL) == b"stream"
        # Nobody else gets the port.
        p = cluster.ferry("port-forward", "vm/datagrams", f"udp/{echo}:7777", check=False)
        assert p.returncode == 1 and "Address already in use" in p.stderr, p.stderr
        # A port that the guest refuses ends that stream, not the command.
        c = udp_peer(nobody)
        c.send(b"x")
        # The guest moves: new streams find it, and so does a peer that goes on.
        during_a_move(api, "datagrams", lambda: udp_echo(b, b"during"))
        assert udp_echo(b, b"after") == b"after"
        assert udp_echo(udp_peer(echo), b"new") == b"new"
        assert api.sub("virtualmachineinstances", "datagrams", "pause")[0] == 200
        api.wait("VirtualMachineInstance", "datagrams", lambda v: ft.condition(v, "Paused"), 10)
        udp_peer(echo).send(b"to nobody")
        said = ""
        while "VMI is paused" not in said:
            assert select.select([f.p.stderr], [], [], 20)[0], said
            said += f.p.stderr.readline()
    finally:
        code, err = f.end()
    assert code == 0
    assert "error: the guest has closed the connection" in said, said


def test_a_port_at_standard_input_and_output(cluster, make_vm):
    make_vm("piped")
    p = subprocess.Popen([f"{cluster.bin}/ferry", "port-forward", "--stdio", "vmi/piped/default", "7778", "--kubeconfig",
                          cluster.kubeconfig], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    p.stdin.write("status\n")
    p.stdin.flush()
    assert "uptime" in json.loads(p.stdout.readline())
    out, err = p.communicate(timeout=20)  # its input ends
    assert (p.returncode, out, err) == (0, "", "")
    p = cluster.ferry("port-forward", "--stdio", "vmi/piped", "udp/7777", check=False)
    assert p.returncode == 2 and "--stdio is for tcp: a stream does not keep datagrams apart" in p.stderr, p.stderr
    for args, text in ((("vmi/piped", "9"), "dialing VM"), (("vmi/nobody", "9"), 'virtualmachineinstance.kubevirt.io "nobody" not found')):
        p = cluster.ferry("port-forward", "--stdio", *args, check=False)
        assert p.returncode == 1 and text in p.stderr, p.stderr
