"""Programs that others wrote live through a VM's whole life, each as a user with rights in his own namespace only.

Each program tells its steps ("ok STEP", "FAIL STEP: why"); a step that it does not tell is a failure.
"""
import concurrent.futures
import contextlib
import os
import signal
import subprocess
import sys
import threading

import ferrytest as ft
import pytest
import yaml
from conftest import HERE, User, known_clients, tiny_vm

STEPS = ("namespace rights create running patch conflict apply pause console migrate evict compare stop start restart "
         "delete").split()
KUBECTL_STEPS = [*STEPS[:4], "daily", *STEPS[4:]]
CANNOT = {"kubectl": ["console"]}  # and that is said
CLIENTS = ["kubectl", "kubectl-1.20", "kubectl-go", "python", "node", "client-go", "kubevirt-client-go"]
AT_ONCE = 2  # they mostly wait
SECONDS = 600


def is_kubectl(name):
    return name.startswith("kubectl")


def steps_of(name):
    return KUBECTL_STEPS if is_kubectl(name) else STEPS


def live(cluster, images, name, client, running):
    """Runs it to its end, listed in running; (exit code, what it said)."""
    user = User(cluster, f"c-{name.replace('.', '-')}")
    with open(f"{user.folder}/vm.yaml", "w") as f:
        yaml.safe_dump(tiny_vm(images, "life"), f)
    argv = client["argv"]
    env = {**os.environ, **client.get("env", {}), "HOME": user.folder, "CLIENT_ADMIN": cluster.kubeconfig,
           "CLIENT_USER": user.kubeconfig, "CLIENT_USER_NAME": user.name, "CLIENT_NAMESPACE": user.namespace,
           "CLIENT_VM": f"{user.folder}/vm.yaml", "CLIENT_WORK": user.folder, "CLIENT_STEPS": " ".join(steps_of(name))}
    env.pop("KUBECONFIG", None)
    if is_kubectl(name):
        env["CLIENT_KUBECTL"] = argv[0]
        # As the drain of that version asks.
        env["CLIENT_EVICTION"] = "policy/v1beta1" if client["version"].startswith("v1.20") else "policy/v1"
        argv = [sys.executable, os.path.join(HERE, "life_kubectl.py")]
    p = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         errors="replace", start_new_session=True)
    running.append(p)
    timer = threading.Timer(SECONDS, end, [p])
    timer.start()
    out, _ = p.communicate()
    timer.cancel()
    end(p)
    return p.returncode, out


def end(p):
    """And all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(p.pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def lives(request):
    """{client: a future of live()}, of the clients whose tests were asked for and that are there."""
    known = known_clients()
    wanted = {i.callspec.params["name"] for i in request.session.items if i.originalname == "test_a_vm_lives_and_moves"}
    there = [n for n in CLIENTS if n in wanted and "argv" in known.get(n, {})]
    if not there:
        yield {}
        return
    cluster, images = request.getfixturevalue("cluster"), request.getfixturevalue("images")
    pool, running = concurrent.futures.ThreadPoolExecutor(AT_ONCE), []
    yield {n: pool.submit(live, cluster, images, n, known[n], running) for n in there}
    pool.shutdown(wait=False, cancel_futures=True)  # what still runs was interrupted
    for p in running:
        if p.poll() is None:
            end(p)


def told(out, word):
    return [line.split(":")[0].split()[1] for line in out.splitlines() if line.startswith(word + " ")]


@pytest.mark.parametrize("name", CLIENTS)
def test_a_vm_lives_and_moves(lives, name, request):
    client = known_clients().get(name)
    assert client, f"tests/clients/prepare.py was not run, or does not know {name}"
    assert "error" not in client, client["error"]
    if "why" in client:
        pytest.skip(client["why"])
    code, out = lives[name].result()
    cannot = CANNOT.get("kubectl", []) if is_kubectl(name) else []
    api = request.getfixturevalue("cluster").api
    ns = f"c-{name.replace('.', '-')}"
    if code:
        for kind in ("VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceMigration", "Event"):
            for o in api.list(kind, ns=ns):
                out += f"\n{kind} {o['metadata']['name']}: {o.get('status') or o.get('message')}"
    assert code == 0, out
    assert told(out, "skip") == cannot and not told(out, "FAIL"), out
    assert told(out, "ok") == [s for s in steps_of(name) if s not in cannot], out
    for kind in ("VirtualMachine", "VirtualMachineInstance", "Pod"):
        ft.poll(lambda k=kind: not api.list(k, ns=ns), 30, f"no {kind} is left in {ns}")
    api.delete("Namespace", ns)
    api.wait("Namespace", ns, lambda n: n is None, 60)
