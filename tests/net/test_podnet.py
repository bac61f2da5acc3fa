"""The node's network: Services, gateway, forwarding as told, migration link, and nothing left behind."""
import errno
import os
import socket
import threading
import time

import pytest

from lab import (Lab, LabError, TcpEcho, UdpEcho, in_ns, ns_path, sh, tcp_ask, udp_ask)

G = "fnt-g"


@pytest.fixture(scope="module")
def lab():
    with Lab(3) as l:
        l.vm(10, 1)
        l.vm(11, 2)
        l.vm(12, 3, binding="bridge")
        l.cmd("svc default one 10.96.0.1 tcp 80 30080 0 10.244.1.11:8080")
        l.cmd("svc default two 10.96.0.2 udp 53 30053 0 10.244.1.10:5353 10.244.1.11:5353 10.244.1.12:5353")
        l.cmd("svc default sticky 10.96.0.3 tcp 80 0 600 10.244.1.10:8080 10.244.1.11:8080 10.244.1.12:8080")
        l.cmd("svc default empty 10.96.0.4 tcp 80 30081 0")
        for i in (1, 2, 3):
            l.cmd(f"apply n{i}")
        l.cmd(f"routes {ns_path(l.out)} 172.30.78.11")
        l.servers = {k: (TcpEcho(f"{G}{k}", 8080), UdpEcho(f"{G}{k}", 5353)) for k in (10, 11, 12)}
        yield l


def clients(lab):
    return [f"{G}10", f"{G}11", f"{G}12", lab.nodes[1], lab.nodes[2], lab.nodes[3], lab.out]


def test_cluster_address_from_everywhere(lab):
    for c in clients(lab):
        assert tcp_ask(c, "10.96.0.1", 80, b"q" * 100000) == b"q" * 100000, c
        for _ in range(4):
            assert udp_ask(c, "10.96.0.2", 53) == b"x", c


def test_outside_client_keeps_its_address_at_a_cluster_address(lab):
    t = lab.servers[11][0]
    t.peers.clear()
    tcp_ask(lab.out, "10.96.0.1", 80)
    assert t.peers == ["172.30.78.1"]


def test_node_port_on_every_node(lab):
    for c in clients(lab):
        for node in ("172.30.78.11", "172.30.78.12", "172.30.78.13"):
            assert tcp_ask(c, node, 30080) == b"x", (c, node)
            assert udp_ask(c, node, 30053) == b"x", (c, node)


def test_datagrams_are_spread_over_endpoints(lab):
    for k in (10, 11, 12):
        lab.servers[k][1].got.clear()
    for _ in range(60):
        assert udp_ask(lab.out, "10.96.0.2", 53) == b"x"
    assert all(len(lab.servers[k][1].got) > 5 for k in (10, 11, 12))


def test_affinity_keeps_a_client_at_one_endpoint(lab):
    for k in (10, 11, 12):
        lab.servers[k][0].peers.clear()
    for _ in range(12):
        assert tcp_ask(lab.out, "10.96.0.3", 80) == b"x"
    assert sorted(len(lab.servers[k][0].peers) for k in (10, 11, 12)) == [0, 0, 12]


def test_nobody_there_is_said_at_once(lab):
    for c in clients(lab):
        assert tcp_ask(c, "10.96.0.4", 80) == "refused", c
        assert tcp_ask(c, "10.96.99.99", 80) == "refused", c
        # On the node itself the refusal is the send call's own (EPERM).
        assert udp_ask(c, "10.96.99.99", 80) in ("refused", "errno 1"), c
    assert tcp_ask(lab.out, "172.30.78.12", 30081) == "refused"


def test_guests_leave_by_the_gateway_node_wherever_they_are(lab):
    u = UdpEcho(lab.out, 7100)
    for k in (10, 11, 12):
        assert udp_ask(f"{G}{k}", "172.30.78.1", 7100) == b"x"
    assert u.peers == {"172.30.78.11"}
    u.close()


