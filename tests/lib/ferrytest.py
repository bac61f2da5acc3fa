"""What demo, benchmarks and end-to-end tests share: a cluster, its API, probes, and the tiny guest.

Only Python's standard library and the `ferry` command.  Every wait has a deadline and raises with what
was last seen.
"""
import base64
import contextlib
import hashlib
import http.client
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time

BIN = os.environ.get("FERRY_BIN", "")
TINY = os.environ.get("FERRY_TINY", "")
UNDERLAY = "172.30.77"
# Nearly half of the instructions of a boot would be the kernel's tests of its ciphers.  An emulated guest's kernel may take
# the machine's load for a broken timer, and stops for good then.
KERNEL_ARGS = "console=ttyS0 quiet cryptomgr.notests no_timer_check"
# Beside the programs: the one folder outside the cluster's own that every box sees, wherever the clone is
# (a box has a /tmp of its own).  Runs beside each other have a work folder each, and so images each.
IMAGES = os.path.join(BIN, "test-images", hashlib.sha256(os.environ.get("FERRY_WORK", "").encode()).hexdigest()[:8])


class ApiError(Exception):
    def __init__(self, status, body):
        self.status = status
        self.body = body
        self.message = body.get("message", "") if isinstance(body, dict) else str(body)
        super().__init__(f"{status}: {self.message}")


