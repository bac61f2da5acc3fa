"""Masquerade and bridge binding: what a guest and its peers see."""
import os
import socket
import struct
import time

import pytest

from lab import (Lab, TcpEcho, UdpEcho, in_ns, ns_path, sh, tcp_ask, udp_ask)


@pytest.fixture(scope="module")
def lab():
    with Lab(2) as l:
        l.vm(10, 1)
        l.vm(11, 2)
        l.vm(12, 2, ports="tcp:80,udp:53")
        l.vm(13, 1, binding="bridge")
        yield l


def g(k):
    return f"fnt-g{k}"


def test_guests_reach_each_other_under_their_own_addresses(lab):
    u, t = UdpEcho(g(11), 7000), TcpEcho(g(11), 7001)
    assert udp_ask(g(10), "10.244.1.11", 7000) == b"x"
    assert tcp_ask(g(10), "10.244.1.11", 7001, b"y" * 200000) == b"y" * 200000
    assert u.peers == {"10.244.1.10"} and set(t.peers) == {"10.244.1.10"}
    u.close()
    t.close()


def test_nodes_reach_guests(lab):
    u = UdpEcho(g(10), 7000)
    assert udp_ask(lab.nodes[1], "10.244.1.10", 7000) == b"x"
    assert udp_ask(lab.nodes[2], "10.244.1.10", 7000) == b"x"
    u.close()


def test_no_connection_state_in_the_pod(lab):
    path = lab.vms["v10"][1]
    text = in_ns(path, lambda: open("/proc/thread-self/net/stat/nf_conntrack").read().splitlines()[1].split()[0])
    assert int(text, 16) == 0


def test_guest_reaches_itself_by_its_outer_address(lab):
    u = UdpEcho(g(10), 7002)
    assert udp_ask(g(10), "10.244.1.10", 7002) == b"x"
    u.close()


@pytest.mark.parametrize("k", [11, 12, 13])
def test_datagrams_larger_than_the_mtu_arrive_both_ways(lab, k):
    port = 53
    u = UdpEcho(g(k), port)
    big = os.urandom(8000)
    assert udp_ask(g(10), f"10.244.1.{k}", port, big) == big
    assert udp_ask(lab.nodes[1], f"10.244.1.{k}", port, big) == big
    u.close()


def test_closed_udp_port_is_refused_at_once_both_ways(lab):
    # The error quotes the client's datagram: its addresses are put right on the way out ...
    t = time.monotonic()
    assert udp_ask(g(10), "10.244.1.11", 7999) == "refused"
    assert udp_ask(lab.nodes[2], "10.244.1.11", 7999) == "refused"
    # ... and on the way in.
    assert udp_ask(g(10), "172.30.78.1", 7999) == "refused"
    assert time.monotonic() - t < 0.8


def pmtu_of(ns, addr, size):
    """Sends with DF until the path's MTU is learnt; the MTU."""
    def body():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, DO
            s.connect((addr, 7998))
            for _ in range(20):
                try:
                    s.send(b"z" * size)
                except OSError:
                    pass
                mtu = s.getsockopt(socket.IPPROTO_IP, 14)  # IP_MTU
                if mtu < size + 28:
                    return mtu
                time.sleep(0.05)
            return None
    return in_ns(ns_path(ns), body)


def test_guest_learns_a_smaller_path_mtu_outside(lab):
    sh(f"ip -n {lab.nodes[1]} route add 172.30.78.1/32 dev eth0 mtu 1300")
    try:
        assert pmtu_of(g(10), "172.30.78.1", 1400) == 1300
        assert pmtu_of(g(11), "172.30.78.1", 1400) == 1300
    finally:
        sh(f"ip -n {lab.nodes[1]} route del 172.30.78.1/32 dev eth0")


def test_client_learns_a_smaller_mtu_behind_the_pod(lab):
    path = lab.vms["v11"][1]
    sh(f"nsenter --net={path} ip link set tap0 mtu 1200")
    try:
        assert pmtu_of(g(10), "10.244.1.11", 1400) == 1200
    finally:
        sh(f"nsenter --net={path} ip link set tap0 mtu 1450")
        sh(f"ip -n {g(10)} route flush cache")