def test_outside_reaches_guests_and_keeps_its_address(lab):
    for k in (10, 11, 12):
        t = lab.servers[k][0]
        t.peers.clear()
        assert tcp_ask(lab.out, f"10.244.1.{k}", 8080) == b"x"
        assert t.peers == ["172.30.78.1"]


def test_gateway_changes_hands(lab):
    u = UdpEcho(lab.out, 7101)
    lab.cmd("gateway n1 0")
    lab.cmd("gateway n2 1")
    # netlab's list of peers is one for all: told anew with the other gateway.
    fdb = "bridge fdb replace 0a:58:0a:f4:00:01 dev fvx0"
    try:
        sh(f"{fdb} master static", ns=lab.nodes[1])
        sh(f"{fdb} dst 172.30.78.12 self permanent", ns=lab.nodes[1])
        sh(f"{fdb} dst 172.30.78.12 self permanent", ns=lab.nodes[3])
        for k in (10, 11, 12):
            assert udp_ask(f"{G}{k}", "172.30.78.1", 7101) == b"x", k
        assert u.peers == {"172.30.78.12"}
    finally:
        lab.cmd("gateway n2 0")
        lab.cmd("gateway n1 1")
        lab.program_all()
        u.close()
    for k in (10, 11, 12):
        assert udp_ask(f"{G}{k}", "172.30.78.1", 7999) == "refused", k


def test_repeating_everything_changes_nothing(lab):
    before = {i: sh("bridge fdb show; ip -br a; ip r; ip n show nud permanent; nft list ruleset", ns=n)
              for i, n in lab.nodes.items()}
    for i in lab.nodes:
        lab.up(i)
    lab.cmd("reattach v10")
    lab.program_all()
    for i, n in lab.nodes.items():
        after = sh("bridge fdb show; ip -br a; ip r; ip n show nud permanent; nft list ruleset", ns=n)
        assert sorted(after.splitlines()) == sorted(before[i].splitlines())
    assert tcp_ask(lab.out, "10.244.1.10", 8080) == b"x"


def test_an_agent_that_starts_again_disturbs_nothing(lab):
    stop, lost = threading.Event(), []

    def body():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(0.5)
            s.connect(("10.244.1.10", 5353))
            while not stop.is_set():
                s.send(b"p")
                try:
                    s.recv(10)
                except OSError:
                    lost.append(1)
    t = threading.Thread(target=lambda: in_ns(ns_path(lab.out), body))
    t.start()
    for _ in range(3):
        lab.up(1)
        lab.cmd("reattach v10")
        lab.cmd(f"vmnet v10 masquerade - {lab.dir}/v10-n1 0 0")
        lab.cmd("apply n1")
        lab.program(1)
    stop.set()
    t.join()
    assert not lost


