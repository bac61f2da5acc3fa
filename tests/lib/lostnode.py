"""A node of `ferry up` as a machine: it loses its power, hangs, is switched off by a fence agent, and on again."""
import contextlib
import os
import shlex
import signal
import subprocess
import time

import ferrytest as ft


def agent(c, fails=False):
    """The fence agent: a machine here is a pid namespace."""
    path = f"{c.state}/fence-agents/plug"
    with open(f"{path}.new", "w") as f:
        f.write("#!/bin/sh\n" + ("echo the plug is stuck >&2; exit 3\n" if fails else f"""
p={shlex.quote(c.state)}/pids/$1.inside
pid=$(cat "$p" 2>/dev/null | cut -d' ' -f1)
[ -n "$pid" ] && kill -9 "$pid" 2>/dev/null
while [ -e "$p" ] && [ -d "/proc/$pid" ]; do :; done
echo "$1 is off"
"""))
    os.chmod(f"{path}.new", 0o755)
    os.rename(f"{path}.new", path)


def stat_of(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rsplit(")", 1)[1].split()


def outer(c, node):
    with open(f"{c.state}/pids/{node}") as f:
        return int(f.read().split()[0])


def start(c, node, argv, env=None):
    """As `ferry up` starts the box of a node."""
    p = subprocess.Popen(argv, env=env, start_new_session=True, stdin=subprocess.DEVNULL)
    with open(f"{c.state}/pids/{node}", "w") as f:
        f.write(f"{p.pid} {stat_of(p.pid)[19]}\n")


def switch_on(c, node, argv):
    start(c, node, argv)

    def is_back():
        n = c.api.get("Node", node)
        taints = [t["key"] for t in n.get("spec", {}).get("taints", [])]
        return ft.condition(n, "Ready")["status"] == "True" and not taints
    ft.poll(is_back, 60, f"{node} is Ready, and nothing says any more that it is off")


def argv_of(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as f:
        return [os.fsdecode(w) for w in f.read().split(b"\0")[:-1]]


def env_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as f:
        return dict(os.fsdecode(w).split("=", 1) for w in f.read().split(b"\0") if b"=" in w)


def lose(c, node, how):
    if how == "power":
        os.kill(c.node_pid1(node), signal.SIGKILL)
    else:  # its agent hangs, and the guest runs on
        os.kill(c.pid(node), signal.SIGSTOP)


def watch_until_it_answers(c, vmi, name, timeout):
    """(seconds until another VMI's guest runs, until it answers at the same address, the VMI); never are there two."""
    address, uid, begin, ran = ft.vmi_address(vmi), vmi["metadata"]["uid"], time.monotonic(), None
    while time.monotonic() < begin + timeout:
        seen = copies(c, name)
        assert len(seen) <= 1, f"two copies of {name}: {seen}"
        now = c.api.find("VirtualMachineInstance", name)
        if now and now["metadata"]["uid"] != uid and ft.vmi_running(now):
            ran = ran or time.monotonic() - begin
            with contextlib.suppress(OSError, ValueError):
                ft.Guest(address).command("status", 0.3)
                assert ft.vmi_address(now) == address
                return ran, time.monotonic() - begin, now
        time.sleep(0.02)
    raise TimeoutError(f"{name} does not answer after {timeout} s: {now and now['status']}")


def copies(c, name):
    """[(node, pid)] of the QEMUs of this VM; one that stands still counts."""
    out = []
    for n in range(1, c.nodes + 1):
        try:
            pids = ft.descendants(c.node_pid1(f"node-{n}"))
        except OSError:
            continue
        for p in pids:
            with contextlib.suppress(OSError), open(f"/proc/{p}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
                if b"qemu-system" in words[0] and any(w.startswith(b"guest=") and name.encode() in w for w in words):
                    out.append((f"node-{n}", p))
    return out
