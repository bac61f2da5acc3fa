"""The measuring client measures itself right: against an echo service of our own, with nothing to lose on the way."""
import signal
import socket
import threading
import time

import ferrytest as ft
import pytest

DELAY = 0.15  # longer than the time between a probe's last datagram and its end


class Echo:
    """TCP and UDP on one port of 127.0.0.1; datagrams come back late, and those in `swallow` do not."""

    def __init__(self, swallow=()):
        self.swallow = set(swallow)
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.address = self.tcp.getsockname()
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(self.address)
        for run in (self.accept, self.receive):
            threading.Thread(target=run, daemon=True).start()

    def accept(self):
        while True:
            s, _ = self.tcp.accept()
            threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def serve(self, s):
        with s:
            try:
                while True:
                    data = s.recv(4096)
                    if not data:
                        return
                    s.sendall(data)
            except OSError:
                return

    def receive(self):
        while True:
            data, peer = self.udp.recvfrom(64)
            if int.from_bytes(data[:8], "little") not in self.swallow:
                threading.Timer(DELAY, self.udp.sendto, (data, peer)).start()

    @property
    def target(self):
        return "{}:{}".format(*self.address)


@pytest.mark.parametrize("swallow", [(), (7, 11)], ids=["none", "two"])
def test_datagrams_under_way_at_the_end_are_waited_for(swallow):
    """A caller ends a probe by a signal and closes its input; both together are one end, not two."""
    p = ft.Probe(Echo(swallow).target, "--udp-rate", "100")
    time.sleep(0.5)
    w = p.stop()
    assert w["udp"]["sent"] > 20 and w["udp"]["lost"] == len(swallow), w
    assert w["new"]["failed"] == 0 and not w["held"]["broken"] and w["held"]["rounds"] > 20, w


def test_a_second_signal_waits_for_nothing():
    p = ft.Probe(Echo(range(1, 1000)).target, "--udp-rate", "100")
    time.sleep(0.3)
    p.p.send_signal(signal.SIGINT)
    time.sleep(0.05)  # signals that are pending together are one
    start = time.monotonic()
    w = p.stop()
    assert time.monotonic() - start < 0.4, "it waited for datagrams that do not come"
    assert w["udp"]["lost"] == w["udp"]["sent"] > 0


def test_marks_cut_windows_and_lose_no_datagram():
    p = ft.Probe(Echo().target, "--udp-rate", "100")
    for _ in range(5):
        time.sleep(0.1)
        p.mark()
    p.stop()
    assert p.udp_back == p.udp_sent > 40