def test_forwarding_is_what_was_told_and_nothing_else(lab):
    n = lab.nodes[1]
    sh("bridge fdb add 0a:58:de:ad:00:01 dev fvx0 master static", ns=n)
    sh("bridge fdb add 0a:58:de:ad:00:01 dev fvx0 dst 172.30.78.13 self permanent", ns=n)
    sh("bridge fdb append 00:00:00:00:00:00 dev fvx0 dst 172.30.78.99 self permanent", ns=n)
    sh("ip neigh add 10.244.7.7 lladdr 0a:58:de:ad:00:01 dev fbr0 nud permanent", ns=n)
    lab.program(1)
    text = sh("bridge fdb show; ip neigh show", ns=n)
    assert "de:ad" not in text and "172.30.78.99" not in text
    lab.cmd(f"bind {lab.mac(60)} {lab.address(60)} 172.30.78.12 3")
    lab.program(1)
    assert f"{lab.mac(60)} dev fvx0 dst 172.30.78.12" in sh("bridge fdb show", ns=n)
    # A hand-over says more than a late event does.
    lab.cmd(f"place n1 {lab.mac(60)} 172.30.78.13 4")
    lab.program(1)
    assert f"{lab.mac(60)} dev fvx0 dst 172.30.78.13" in sh("bridge fdb show", ns=n)
    lab.cmd(f"bind {lab.mac(60)} {lab.address(60)} 172.30.78.12 5")
    lab.program(1)
    assert f"{lab.mac(60)} dev fvx0 dst 172.30.78.12" in sh("bridge fdb show", ns=n)
    # Once the binding has caught up, the hand-over's word is spent: a new VM with this MAC starts from epoch 1.
    lab.cmd(f"bind {lab.mac(60)} {lab.address(60)} 172.30.78.13 1")
    lab.program(1)
    assert f"{lab.mac(60)} dev fvx0 dst 172.30.78.13" in sh("bridge fdb show", ns=n)
    lab.cmd(f"place n1 {lab.mac(60)} 172.30.78.12 9")
    lab.cmd(f"unbind {lab.mac(60)}")
    lab.program(1)
    lab.cmd(f"bind {lab.mac(60)} {lab.address(60)} 172.30.78.13 1")
    lab.program(1)
    assert f"{lab.mac(60)} dev fvx0 dst 172.30.78.13" in sh("bridge fdb show", ns=n)
    lab.cmd(f"unbind {lab.mac(60)}")
    lab.program(1)
    assert lab.mac(60) not in sh("bridge fdb show", ns=n)


def test_a_silent_target_neither_answers_nor_speaks(lab):
    path = lab.pod(10, 2, silent=True, name="t10")
    try:
        u = UdpEcho(f"{G}12", 7300)
        # ARP from the segment for the VM's address is answered by the source alone.
        sh(f"ip -n {lab.nodes[3]} neigh del 10.244.1.10 dev fbr0", check=False)
        out = sh("timeout 4 busybox arping -c 3 -I fbr0 10.244.1.10", ns=lab.nodes[3], check=False)
        assert "3 response" in out or "Received 3" in out, out
        assert udp_ask(lab.nodes[3], "10.244.1.10", 5353) == b"x"
        # What the target's namespace says does not reach the segment.
        sh(f"nsenter --net={path} ping -c1 -W1 10.244.1.12", check=False)

        def body():
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
                s.bind(("eth0", 0x800))
                dst = bytes.fromhex("0a580af4010c")
                s.send(dst + bytes.fromhex("0a580af4010a0800") + b"\0" * 50)
        before = int(sh("cat /sys/class/net/eth0/statistics/rx_packets", ns=f"{G}12").strip() or 0)
        in_ns(path, body)
        time.sleep(0.2)
        assert int(sh("cat /sys/class/net/eth0/statistics/rx_packets", ns=f"{G}12").strip() or 0) == before
        u.close()
    finally:
        lab.cmd("vmnetdown t10")
        lab.cmd("detach t10")
        del lab.vms["t10"]
        lab.program_all()