KINDS = {
    "VirtualMachine": ("/apis/kubevirt.io/v1", "virtualmachines"),
    "VirtualMachineInstance": ("/apis/kubevirt.io/v1", "virtualmachineinstances"),
    "VirtualMachineInstanceMigration": ("/apis/kubevirt.io/v1", "virtualmachineinstancemigrations"),
    "KubeVirt": ("/apis/kubevirt.io/v1", "kubevirts"),
    "MigrationPolicy": ("/apis/migrations.kubevirt.io/v1alpha1", "migrationpolicies"),
    "Pod": ("/api/v1", "pods"), "Service": ("/api/v1", "services"), "Secret": ("/api/v1", "secrets"),
    "ConfigMap": ("/api/v1", "configmaps"), "Event": ("/api/v1", "events"),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims"),
    "PersistentVolume": ("/api/v1", "persistentvolumes"), "Node": ("/api/v1", "nodes"),
    "Namespace": ("/api/v1", "namespaces"),
    "StorageClass": ("/apis/storage.k8s.io/v1", "storageclasses"),
    "EndpointSlice": ("/apis/discovery.k8s.io/v1", "endpointslices"),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases"),
    "Allocation": ("/apis/ferry.dev/v1alpha1", "allocations"),
    "PortBinding": ("/apis/ferry.dev/v1alpha1", "portbindings"),
    "Handover": ("/apis/ferry.dev/v1alpha1", "handovers"),
    "FerryConfig": ("/apis/ferry.dev/v1alpha1", "ferryconfigs"),
    "NodeFence": ("/apis/ferry.dev/v1alpha1", "nodefences"),
    "DiskWitness": ("/apis/ferry.dev/v1alpha1", "diskwitnesses"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
}
CLUSTER_SCOPED = {"PersistentVolume", "Node", "Namespace", "StorageClass", "Allocation", "FerryConfig",
                  "MigrationPolicy", "NodeFence"}


class Api:
    """A small client of the API server, from an admin kubeconfig."""

    def __init__(self, kubeconfig, namespace="default"):
        import yaml
        with open(kubeconfig) as f:
            cfg = yaml.safe_load(f)
        self.ns = namespace
        self.kubeconfig = kubeconfig
        where = os.path.dirname(os.path.abspath(kubeconfig))
        cluster = cfg["clusters"][0]["cluster"]
        user = cfg["users"][0]["user"]
        server = cluster["server"].split("//")[1]
        self.host, port = server.rsplit(":", 1)
        self.port = int(port)
        self.ctx = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
        with tempfile.TemporaryDirectory() as tmp:
            def pem(obj, key):
                if key + "-data" in obj:
                    path = os.path.join(tmp, key)
                    with open(path, "wb") as f:
                        f.write(base64.b64decode(obj[key + "-data"]))
                    return path
                return os.path.join(where, obj[key])
            self.ctx.load_verify_locations(pem(cluster, "certificate-authority"))
            self.ctx.load_cert_chain(pem(user, "client-certificate"), pem(user, "client-key"))
        self.local = threading.local()

    def connection(self, timeout=30):
        return http.client.HTTPSConnection(self.host, self.port, context=self.ctx, timeout=timeout)

    def raw(self, method, path, body=None, content_type="application/json", accept="application/json"):
        data = None
        if body is not None:
            data = body if isinstance(body, (bytes, str)) else json.dumps(body)
        for attempt in (1, 2):
            conn, now = getattr(self.local, "conn", None), time.monotonic()
            if conn is None or now - self.local.used > 60:  # the server closes what was silent for three minutes
                conn = self.local.conn = self.connection()
            self.local.used = now
            try:
                conn.request(method, path, data, {"Content-Type": content_type, "Accept": accept})
                r = conn.getresponse()
                return r.status, r.read(), dict(r.getheaders())
            except (OSError, http.client.HTTPException):
                conn.close()
                self.local.conn = None
                if attempt == 2 or method not in ("GET",):
                    raise

    def call(self, method, path, body=None, content_type="application/json"):
        status, data, _ = self.raw(method, path, body, content_type)
        try:
            value = json.loads(data) if data else {}
        except ValueError:
            value = data.decode(errors="replace")
        if status >= 300:
            raise ApiError(status, value)
        return value

    def path(self, kind, name=None, ns=None, sub=None):
        base, plural = KINDS[kind]
        p = base + ("" if kind in CLUSTER_SCOPED else f"/namespaces/{ns or self.ns}") + "/" + plural
        return p + (f"/{name}" if name else "") + (f"/{sub}" if sub else "")

    def get(self, kind, name, ns=None):
        return self.call("GET", self.path(kind, name, ns))

    def find(self, kind, name, ns=None):
        try:
            return self.get(kind, name, ns)
        except ApiError as e:
            if e.status == 404:
                return None
            raise

    def list(self, kind, selector=None, ns=None):
        q = f"?labelSelector={selector}" if selector else ""
        return self.call("GET", self.path(kind, None, ns) + q)["items"]

    def create(self, obj, ns=None, dry_run=False):
        return self.call("POST", self.path(obj["kind"], None, obj["metadata"].get("namespace") or ns) +
                         ("?dryRun=All" if dry_run else ""), obj)

    def patch(self, kind, name, body, ns=None, sub=None, type_="merge"):
        return self.call("PATCH", self.path(kind, name, ns, sub), body, f"application/{type_}-patch+json")

    def delete(self, kind, name, ns=None, **options):
        return self.call("DELETE", self.path(kind, name, ns),
                         {"apiVersion": "v1", "kind": "DeleteOptions", **options})

    def sub(self, plural, name, what, body=None, ns=None):
        return self.raw("PUT", f"/apis/subresources.kubevirt.io/v1/namespaces/{ns or self.ns}/{plural}/{name}/{what}",
                        body or {})

    def watch(self, kind, name=None, rv=None, timeout=60, ns=None):
        """Yield (time, type, object) until the caller stops or the time is over."""
        q = "?watch=true&timeoutSeconds=" + str(int(timeout))
        if name:
            q += f"&fieldSelector=metadata.name%3D{name}"
        if rv is not None:
            q += f"&resourceVersion={rv}"
        conn = self.connection(timeout)
        try:
            conn.request("GET", self.path(kind, None, ns) + q)
            r = conn.getresponse()
            if r.status != 200:
                raise ApiError(r.status, json.loads(r.read() or b"{}"))
            while True:
                line = r.readline()
                if not line:
                    return
                ev = json.loads(line)
                if ev["type"] != "BOOKMARK":
                    yield time.time(), ev["type"], ev["object"]
        except (socket.timeout, TimeoutError):
            return
        finally:
            conn.close()

    def wait(self, kind, name, test, timeout=60, ns=None):
        """Until test(object or None) is true; returns the object.  What was just made has no status: the
        test gets an empty one."""
        def met(obj):
            if obj is not None:
                obj.setdefault("status", {})
            return test(obj)
        end = time.monotonic() + timeout
        seen = self.find(kind, name, ns)
        while not met(seen):
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{kind} {name}: not so after {timeout} s; last seen: "
                                   f"{json.dumps((seen or {}).get('status'))[:2000]}")
            for _, kind_of, obj in self.watch(kind, name, None, min(left, 5) + 1, ns):
                seen = None if kind_of == "DELETED" else obj
                if met(seen):
                    return seen
                if time.monotonic() > end:
                    break
            else:
                seen = self.find(kind, name, ns)
        return seen


