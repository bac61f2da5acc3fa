"""Manifests that people really have: each runs, runs with named warnings, or is refused by path and reason.

tests/manifests/verdicts.yaml says which.  What is applied twice changes nothing, whoever applies, and neither does what its
user does to it meanwhile, except what he said himself.

python3 tests/clients/test_manifests.py --table prints the table of docs/ops/manifests.md.
"""
import copy
import glob
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
MANIFESTS = os.path.join(TOP, "tests", "manifests")
PAGE = os.path.join(TOP, "docs", "ops", "manifests.md")
with open(os.path.join(MANIFESTS, "verdicts.yaml")) as table:
    VERDICTS = yaml.safe_load(table)
RUNS = [f for f, v in VERDICTS.items() if v["verdict"] != "refused" and "first" not in v]
REFUSED = [f for f, v in VERDICTS.items() if v["verdict"] == "refused"]
WHERE = {"VirtualMachine": "virtualmachines", "VirtualMachineInstance": "virtualmachineinstances",
         "VirtualMachinePool": "virtualmachinepools", "DataVolume": "datavolumes", "Secret": "secrets",
         "PersistentVolumeClaim": "persistentvolumeclaims", "Service": "services", "MigrationPolicy": "migrationpolicies",
         "VirtualMachineInstancePreset": "virtualmachineinstancepresets",
         "VirtualMachineInstanceMigration": "virtualmachineinstancemigrations"}

needs_kubectl = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")


def documents(file):
    with open(os.path.join(MANIFESTS, file)) as f:
        return list(yaml.safe_load_all(f))


class Team:
    """A namespace, and the manifests as its people have them: with images that can be had here."""

    def __init__(self, cluster, images, name):
        self.api, self.cluster, self.images, self.ns = cluster.api, cluster, images, name
        self.folder = os.path.join(os.environ["FERRY_WORK"], "manifests", name)
        os.makedirs(self.folder, exist_ok=True)
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def gone(self):
        self.api.delete("Namespace", self.ns)

    def file(self, name):
        with open(os.path.join(MANIFESTS, name)) as f:
            text = f.read().replace("registry.test/tiny:v1", f"oci:{self.images}/disk")
        path = os.path.join(self.folder, name)
        with open(path, "w") as f:
            f.write(text)
        return path

    def kubectl(self, *args, code=0):
        """(what it said, what it complained of); code: how it has to end."""
        p = subprocess.run(["kubectl", "--kubeconfig", self.cluster.kubeconfig, "-n", self.ns, "--cache-dir",
                            os.path.join(os.path.dirname(self.folder), "cache"), *args], text=True, capture_output=True, timeout=120)
        assert p.returncode == code, (args, p.stdout, p.stderr)
        return p.stdout, p.stderr

    def path(self, doc, name=None):
        group = "api" if "/" not in doc["apiVersion"] else "apis"
        ns = "" if doc["kind"] == "MigrationPolicy" else f"/namespaces/{self.ns}"
        return f"/{group}/{doc['apiVersion']}{ns}/{WHERE[doc['kind']]}" + (f"/{name}" if name else "")

    def live(self, doc):
        return self.api.call("GET", self.path(doc, doc["metadata"]["name"]))

    def create(self, doc):
        """As kubectl asks: (code, answer, warnings)."""
        conn = self.api.connection()
        conn.request("POST", self.path(doc) + "?fieldValidation=Strict", json.dumps(doc), {"Content-Type": "application/json"})
        r = conn.getresponse()
        answer = json.loads(r.read())
        conn.close()
        return r.status, answer, [json.loads(w.split(" ", 2)[2]) for w in r.headers.get_all("Warning") or []]


@pytest.fixture
def team(cluster, images, request):
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.callspec.params["file"].split(".")[0])
    t = Team(cluster, images, f"{request.node.originalname.split('_')[2]}-{stem}")  # what of another test goes, goes by itself
    yield t
    t.gone()


def causes(answer):
    """[(path, reason)] of a refusal."""
    found = [(c["field"], c["message"]) for c in answer.get("details", {}).get("causes", [])]
    return found or [(f, "unknown field") for f in re.findall(r'unknown field "([^"]+)"', answer["message"])]


