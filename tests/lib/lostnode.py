"""A node of `ferry up` as a machine: it loses its power, hangs, is switched off by a fence agent, and on again."""
import os
import shlex
import signal
import subprocess

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