def phase(obj):
    """status.phase; None while there is no object or no status yet."""
    return (obj or {}).get("status", {}).get("phase")


def printable(vm_):
    return (vm_ or {}).get("status", {}).get("printableStatus")


def condition(obj, type_):
    for c in (obj or {}).get("status", {}).get("conditions", []):
        if c["type"] == type_:
            return c
    return None


def poll(test, timeout, what, every=0.05):
    """For facts that have no event here (a guest that starts to answer)."""
    end = time.monotonic() + timeout
    while True:
        v = test()
        if v:
            return v
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not so after {timeout} s")
        time.sleep(every)


@contextlib.contextmanager
def own_net():
    """A network namespace for the calling thread and what it starts: room for a second cluster, whose
    links and addresses would meet the first one's.  It ends with the last process in it."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    clone_newnet = 0x40000000

    def check(r, what):
        if r:
            raise OSError(ctypes.get_errno(), what)
    with open("/proc/thread-self/ns/net") as before:
        check(libc.unshare(clone_newnet), "unshare")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            check(libc.setns(before.fileno(), clone_newnet), "setns")


class Freezable:
    """A file system of its own at a folder.  While it is frozen, whatever writes there hangs, as when storage is away."""

    def __init__(self, path, mib=256):
        self.path = path
        self.image = f"{path}.ext4"
        self.mib = mib
        self.is_frozen = False

    def mount(self):
        os.makedirs(self.path, exist_ok=True)
        with open(self.image, "wb") as f:
            f.truncate(self.mib << 20)
        subprocess.run(["mkfs.ext4", "-q", self.image], check=True)
        subprocess.run(["mount", "-o", "loop", self.image, self.path], check=True)
        os.rmdir(f"{self.path}/lost+found")

    def unmount(self):
        if not os.path.ismount(self.path):
            return
        self.thaw()
        subprocess.run(["umount", "-l", self.path], check=True)
        os.unlink(self.image)

    def freeze(self):
        if not self.is_frozen:
            subprocess.run(["fsfreeze", "-f", self.path], check=True)
        self.is_frozen = True

    def thaw(self):
        if self.is_frozen:
            subprocess.run(["fsfreeze", "-u", self.path], check=True)
        self.is_frozen = False

    def __enter__(self):
        self.mount()
        return self

    def __exit__(self, *_):
        self.unmount()


class Cluster:
    """`ferry up` in a folder of its own."""

    def __init__(self, state, nodes=2, bin_=None, node_args=None, apiserver_args=None):
        self.state = os.path.abspath(state)
        self.bin = bin_ or BIN
        self.nodes = nodes
        self.node_args = node_args
        self.apiserver_args = apiserver_args
        self.api = None

    @property
    def kubeconfig(self):
        return os.path.join(self.state, "control/pki/admin.kubeconfig")

    def up(self):
        args = [f"{self.bin}/ferry", "up", "--state", self.state, "--nodes", str(self.nodes), "-q"]
        if self.node_args:
            args += ["--node-args", self.node_args]
        if self.apiserver_args:
            args += ["--apiserver-args", self.apiserver_args]
        subprocess.run(args, check=True)
        self.api = Api(self.kubeconfig)
        return self

    def down(self, purge=True):
        args = [f"{self.bin}/ferry", "down", "--state", self.state, "--now"]
        if os.path.isdir(self.state):
            subprocess.run(args + (["--purge"] if purge else []), check=True,
                           stderr=subprocess.DEVNULL if purge else None)

    def ferry(self, *args, check=True, timeout=120, **kw):
        return subprocess.run([f"{self.bin}/ferry", *args, "--kubeconfig", self.kubeconfig], check=check, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, **kw)

    def pid(self, name):
        """The process (not its supervisor) of apiserver, controller or node-N."""
        with open(f"{self.state}/pids/{name}") as f:
            outer = int(f.read().split()[0])
        inside = f"{self.state}/pids/{name}.inside"
        if os.path.exists(inside):
            with open(inside) as f:
                outer = int(f.read().split()[0])
        want = {"apiserver": "ferry-apiserver", "controller": "ferry-controlle"}.get(name, "ferry-node")
        for child in children(outer):
            if comm(child) == want[:15]:
                return child
        raise ProcessLookupError(name)

    def everything(self):
        """Every process of the cluster: supervisors, daemons, launchers, QEMUs."""
        tops = []
        for f in os.listdir(f"{self.state}/pids"):
            with open(f"{self.state}/pids/{f}") as text:
                tops.append(int(text.read().split()[0]))
        return sorted({p for top in tops for p in [top, *descendants(top)]})

    def node_pid1(self, name):
        with open(f"{self.state}/pids/{name}.inside") as f:
            return int(f.read().split()[0])

    def in_node(self, name, *args, **kw):
        """Run a program in a node's network namespace (the machine's files)."""
        return subprocess.run(["nsenter", "-t", str(self.node_pid1(name)), "-n", *args], **kw)

    def log(self, name):
        with open(f"{self.state}/logs/{name}.log", errors="replace") as f:
            return f.read()

    def shared_disk(self, name, image):
        """A file of the shared class, a PV that is it, and a PVC bound to it."""
        folder = f"{self.state}/shared/{name}"
        os.makedirs(folder, exist_ok=True)
        size = os.path.getsize(image)
        shutil.copyfile(image, f"{folder}/disk.img")
        self.api.create({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"capacity": {"storage": str(size)}, "accessModes": ["ReadWriteMany"],
                     "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "shared",
                     "volumeMode": "Filesystem",
                     "csi": {"driver": "ferry.dev/shared", "volumeHandle": name, "volumeAttributes": {"path": name}},
                     "claimRef": {"namespace": self.api.ns, "name": name}}})
        self.api.create({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "shared", "volumeMode": "Filesystem",
                     "volumeName": name, "resources": {"requests": {"storage": str(size)}}}})


def children(pid):
    out = []
    with contextlib.suppress(OSError):
        for t in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{t}/children") as f:
                out += [int(x) for x in f.read().split()]
    return out


def descendants(pid):
    todo, out = [pid], []
    while todo:
        p = todo.pop()
        for c in children(p):
            out.append(c)
            todo.append(c)
    return out


def comm(pid):
    """The program's name; "" when it has ended (also when nobody has reaped it yet)."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/stat") as f:
            if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                return ""
        with open(f"/proc/{pid}/comm") as f:
            return f.read().strip()
    return ""