def test_migration_link_is_open_for_its_move_only(lab):
    src = lab.cmd(f"attach m1 n1 uid-m1 {lab.address(40)} {lab.mac(40)} 0 64001")[0]
    dst = lab.cmd(f"attach m2 n2 uid-m2 {lab.address(40)} {lab.mac(40)} 1 64001")[0]
    mig = "198.18.1.40"

    def as_uid(path, body):
        # In a process of its own: a uid belongs to the process.
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                def inner():
                    os.setresuid(64001, 64001, 64001)
                    return body()
                os.write(w, repr(in_ns(path, inner)).encode())
            except BaseException as e:
                os.write(w, repr(e).encode())
            os._exit(0)
        os.close(w)
        out = os.read(r, 1000).decode()
        os.waitpid(pid, 0)
        return out

    listener = in_ns(dst, lambda: socket.create_server((mig, 49152)))

    def serve():
        while True:
            try:
                c, _ = listener.accept()
            except OSError:
                return
            with c:
                c.sendall(b"qemu")

    threading.Thread(target=serve, daemon=True).start()

    def connect():
        with socket.create_connection(("172.30.78.12", 49152), 0.7) as s:
            return s.recv(10)
    try:
        # The listener's answers leave by QEMU's uid in life; here the test's root does: its route is added.
        sh(f"nsenter --net={dst} ip route add 172.30.78.11/32 via 169.254.1.1 dev mig0 onlink")
        assert "qemu" not in as_uid(src, connect)
        lab.cmd(f"mig listen n2 {lab.address(40)} 172.30.78.11 49152 49153")
        assert "qemu" not in as_uid(src, connect)
        lab.cmd(f"mig connect n1 {lab.address(40)} 172.30.78.12 49152 49153")
        assert as_uid(src, connect) == "b'qemu'"
        # Nobody else gets in: another node, the outside, the segment, another port.
        for c in (lab.nodes[3], lab.out):
            assert tcp_ask(c, "172.30.78.12", 49152, timeout=0.5) in ("refused", "timeout")
        assert tcp_ask(lab.nodes[2], mig, 49152, timeout=0.5) != b"qemu"
        assert tcp_ask(f"{G}11", mig, 49152, timeout=0.5) in ("refused", "timeout", "errno 113", "errno 101")
        lab.cmd(f"mig close n1 {lab.address(40)}")
        lab.cmd(f"mig close n2 {lab.address(40)}")
        assert "qemu" not in as_uid(src, connect)
        lab.cmd(f"mig close n2 {lab.address(40)}")
    finally:
        listener.close()
        lab.cmd("detach m1")
        lab.cmd("detach m2")


def test_connections_to_a_lost_peer_are_ended(lab):
    """Those that wait for an answer, those that are being made; and nobody else's."""
    a, b, c = (f"172.30.78.1{i}" for i in (1, 2, 3))
    here = ns_path(lab.nodes[1])
    sink = in_ns(ns_path(lab.nodes[2]), lambda: socket.create_server((b, 49152)))
    other = in_ns(ns_path(lab.nodes[3]), lambda: socket.create_server((c, 49152)))
    lab.cmd(f"abort {here} {b}")  # those of other tests, which linger
    try:
        waiting = in_ns(here, lambda: socket.create_connection((b, 49152), 5))
        stays = in_ns(here, lambda: socket.create_connection((c, 49152), 5))
        sh("nft 'add table inet lost; add chain inet lost in { type filter hook input priority 0; }; "
           f"add rule inet lost in ip saddr {a} drop'", ns=lab.nodes[2])
        waiting.sendall(b"hello")
        connecting = in_ns(here, lambda: socket.socket())
        connecting.setblocking(False)
        assert connecting.connect_ex((b, 49153)) == errno.EINPROGRESS
        assert lab.cmd(f"abort {here} {b}") == ["2"]
        with pytest.raises(ConnectionAbortedError):
            waiting.recv(1)
        assert connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNABORTED
        served, _ = other.accept()
        stays.sendall(b"x")
        assert served.recv(1) == b"x"
        assert lab.cmd(f"abort {here} {b}") == ["0"]
    finally:
        sh("nft delete table inet lost", ns=lab.nodes[2], check=False)
        sink.close()
        other.close()


def test_what_a_crash_left_half_made_is_mended(lab):
    # The name of a namespace without the namespace; one half of a link in somebody else's place.
    open(f"{lab.dir}/ns2/uid-half", "w").close()
    path, host_if = lab.cmd(f"attach h1 n2 uid-half {lab.address(45)} {lab.mac(45)} 0 0")
    lab.cmd("detach h1")
    sh(f"ip link add {host_if} type veth peer name elsewhere; ip link set {host_if} up", ns=lab.nodes[2], check=False)
    sh(f"ip -n {lab.nodes[2]} link add {host_if} type veth peer name elsewhere", check=False)
    path, again = lab.cmd(f"attach h2 n2 uid-half {lab.address(45)} {lab.mac(45)} 0 0")
    assert again == host_if
    assert "elsewhere" not in sh("ip -br link", ns=lab.nodes[2])
    assert lab.mac(45) in sh(f"nsenter --net={path} ip link show eth0")
    lab.cmd("detach h2")
    # A link of that name that is no veth is not ours: refused, not removed.
    sh(f"ip -n {lab.nodes[2]} link add {host_if} type bridge")
    with pytest.raises(LabError) as e:
        lab.cmd(f"attach h3 n2 uid-half {lab.address(45)} {lab.mac(45)} 0 0")
    assert "is no veth" in str(e.value)
    sh(f"ip -n {lab.nodes[2]} link del {host_if}")
    lab.cmd("sweep n2 uid-v11-n2")