def test_expired_ttl_is_reported_to_whoever_sent_it(lab):
    def body(addr, ttl):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
            s.setsockopt(socket.IPPROTO_IP, 11, 1)  # IP_RECVERR
            s.connect((addr, 7997))
            s.send(b"t")
            for _ in range(20):
                try:
                    _, anc, _, _ = s.recvmsg(100, 512, 0x2000)  # MSG_ERRQUEUE
                    data = anc[0][2]
                    return socket.inet_ntoa(data[20:24])
                except OSError:
                    time.sleep(0.05)
            return None

    # From a node: one hop is the pod itself, which speaks with the VM's address.
    assert in_ns(ns_path(lab.nodes[1]), body, "10.244.1.10", 1) == "10.244.1.10"
    # From a guest: its first hop is its gateway.
    assert in_ns(ns_path(g(10)), body, "10.244.1.11", 1) == "10.0.2.1"


def test_listed_ports_are_open_and_others_refused(lab):
    t80, t81 = TcpEcho(g(12), 80), TcpEcho(g(12), 81)
    u53, u54 = UdpEcho(g(12), 53), UdpEcho(g(12), 54)
    for client in (g(10), lab.nodes[1], lab.nodes[2]):
        assert tcp_ask(client, "10.244.1.12", 80) == b"x"
        assert tcp_ask(client, "10.244.1.12", 81) == "refused"
        assert udp_ask(client, "10.244.1.12", 53) == b"x"
        assert udp_ask(client, "10.244.1.12", 54) == "refused"
    assert "1 received" in sh("ping -c1 -W1 10.244.1.12", ns=g(10), check=False)
    for s in (t80, t81, u53, u54):
        s.close()


def test_what_the_guest_asks_is_answered_whatever_the_ports(lab):
    u, t = UdpEcho(g(10), 9000), TcpEcho(g(10), 9001)
    assert udp_ask(g(12), "10.244.1.10", 9000) == b"x"
    assert tcp_ask(g(12), "10.244.1.10", 9001) == b"x"
    u.close()
    t.close()


