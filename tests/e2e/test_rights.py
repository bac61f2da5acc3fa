"""Who may do what, over HTTPS: users by `ferry user`, roles, kubectl auth and --as."""
import json
import shutil
import subprocess

import pytest

from test_apiserver import BIN, CM, server  # noqa: F401 (a fixture)

RBAC = "/apis/rbac.authorization.k8s.io/v1"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SUB = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines"
VMIMS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations"

needs_kubectl = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")


class User:
    """Somebody with a kubeconfig that `ferry user` printed."""

    def __init__(self, server, name, *args):
        self.server = server
        self.file = f"{server.state}/{name}.kubeconfig"
        with open(self.file, "w") as out:
            subprocess.run([f"{BIN}/ferry", "user", name, "--pki", server.pki, *args], stdout=out, check=True)
        config = json.loads(subprocess.run(["kubectl", "--kubeconfig", self.file, "config", "view", "--raw", "-o", "json"],
                                           capture_output=True, check=True).stdout)
        self.context = config["contexts"][0]["context"]

    def kubectl(self, *args, stdin=None):
        p = subprocess.run(["kubectl", "--kubeconfig", self.file, "--cache-dir", f"{self.server.state}/kubectl-{id(self)}",
                            *args], input=stdin, text=True, capture_output=True, timeout=60)
        return p.returncode, p.stdout + p.stderr

    def groups(self):
        """As `kubectl auth whoami` asks, which kubectl 1.20 does not have."""
        code, text = self.kubectl("create", "--raw", WHO, "-f", "-", stdin=json.dumps({
            "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}))
        assert code == 0, text
        return json.loads(text)["status"]["userInfo"]["groups"]

    def can(self, *args):
        return self.kubectl("auth", "can-i", *args)[1].splitlines()[-1]


def send(server, method, path, headers, body=None):
    """With headers as they are, names more than once, too."""
    c = server.connect()
    c.putrequest(method, path)
    data = json.dumps(body).encode() if body is not None else b""
    for name, value in [*headers, ("Content-Type", "application/json"), ("Content-Length", str(len(data)))]:
        c.putheader(name, value)
    c.endheaders(data)
    r = c.getresponse()
    text = r.read()
    return r.status, json.loads(text) if text[:1] == b"{" else text


def test_asking_as_another_is_asking_with_their_rights(server):
    status, me = send(server, "POST", WHO, [], {})
    assert status == 201 and me["status"]["userInfo"]["username"] == "kubernetes-admin"
    status, body = send(server, "DELETE", "/api/v1/namespaces/default", [("Impersonate-User", "jane")])
    assert status == 403 and 'User "jane" cannot delete' in body["message"]
    status, them = send(server, "POST", WHO, [("Impersonate-User", "jane"), ("impersonate-group", "a"), ("Impersonate-Group", "b"),
                                              ("Impersonate-Uid", "u-1"), ("Impersonate-Extra-Scopes", "view"),
                                              ("Impersonate-Extra-example.org%2fTeam", "x"),
                                              ("Impersonate-Extra-scopes", "edit")], {})
    assert status == 201, them
    assert them["status"]["userInfo"] == {"username": "jane", "uid": "u-1", "groups": ["a", "b", "system:authenticated"],
                                          "extra": {"scopes": ["view", "edit"], "example.org/team": ["x"]}}
    for header in ("Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-x"):
        status, body = send(server, "DELETE", "/api/v1/namespaces/default", [(header, "system:masters")])
        assert status == 400 and "together with" in body["message"], header
    assert server.call("GET", "/api/v1/namespaces/default")[1]["metadata"].get("deletionTimestamp") is None


def test_credentials_that_nobody_can_judge_are_refused(server):
    for value in ("Bearer abc", "Basic YTpi"):
        assert send(server, "GET", CM, [("Authorization", value)])[0] == 401
        c = server.connect(cert=None)
        c.request("GET", "/version", None, {"Authorization": value})
        assert c.getresponse().status == 401


@needs_kubectl
def test_users_have_the_rights_that_are_bound_to_them(server):
    view = User(server, "vera", "--group", "viewers", "--group", "team-a", "--namespace", "default")
    assert view.context == {"cluster": "ferry", "user": "vera", "namespace": "default"}
    assert view.groups() == ["viewers", "team-a", "system:authenticated"]
    code, text = view.kubectl("get", "vms")
    assert code == 1 and 'User "vera" cannot list resource "virtualmachines" in API group "kubevirt.io"' in text
    server.kubectl("create", "rolebinding", "viewers", "--clusterrole=kubevirt.io:view", "--group=viewers")
    assert view.kubectl("get", "vms")[0] == 0
    assert view.can("create", "vms") == "no" and view.can("get", "vms", "-A") == "no"

    edit = User(server, "ed")
    server.kubectl("create", "rolebinding", "ed", "--clusterrole=edit", "--user=ed")
    assert edit.kubectl("create", "configmap", "c", "--from-literal=a=b")[0] == 0
    assert edit.can("create", "vms") == "yes" and edit.can("create", "vmim") == "no"
    assert edit.can("delete", "pods") == "no" and edit.can("create", "pods", "--subresource=eviction") == "yes"
    listed = edit.kubectl("auth", "can-i", "--list")[1].replace(".subresources.kubevirt.io/", "/")
    assert "virtualmachines/start " in listed and "virtualmachineinstances/console " in listed
    assert "virtualmachines/migrate " not in listed

    migrate = User(server, "mia")
    server.kubectl("create", "rolebinding", "mia", "--clusterrole=kubevirt.io:migrate", "--user=mia")
    assert migrate.can("create", "vmim") == "yes" and migrate.can("get", "vms") == "no"

    # The administrator sees the same, and asks as them.
    for user, path, want in (("vera", "start", 401), ("ed", "start", 404), ("ed", "migrate", 401), ("mia", "migrate", 404)):
        groups = [("Impersonate-Group", "viewers")] if user == "vera" else []
        status, body = send(server, "PUT", f"{SUB}/none/{path}", [("Impersonate-User", user), *groups], {})
        assert status == want, (user, path, body)
        if want == 401:
            assert body.decode() == (f'User "{user}" cannot update resource "virtualmachines/{path}" in API group '
                                     '"subresources.kubevirt.io" in the namespace "default"')
    assert server.kubectl("auth", "can-i", "create", "vmim", "--as=mia").strip() == "yes"
    assert server.kubectl("auth", "can-i", "create", "vmim", "--as=ed", ok=False).splitlines()[0] == "no"
    assert "cannot impersonate" in edit.kubectl("get", "cm", "--as=mia")[1]

    # Nobody raises himself; and all of it is there after a restart.
    server.kubectl("create", "rolebinding", "ed-admin", "--clusterrole=admin", "--user=ed")
    code, text = edit.kubectl("create", "rolebinding", "more", "--clusterrole=kubevirt.io:migrate", "--user=ed")
    assert code == 1 and "is attempting to grant RBAC permissions not currently held" in text
    assert edit.kubectl("create", "rolebinding", "less", "--clusterrole=view", "--user=joe")[0] == 0
    server.stop()
    server.start()
    assert edit.kubectl("get", "cm", "c")[0] == 0 and view.kubectl("get", "cm")[0] == 1


@needs_kubectl
def test_kubectl_makes_and_shows_roles(server):
    server.kubectl("create", "role", "reader", "--verb=get,list", "--resource=configmaps", "--resource-name=one")
    server.kubectl("create", "clusterrole", "paths", "--verb=get", "--non-resource-url=/metrics")
    server.kubectl("create", "clusterrole", "sum", "--aggregation-rule=part=yes")
    server.kubectl("create", "clusterrolebinding", "paths", "--clusterrole=paths", "--user=m")
    assert server.kubectl("auth", "can-i", "get", "/metrics", "--as=m").strip() == "yes"
    assert "configmaps" in server.kubectl("describe", "role", "reader")
    server.kubectl("label", "clusterrole", "paths", "part=yes")
    assert "/metrics" in server.kubectl("get", "clusterrole", "sum", "-o", "yaml")
    assert "ClusterRole/paths" in server.kubectl("get", "clusterrolebindings")
    manifest = json.dumps({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                           "metadata": {"name": "reader", "namespace": "default"},
                           "rules": [{"verbs": ["watch"], "apiGroups": [""], "resources": ["configmaps"]}]})
    assert "reconciled" in server.kubectl("auth", "reconcile", "-f", "-", stdin=manifest)
    assert server.kubectl("delete", "role/reader", "clusterrole/sum").count("deleted") == 2


def test_a_wrong_wish_for_a_user_is_said(server):
    for args, code, text in ((["x", "--days", "0"], 2, "--days"), (["system:x"], 2, "cluster's own"), ([], 2, "one user"),
                             (["x", "--group"], 2, "needs a value"), (["x", "--group", ""], 2, "a group has a name"),
                             (["x", "--pki", f"{server.state}/none"], 1, "admin.kubeconfig")):
        p = subprocess.run([f"{BIN}/ferry", "user", "--pki", server.pki, *args], capture_output=True, text=True)
        assert p.returncode == code and text in p.stderr and not p.stdout, (args, p.stderr)