def pss_kib(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        for line in f:
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def vm(name, memory="1Gi", pvc=None, kernel=None, run_strategy="Always", interface=None, volumes=None, disks=None,
       labels=None, eviction="LiveMigrate", **spec):
    """A VirtualMachine manifest; interface: the binding's name."""
    disks, volumes = list(disks or []), list(volumes or [])
    if pvc:
        disks.insert(0, {"name": "root", "bootOrder": 1, "disk": {"bus": "virtio"}})
        volumes.insert(0, {"name": "root", "persistentVolumeClaim": {"claimName": pvc}})
    domain = {"memory": {"guest": memory}, "cpu": {"cores": 1},
              "devices": {"disks": disks, "interfaces": [{"name": "default", (interface or "masquerade"): {}}]}}
    if kernel:
        domain["firmware"] = {"kernelBoot": kernel}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
            "spec": {"runStrategy": run_strategy, "template": {
                "metadata": {"labels": {"app": name, **(labels or {})}},
                "spec": {"domain": domain, "networks": [{"name": "default", "pod": {}}], "volumes": volumes,
                         "evictionStrategy": eviction, "terminationGracePeriodSeconds": 5, **spec}}}}


def service(name, port=7777, protocol="TCP", type_="ClusterIP"):
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": type_, "selector": {"app": name},
                     "ports": [{"name": "echo", "port": port, "targetPort": port, "protocol": protocol}]}}


def migration(name, vmi, **spec):
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration", "metadata": {"name": name},
            "spec": {"vmiName": vmi, **spec}}


def vmi_running(v):
    return bool(v) and v.get("status", {}).get("phase") == "Running"


def vmi_address(v):
    for i in v.get("status", {}).get("interfaces", []):
        if i.get("ipAddress"):
            return i["ipAddress"]
    return None


FINAL = ("Succeeded", "Failed")


def move(api, vmi, name=None, timeout=120, **spec):
    """Create a migration and wait for its end.  Returns (object, {phase: seconds since the create})."""
    name = name or f"{vmi}-{int(time.time() * 1000)}"
    start = time.time()
    made = api.create(migration(name, vmi, **spec))
    phases = {}
    seen = made
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        for when, kind, obj in api.watch("VirtualMachineInstanceMigration", name,
                                         seen["metadata"]["resourceVersion"], min(30, timeout)):
            seen = obj
            phase = obj.get("status", {}).get("phase")
            if phase and phase not in phases:
                phases[phase] = when - start
            if phase in FINAL or kind == "DELETED":
                return obj, phases
    raise TimeoutError(f"migration {name} did not end in {timeout} s: {json.dumps(seen.get('status'))[:3000]}")


