"""Who asks: service accounts' tokens with kubectl and ferry, the audit log, and a node's certificate."""
import base64
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import time

import conftest
import ferrytest as ft
import pytest
from test_apiserver import Server

BIN = os.environ.get("FERRY_BIN", "build/release/src/main")


class Audited(Server):
    def start(self):
        self.log = f"{self.state}-audit.log"
        real = subprocess.Popen

        def with_audit(argv, **kw):
            return real([*argv, "--audit-log", self.log], **kw)

        subprocess.Popen = with_audit
        try:
            return super().start()
        finally:
            subprocess.Popen = real

    def lines(self):
        return [json.loads(line) for line in open(self.log)]

    def with_token(self, token, *args, ok=True):
        p = subprocess.run(["kubectl", "--server", f"https://127.0.0.1:{self.port}", "--certificate-authority",
                            f"{self.pki}/ca.crt", "--token", token, "--cache-dir", f"{self.state}/kubectl-sa",
                            "--kubeconfig", "/dev/null", *args], text=True, capture_output=True, timeout=60)
        assert not ok or p.returncode == 0, p.stderr
        return p.stdout if ok else p.stdout + p.stderr

    def ferry(self, *args, ok=True):
        p = subprocess.run([f"{BIN}/ferry", args[0], "--kubeconfig", f"{self.pki}/admin.kubeconfig", *args[1:]],
                           text=True, capture_output=True, timeout=60)
        assert not ok or p.returncode == 0, p.stderr
        return p.stdout if ok else p.stdout + p.stderr


@pytest.fixture
def server(tmp_path):
    s = Audited(tmp_path / "state").start()
    yield s
    if s.proc.poll() is None:
        assert s.stop() == 0


def claims(token):
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def has_tokens(server):
    """Does this kubectl know them?  1.20 does not."""
    return "  token " in server.kubectl("create", "--help")


def token_of(server, duration="1h"):
    if has_tokens(server):
        return server.kubectl("create", "token", "robot", f"--duration={duration}").strip()
    return server.ferry("token", "robot", "--duration", duration).strip()


def test_kubectl_and_ferry_make_tokens_that_work_and_end(server):
    server.kubectl("create", "serviceaccount", "robot")
    server.kubectl("create", "role", "maps", "--verb=get,list,create", "--resource=configmaps")
    server.kubectl("create", "rolebinding", "maps", "--role=maps", "--serviceaccount=default:robot")
    token = token_of(server, "20m")
    said = claims(token)
    assert said["sub"] == "system:serviceaccount:default:robot"
    assert said["exp"] - said["iat"] == 1200
    if has_tokens(server):
        assert "robot" in server.with_token(token, "auth", "whoami")
    server.with_token(token, "create", "configmap", "made", "--from-literal=a=b")
    assert "made" in server.with_token(token, "get", "configmaps")
    out = server.with_token(token, "delete", "configmap", "made", ok=False)
    assert "Forbidden" in out and "system:serviceaccount:default:robot" in out
    assert "no" in server.with_token(token, "auth", "can-i", "create", "serviceaccounts/token", ok=False)
    assert server.kubectl("get", "serviceaccounts").split("\n")[0].split() == ["NAME", "SECRETS", "AGE"]
    if has_tokens(server):
        bound = server.kubectl("create", "token", "robot", "--bound-object-kind=Secret", "--bound-object-name=none",
                               ok=False)
        assert 'secrets "none" not found' in bound
        assert "10 minutes" in server.kubectl("create", "token", "robot", "--duration=5m", ok=False)

    second = server.ferry("token", "robot", "--duration", "1h30m", "--audience", "vault").strip()
    assert claims(second)["aud"] == ["vault"]
    assert claims(second)["exp"] - claims(second)["iat"] == 5400
    assert "Unauthorized" in server.with_token(second, "get", "configmaps", ok=False) or \
        "must be logged in" in server.with_token(second, "get", "configmaps", ok=False)
    assert "not found" in server.ferry("token", "nobody", ok=False)
    assert "'soon' is not a duration" in server.ferry("token", "robot", "--duration", "soon", ok=False)

    # over a restart, and over a turn of the keys
    server.stop()
    server.start()
    server.with_token(token, "get", "configmaps")
    server.kubectl("delete", "serviceaccount", "robot")
    server.kubectl("create", "serviceaccount", "robot")
    out = server.with_token(token, "get", "configmaps", ok=False)
    assert "Unauthorized" in out or "must be logged in" in out
    # no token has left a trace
    logs = open(f"{server.state}.log").read() + open(server.log).read()
    for t in (token, second):
        assert t not in logs and t.split(".")[2] not in logs