def same_reason(said, wanted):
    """KubeVirt's texts repeat the path in some places."""
    return said == wanted or said.endswith(f": {wanted}")


def test_each_manifest_has_a_verdict_and_a_row():
    there = {os.path.basename(f) for f in glob.glob(f"{MANIFESTS}/*.yaml")} - {"verdicts.yaml"}
    assert there == set(VERDICTS) == set(RUNS) | set(REFUSED) | {f for f, v in VERDICTS.items() if "first" in v}
    for v in VERDICTS.values():
        assert v["verdict"] in ("runs", "warns", "refused")
        assert bool(v.get("warnings")) == (v["verdict"] == "warns")
        assert bool(v.get("at") or v.get("says")) == (v["verdict"] == "refused")
    with open(PAGE) as f:
        assert rows() in f.read(), "docs/ops/manifests.md: the table is not that of tests/manifests/verdicts.yaml"


@pytest.mark.parametrize("file", REFUSED)
def test_a_refused_manifest_says_where_and_why_and_leaves_nothing(team, file):
    verdict, found = VERDICTS[file], []
    for doc in documents(file):
        code, answer, warnings = team.create(doc)
        if code == 404 and "says" in verdict:
            continue  # its version is not served: no client finds a place to send it to
        assert not warnings, warnings
        if code < 300:
            continue
        assert code in (400, 422) and answer["kind"] == "Status", answer
        assert causes(answer), answer
        found += causes(answer)
        assert team.api.raw("GET", team.path(doc, doc["metadata"]["name"]))[0] == 404
    assert len(found) == len(verdict.get("at", [])), found
    for path, reason in verdict.get("at", []):
        assert any(p == path and same_reason(said, reason) for p, said in found), (path, reason, found)


@needs_kubectl
@pytest.mark.parametrize("file", REFUSED)
def test_kubectl_says_why_a_manifest_is_refused(team, file):
    verdict = VERDICTS[file]
    for how in ([], ["--server-side"]):
        _, said = team.kubectl("apply", *how, "-f", team.file(file), code=1)
        for path, reason in verdict.get("at", []):
            if reason == "unknown field":  # kubectl before 1.25 looks itself, and names the last part only
                path = path.rsplit(".", 1)[1]
            assert reason in said and (path in said or len(verdict["at"]) > 1), said
        assert verdict.get("says", "") in said, said


# ---- what is applied -----------------------------------------------------------------------------------------

def is_part(wanted, live, path=""):
    """Where a live object is not what the file says, as GitOps tools look at it: the file's fields, and no others."""
    if isinstance(wanted, dict):
        if not isinstance(live, dict):
            return [path]
        return [p for k, v in wanted.items() for p in (is_part(v, live[k], f"{path}.{k}") if k in live else [f"{path}.{k}"])]
    if isinstance(wanted, list):
        if not isinstance(live, list) or len(wanted) != len(live):
            return [path]
        return [p for i, (w, l) in enumerate(zip(wanted, live)) for p in is_part(w, l, f"{path}[{i}]")]
    return [] if wanted == live else [path]


class Applied:
    def __init__(self, team, file, *how):
        self.team, self.file, self.how = team, file, how
        self.path = team.file(file)
        with open(self.path) as f:
            self.docs = list(yaml.safe_load_all(f))
        self.warnings = VERDICTS[file].get("warnings", [])

    def apply(self):
        """[what became of each object]"""
        out, err = self.team.kubectl("apply", *self.how, "-f", self.path)
        done = [line.split()[-1] for line in out.splitlines()]
        # Where kubectl has nothing to send, there is nobody to warn.
        assert [line.removeprefix("Warning: ") for line in err.splitlines()] == ([] if "unchanged" in done else self.warnings), err
        return done

    def live(self):
        return [self.team.live(d) for d in self.docs]

    def changes_nothing(self, *but):
        """It is applied again; but: paths in which its user has changed the object himself, so that nothing is applied."""
        assert [p for d, l in zip(self.docs, self.live()) for p in is_part(d, l)] == list(but)
        if but:
            return
        out, _ = self.team.kubectl("diff", *self.how, "-f", self.path)
        assert out == "", out
        for _ in range(5):  # a status may be written meanwhile, not each time
            before = self.live()
            assert self.apply() == ["serverside-applied" if self.how else "unchanged"] * len(self.docs)
            after = self.live()
            assert [written(a) for a in after] == [written(b) for b in before]
            if [a["metadata"]["resourceVersion"] for a in after] == [b["metadata"]["resourceVersion"] for b in before]:
                return
        raise AssertionError(f"applied again, and changed: {before} {after}")