# For a probe of what must not be lost, beside other work: an emulated guest that is asked without a break answers
# nobody in time once its processor is shared.
GENTLE = ("--new-every", "50ms", "--held-every", "10ms")


class Probe:
    """`ferry probe` with windows that the caller cuts."""

    def __init__(self, target, *args, bin_=None, enter=None):
        cmd = [f"{bin_ or BIN}/ferry", "probe", target, *args]
        if enter:
            cmd = ["nsenter", "-t", str(enter), "-n", *cmd]
        self.p = subprocess.Popen(cmd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.udp_sent = self.udp_back = 0  # over all windows: one that is under way at a mark is in the next

    def count(self, window):
        self.udp_sent += window["udp"]["sent"]
        self.udp_back += window["udp"]["back"]
        return window

    def mark(self, name="mark"):
        self.p.stdin.write(name + "\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            raise RuntimeError(f"the probe ended: exit code {self.p.wait()}")
        return self.count(json.loads(line))

    def stop(self):
        if self.p.poll() is None:
            self.p.terminate()
        out, _ = self.p.communicate(timeout=10)
        lines = [l for l in out.splitlines() if l.strip()]
        return self.count(json.loads(lines[-1])) if lines else None


# What a guest's kernel says when its processor or its clock stood still: true, and no damage.
STOOD = ("clocksource", "hrtimer: interrupt took", "timekeeping", "stall", "soft lockup", "hung", "watchdog", "rcu",
         "blocked for more than")


def kernel_complains(now, before=None):
    """Of more than standing still, from one status of a guest to another (it tells its last text only)."""
    return now["kernelBad"] != (before["kernelBad"] if before else 0) and \
        not any(x in now["kernelText"].lower() for x in STOOD)


class Guest:
    """The tiny guest's command port."""

    def __init__(self, address, port=7778, timeout=5):
        self.address, self.port, self.timeout = address, port, timeout

    def command(self, line, timeout=None):
        with socket.create_connection((self.address, self.port), timeout or self.timeout) as s:
            s.sendall(line.encode() + b"\n")
            return json.loads(s.makefile().readline())

    def last_word(self, line):
        """A command that the guest does not live to answer: it is there, takes it, and goes."""
        with socket.create_connection((self.address, self.port), 20) as s:
            s.sendall(line.encode() + b"\n")
            with contextlib.suppress(OSError):
                s.settimeout(2)
                s.recv(1)

    def status(self):
        return self.command("status")

    def wait(self, timeout=60):
        def answers():
            try:
                return self.command("status", 1)
            except (OSError, ValueError):
                return None
        return poll(answers, timeout, f"the guest at {self.address} answers")


def launcher_query(path):
    """A launcher's answer to "query" (docs/internals/ipc.md): frames of JSON behind four bytes of length."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect(path)
        f = s.makefile("rb")

        def call(n, method, **params):
            body = json.dumps({"id": n, "method": method, "params": params}).encode()
            s.sendall(struct.pack(">I", len(body)) + body)
            while True:
                m = json.loads(f.read(struct.unpack(">I", f.read(4))[0]))
                if m.get("id") == n and "event" not in m:
                    return m["result"]
        call(1, "hello", name="scraped", versions={"min": 1, "max": 1})
        return call(2, "query")


def qmp_commands(cluster, where, name):
    """What the launcher has asked its QEMU so far, without what it measures by the clock (asking it asks no QEMU)."""
    q = launcher_of(cluster, where, name)
    return q["qmpCommands"] - q["meterCommands"] - q["usageCommands"]


def launcher_of(cluster, where, name):
    """The answer to `query` of a VM's launcher."""
    root = f"/proc/{cluster.node_pid1(where)}/root/run/ferry/run/pods"
    for pod in os.listdir(root):
        if not os.path.exists(f"{root}/{pod}/launcher.sock"):
            continue
        q = launcher_query(f"{root}/{pod}/launcher.sock")
        if q.get("name", "").endswith("/" + name):
            return q
    raise LookupError(name)


def median(values):
    v = sorted(x for x in values if x is not None)
    if not v:
        return None
    m = len(v) // 2
    return v[m] if len(v) % 2 else (v[m - 1] + v[m]) / 2