def test_a_token_decides_also_beside_a_certificate(server):
    server.kubectl("create", "serviceaccount", "robot")
    token = token_of(server)
    c = server.connect()
    c.request("GET", "/api/v1/namespaces/default/configmaps", headers={"Authorization": f"Bearer {token}"})
    r = c.getresponse()
    r.read()
    assert r.status == 403  # the account's rights, not the administrator's
    c.request("GET", "/api/v1/namespaces/default/configmaps", headers={"Authorization": "Bearer x"})
    assert c.getresponse().status == 401
    # larger than any token, and than what a head may hold
    for size, want in ((20000, (401, 431)), (10_000_000, (431, 400, None))):
        try:
            c = server.connect(cert=None)
            c.request("GET", "/api/v1/pods", headers={"Authorization": "Bearer " + "a" * size})
            status = c.getresponse().status
        except OSError:
            status = None
        assert status in want, (size, status)
    assert server.call("GET", "/version")[0] == 200


def test_the_audit_log_says_who_did_what(server):
    server.kubectl("create", "configmap", "c", "--from-literal=k=hidden-value")
    server.kubectl("get", "configmap", "c", "--as", "jane", ok=False)
    deadline = time.monotonic() + 10
    while True:
        mine = [e for e in server.lines() if e.get("objectRef", {}).get("resource") == "configmaps"
                and e["objectRef"].get("name") == "c"]
        if len(mine) >= 2:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    made = next(e for e in mine if e["verb"] == "create")
    assert made["user"]["username"] == "kubernetes-admin" and made["responseStatus"]["code"] == 201
    assert made["sourceIPs"] == ["127.0.0.1"] and made["userAgent"].startswith("kubectl/")
    denied = next(e for e in mine if e["verb"] == "get")
    assert denied["impersonatedUser"]["username"] == "jane"
    assert denied["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert "hidden-value" not in open(server.log).read()
    assert os.stat(server.log).st_mode & 0o777 == 0o600
    status, text = server.call("GET", "/metrics")
    assert status == 200 and b"apiserver_audit_event_total" in text


def test_the_log_has_a_line_for_each_write(server):
    server.kubectl("create", "configmap", "told", "--from-literal=a=b")
    log = open(f"{server.state}.log").read()
    line = next(x for x in log.splitlines() if "verb=create resource=configmaps " in x)
    assert "namespace='default' name='told'" in line
    assert "user='kubernetes-admin'" in line and "status=201" in line and "latency_ms=" in line


def test_another_authority_comes_without_a_restart(server):
    """Clients with the certificates of before go on until the last step, the ones from between over all of it."""
    def step(name):
        subprocess.run([f"{BIN}/ferry-apiserver", "rotate-ca", "--state", server.state, name], check=True)
        reloads = open(f"{server.state}.log").read().count("certificates reloaded")
        server.proc.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 20
        while open(f"{server.state}.log").read().count("certificates reloaded") == reloads:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def connect(directory):
        ctx = ssl.create_default_context(cafile=f"{directory}/ca.crt")
        ctx.load_cert_chain(f"{directory}/admin.crt", f"{directory}/admin.key")
        return http.client.HTTPSConnection("127.0.0.1", server.port, context=ctx, timeout=10)

    def ask(conn):
        c = conn if isinstance(conn, http.client.HTTPSConnection) else connect(conn)
        c.request("GET", "/api/v1/namespaces")
        r = c.getresponse()
        r.read()
        return r.status

    def keep(name):
        to = f"{server.state}-{name}"
        shutil.copytree(server.pki, to)
        return to

    before = keep("before")
    server.kubectl("create", "serviceaccount", "robot")
    token = token_of(server)
    held = server.connect()  # a connection that stays
    assert ask(held) == 200
    step("prepare")
    between = keep("between")
    assert ask(before) == 200 and ask(between) == 200 and ask(held) == 200
    step("switch")
    # the server's certificate is the new one's: who has not heard of it does not trust the server any more
    assert ask(between) == 200 and ask(server.pki) == 200 and ask(held) == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(before)
    maps = server.kubectl("get", "configmap", "-n", "kube-system", "kube-root-ca.crt", "-o",
                          "jsonpath={.data.ca\\.crt}")
    assert maps.count("BEGIN CERTIFICATE") == 2
    step("finish")
    assert ask(server.pki) == 200 and ask(between) == 401 and ask(held) == 401
    if has_tokens(server):
        assert "robot" in server.with_token(token, "auth", "whoami")
    assert server.proc.poll() is None


def test_a_namespace_begins_with_an_account_and_the_authority(cluster):
    api = cluster.api
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fresh"}})
    at = "/api/v1/namespaces/fresh"

    def there(path):
        try:
            return api.call("GET", path)
        except ft.ApiError as e:
            assert e.status == 404
            return None

    ft.poll(lambda: there(f"{at}/serviceaccounts/default"), 20, "the account is there")
    ca = ft.poll(lambda: there(f"{at}/configmaps/kube-root-ca.crt"), 20, "the authority is there")
    assert ca["data"]["ca.crt"] == open(f"{cluster.state}/control/pki/ca.crt").read()
    token = cluster.ferry("token", "default", "-n", "fresh").stdout.strip()
    assert claims(token)["sub"] == "system:serviceaccount:fresh:default"
    api.delete("Namespace", "fresh")
    ft.poll(lambda: there(at) is None, 30, "the namespace goes")
    events = [json.loads(line) for line in open(f"{cluster.state}/logs/audit.log")]
    mine = [e for e in events if e.get("objectRef", {}).get("subresource") == "token"]
    assert mine and mine[-1]["objectRef"]["name"] == "default" and mine[-1]["responseStatus"]["code"] == 201
    assert not [e for e in events if e.get("objectRef", {}).get("resource") == "leases"]


def serial_shown(cluster, node, address):
    """Of the certificate that an agent's port shows."""
    pem = cluster.in_node(node, "python3", "-c", f"import ssl; print(ssl.get_server_certificate(('{address}', 8186)))",
                          check=True, capture_output=True, text=True).stdout
    return ssl.PEM_cert_to_DER_cert(pem)


def test_a_nodes_certificate_is_renewed_while_its_guest_runs(cluster, images):
    """A certificate of a minute is due after twenty seconds; forty later it is over, and nobody has noticed."""
    with conftest.running_elsewhere(cluster, images, "renewal") as vmi:
        node = vmi["status"]["nodeName"]
        guest = ft.Guest(ft.vmi_address(vmi))
        before, qemu = guest.status(), conftest.qemu_pids(cluster, "renewal")
        pki = f"{cluster.state}/nodes/{node}/pki"
        address = next(a["address"] for a in cluster.api.get("Node", node)["status"]["addresses"]
                       if a["type"] == "InternalIP")
        subprocess.run([f"{ft.BIN}/ferry-apiserver", "issue", "--state", f"{cluster.state}/control", "--cn",
                        f"system:node:{node}", "--org", "system:nodes", "--san", address, "--san", node, "--seconds",
                        "60", "--out", pki], check=True)
        over = time.time() + 60
        old = open(f"{pki}/tls.crt").read()
        agent = cluster.pid(node)
        os.kill(agent, signal.SIGKILL)  # the next one reads the short one
        ft.poll(lambda: cluster.log(node).count("certificate of this node was renewed"), 55, "it is renewed")
        agent = cluster.pid(node)
        assert open(f"{pki}/tls.crt").read() != old
        assert not os.path.exists(f"{pki}/next.crt") and not os.path.exists(f"{pki}/next.key")
        assert os.stat(f"{pki}/tls.key").st_mode & 0o777 == 0o600
        ft.poll(lambda: serial_shown(cluster, node, address) == ssl.PEM_cert_to_DER_cert(
            open(f"{pki}/tls.crt").read()), 20, "the agent's port shows the new one")
        ft.poll(lambda: time.time() > over + 3, 60, "the old one is over")

        def renewed():
            return cluster.api.get("Lease", node, ns="kube-node-lease")["spec"]["renewTime"]

        at = renewed()
        ft.poll(lambda: renewed() != at, 40, "the node goes on")
        # through the API server to the agent, and to the guest
        cluster.ferry("pause", "renewal")
        cluster.ferry("unpause", "renewal")
        after = guest.wait(30)
        assert after["bootID"] == before["bootID"]
        assert conftest.qemu_pids(cluster, "renewal") == qemu
        assert cluster.pid(node) == agent
        assert ft.condition(cluster.api.get("Node", node), "Ready")["status"] == "True"