def test_a_flow_is_let_in_only_from_where_the_guest_asked(lab):
    u = UdpEcho(g(12), 5555)
    assert udp_ask(g(10), "10.244.1.12", 5555, bind=6001) == "refused"
    with in_ns(ns_path(g(10)), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asked:
        asked.bind(("0.0.0.0", 6001))
        asked.settimeout(5)
        u.s.sendto(b"hello", ("10.244.1.10", 6001))
        assert asked.recv(100) == b"hello"  # only then has the flow gone through
    assert udp_ask(g(10), "10.244.1.12", 5555, bind=6001) == b"x"
    assert udp_ask(g(10), "10.244.1.12", 5555, bind=6002) == "refused"
    u.close()


def test_the_filter_cannot_be_passed_by_naming_the_inner_address(lab):
    u = UdpEcho(g(12), 54)
    # From a neighbour on the segment, to the VM's MAC, for 10.0.2.2: with the filter and without.
    for k in (11, 12):
        v = u if k == 12 else UdpEcho(g(11), 54)
        sh(f"ip route add 10.0.2.2/32 via 10.244.1.{k} dev fbr0", ns=lab.nodes[1])
        try:
            assert udp_ask(lab.nodes[1], "10.0.2.2", 54, timeout=0.4) == "timeout"
            assert v.got == []
        finally:
            sh("ip route del 10.0.2.2/32", ns=lab.nodes[1])
            if v is not u:
                v.close()
    u.close()


def test_guest_cannot_speak_with_another_address(lab):
    u = UdpEcho(g(11), 7003)
    sh(f"ip -n {g(10)} addr add 10.0.2.77/32 dev eth0")
    try:
        def body():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                s.bind(("10.0.2.77", 0))
                s.sendto(b"spoof", ("10.244.1.11", 7003))
        in_ns(ns_path(g(10)), body)
        time.sleep(0.2)
        assert u.got == []
    finally:
        sh(f"ip -n {g(10)} addr del 10.0.2.77/32 dev eth0")
        u.close()


# ---- bridge ----

def test_bridged_guest_is_on_the_segment(lab):
    u = UdpEcho(g(13), 7000)
    v = UdpEcho(g(11), 7000)
    assert udp_ask(g(11), "10.244.1.13", 7000) == b"x"
    assert udp_ask(lab.nodes[2], "10.244.1.13", 7000) == b"x"
    assert udp_ask(g(13), "10.244.1.11", 7000) == b"x"
    assert udp_ask(g(13), "172.30.78.1", 7999) == "refused"  # through the gateway, and its error back
    u.close()
    v.close()


def test_bridged_guest_cannot_speak_with_another_address(lab):
    u = UdpEcho(g(11), 7004)
    sh(f"ip -n {g(13)} addr add 10.244.1.99/32 dev eth0")

    def body():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.bind(("10.244.1.99", 0))
            s.sendto(b"spoof", ("10.244.1.11", 7004))
    in_ns(ns_path(g(13)), body)
    sh(f"ip -n {g(13)} addr del 10.244.1.99/32 dev eth0")
    sh(f"ip -n {g(13)} link set eth0 address 0a:58:0a:f4:01:63")
    udp_ask(g(13), "10.244.1.11", 7004, timeout=0.3)
    sh(f"ip -n {g(13)} link set eth0 address {lab.mac(13)}; ip -n {g(13)} route replace default via 10.244.0.1")
    assert u.got == []
    assert udp_ask(g(13), "10.244.1.11", 7004) == b"x"
    u.close()


# ---- DHCP and DNS ----

SCRIPT = """#!/bin/sh
[ "$1" = bound ] || exit 0
env > "$OUT"
"""


def dhcp(lab, k):
    out, script = f"{lab.dir}/lease{k}", f"{lab.dir}/script"
    with open(script, "w") as f:
        f.write(SCRIPT)
    os.chmod(script, 0o755)
    sh(f"env OUT={out} busybox udhcpc -i eth0 -n -q -f -t 5 -T 1 -O mtu -O search -O hostname -O domain -s {script}", ns=g(k))
    return dict(line.split("=", 1) for line in open(out).read().splitlines() if "=" in line)


def test_masquerade_guest_gets_its_address_by_dhcp(lab):
    e = dhcp(lab, 11)
    assert (e["ip"], e["subnet"], e["router"]) == ("10.0.2.2", "255.255.255.0", "10.0.2.1")
    assert (e["dns"], e["mtu"], e["hostname"]) == ("10.244.0.1", "1450", "guest-one")
    assert e["search"].split() == ["default.svc.cluster.local", "svc.cluster.local"]
    assert int(e["lease"]) > 900 * 86400


def test_bridged_guest_gets_the_vms_address_by_dhcp(lab):
    e = dhcp(lab, 13)
    assert (e["ip"], e["subnet"], e["router"]) == ("10.244.1.13", "255.255.0.0", "10.244.0.1")


def dns_ask(ns, server, name):
    q = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0)
    q += b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0" + struct.pack(">HH", 1, 1)
    a = udp_ask(ns, server, 53, q, timeout=3)
    if isinstance(a, str):
        return a
    n = struct.unpack(">H", a[6:8])[0]
    return [socket.inet_ntoa(a[-4:])] if n else []


def test_services_resolve_and_follow_changes(lab):
    lab.cmd("svc default web 10.96.0.77 tcp 80 0 0 10.244.1.12:80")
    lab.cmd(f"dns n1 start {lab.dir}/dns")
    lab.cmd(f"dns n1 update {lab.dir}/dns")
    lab.cmd("apply n1")
    lab.cmd("apply n2")
    try:
        deadline = time.monotonic() + 3
        while dns_ask(g(10), "10.244.0.1", "web.default.svc.cluster.local") != ["10.96.0.77"]:
            assert time.monotonic() < deadline
        for k in (10, 11, 12, 13):
            assert dns_ask(g(k), "10.244.0.1", "web.default.svc.cluster.local") == ["10.96.0.77"]
            assert dns_ask(g(k), "10.96.0.10", "web.default.svc.cluster.local") == ["10.96.0.77"]
        assert dns_ask(g(10), "10.244.0.1", "nope.default.svc.cluster.local") == []
        lab.cmd("svc default late 10.96.0.78 tcp 80 0 0 10.244.1.12:80")
        lab.cmd(f"dns n1 update {lab.dir}/dns")
        deadline = time.monotonic() + 3
        while dns_ask(g(11), "10.244.0.1", "late.default.svc.cluster.local") != ["10.96.0.78"]:
            assert time.monotonic() < deadline
    finally:
        lab.cmd(f"dns n1 stop {lab.dir}/dns")