def test_what_a_move_opened_goes_with_its_pod(lab):
    """An agent that died in a move, and comes back when the pod is not in the API any more."""
    ns = lab.nodes[1]

    def state():
        text = sh("nft list ruleset", ns=ns)
        return {i: (lab.mac(i) in text, f"198.18.1.{i}" in text) for i in (46, 47)}
    table = next(w for w in sh("nft list tables netdev", ns=ns).split() if w.startswith("ferry_"))
    assert state() == {46: (False, False), 47: (False, False)}
    for i in (46, 47):
        lab.cmd(f"mig listen n1 {lab.address(i)} 172.30.78.12 {49060 + i} {49070 + i}")
        lab.cmd(f"mig connect n1 {lab.address(i)} 172.30.78.12 49152 49153")
        sh(f"nft add element netdev {table} steer '{{ {lab.mac(i)} timeout 1h : {table[6:]} }}'", ns=ns)
    assert state() == {46: (True, True), 47: (True, True)}
    lab.cmd(f"sweep n1 uid-v10-n1 uid-47/ {lab.address(47)} {lab.mac(47)} uid-odd")
    assert state() == {46: (False, False), 47: (True, True)}
    lab.cmd("sweep n1 uid-v10-n1")
    assert state() == {46: (False, False), 47: (False, False)}


def test_bad_values_are_refused_with_a_reason(lab):
    for line, word in (("attach z n1 ../x 10.244.1.50 0a:58:00:00:00:01 0 0", "pod uid"),
                       ("attach z n1 uid-z 192.168.0.1 0a:58:00:00:00:01 0 0", "cluster network"),
                       ("attach z n1 uid-z 10.244.1.50 01:00:5e:00:00:01 0 0", "unicast")):
        with pytest.raises(LabError) as e:
            lab.cmd(line)
        assert word in str(e.value)


# Last: takes the network away.
def test_sweep_and_down_leave_nothing(lab):
    lab.cmd(f"attach s1 n3 uid-s1 {lab.address(41)} {lab.mac(41)} 0 64002")
    lab.cmd("sweep n3 uid-v12-n3")
    links = sh("ip -br link", ns=lab.nodes[3])
    assert links.count("fv") == 2 - links.count("fvx0") + links.count("fvx0") and "fm" not in links, links
    assert tcp_ask(lab.out, "10.244.1.12", 8080) == b"x"
    assert os.listdir(f"{lab.dir}/ns3") == ["uid-v12-n3"]
    lab.cmd("sweep n3 uid-none")
    assert os.listdir(f"{lab.dir}/ns3") == []
    for i, n in lab.nodes.items():
        for name, (node, _, _) in lab.vms.items():
            if node == i:
                lab.cmd(f"vmnetdown {name}")
        lab.cmd(f"down n{i}")
        lab.cmd(f"down n{i}")
        assert sh("ip -br link", ns=n).split()[0::1][0] == "lo"
        assert len(sh("ip -br link", ns=n).splitlines()) == 2  # lo and the underlay
        assert sh("nft list ruleset", ns=n) == ""
        assert "10.9" not in sh("ip r", ns=n) and "10.244" not in sh("ip r", ns=n)
        assert os.listdir(f"{lab.dir}/ns{i}") == []