def written(obj):
    """An object without what controllers tell of it."""
    o = copy.deepcopy(obj)
    o.pop("status", None)
    del o["metadata"]["resourceVersion"]
    o["metadata"]["managedFields"] = [m for m in o["metadata"].get("managedFields", []) if m.get("subresource") != "status"]
    return o


def wait_vm(team, name, status):
    return team.api.wait("VirtualMachine", name, lambda v: v["status"].get("printableStatus") == status, 90, team.ns)


@needs_kubectl
@pytest.mark.parametrize("file", RUNS)
def test_a_manifest_that_is_applied_twice_changes_nothing(team, file):
    applied = Applied(team, file)
    assert applied.apply() == ["created"] * len(applied.docs)
    applied.changes_nothing()
    vm = next((d for d in applied.docs if d["kind"] == "VirtualMachine"), None)
    name = vm and vm["metadata"]["name"]
    if vm:
        wait_vm(team, name, "Running")
        applied.changes_nothing()
        # a start makes it Always, in KubeVirt as well: only such a file is what it was afterwards
        if vm["spec"].get("running") or vm["spec"].get("runStrategy") == "Always":
            its_user_goes_on(team, applied, name)
    team.kubectl("delete", "-f", applied.path, "--timeout=90s")
    applied = Applied(team, file, "--server-side")
    assert applied.apply() == ["serverside-applied"] * len(applied.docs)
    applied.changes_nothing()
    if vm:
        wait_vm(team, name, "Running")
        applied.changes_nothing()
    team.kubectl("delete", "-f", applied.path, "--timeout=90s")


def its_user_goes_on(team, applied, name):
    """Moves, stops and starts it; the manifests of VERDICTS that need it as it is."""
    for after in (f for f, v in VERDICTS.items() if v.get("first") == applied.file):
        move = Applied(team, after)
        assert move.apply() == ["created"]
        done = team.api.wait("VirtualMachineInstanceMigration", move.docs[0]["metadata"]["name"],
                             lambda m: m["status"].get("phase") in ("Succeeded", "Failed"), 180, team.ns)
        assert done["status"]["phase"] == "Succeeded", done["status"]
        move.changes_nothing()
        applied.changes_nothing()
    vm = next(d for d in applied.docs if d["kind"] == "VirtualMachine")
    switch = ".spec.running" if "running" in vm["spec"] else ".spec.runStrategy"
    assert team.api.sub("virtualmachines", name, "stop", {"gracePeriod": 0}, ns=team.ns)[0] == 202
    wait_vm(team, name, "Stopped")
    applied.changes_nothing(switch)
    assert team.api.sub("virtualmachines", name, "start", ns=team.ns)[0] == 202
    wait_vm(team, name, "Running")
    applied.changes_nothing()


# ---- the table of the guide ----------------------------------------------------------------------------------

def rows():
    out = ["| manifest | what it is | what becomes of it |", "|---|---|---|"]
    for file, v in VERDICTS.items():
        where = "; ".join(f"`{path}`: {reason}" for path, reason in v.get("at", []))
        what = {"runs": "applied and runs", "warns": "applied, with the warning " + "; ".join(f"\"{w}\"" for w in v.get("warnings", [])),
                "refused": "refused: " + (where or v.get("says", ""))}[v["verdict"]]
        out.append(f"| `{file}` | {v['about']} | {what} |")
    return "\n".join(out) + "\n"


if __name__ == "__main__" and sys.argv[1:] == ["--table"]:
    print(rows(), end="")
