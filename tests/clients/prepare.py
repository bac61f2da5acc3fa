#!/usr/bin/env python3
"""Fetch and build the client programs of tests/clients below one folder (build/clients), and say where each is.

Usage: tests/clients/prepare.py --cache DIR [--long]

Writes DIR/clients.json: {client: {"argv": [...], "env": {...}, "version": "..."}}, or {"why": "..."} where this machine cannot have
it (no tool, no registry, no disk, too slow: its tests are skipped with these words), or {"error": "..."} where what was
fetched is not what is pinned here, or does not compile.  Nothing is installed, nothing is written outside of DIR.
"""
import argparse
import concurrent.futures
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
FETCH_SECONDS, BUILD_SECONDS = 300, 1200  # a compiler that is one of many jobs of two processors
OLD = {"version": "1.20.5+really1.20.2-1.1+deb12u1",  # Debian 12's
       "sha256": "087c42dc26c847740043cdaa8b16db666be5591a1da957f822922aa1b677494e"}
WRONG = re.compile(r"do not match the hashes|EINTEGRITY|SECURITY ERROR|checksum mismatch", re.I)


class Missing(Exception):
    """This machine cannot have it."""


class Wrong(Exception):
    """It is there, and is not what it should be."""


def run(args, seconds, what, **kw):
    """Its output; Missing when it fails or takes too long, Wrong when it is not what is pinned."""
    p = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         errors="replace", **kw)
    try:
        out, _ = p.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Missing(f"{what}: not done after {seconds} s") from None
    finally:
        if p.poll() is None:
            p.kill()
            p.communicate()
    if WRONG.search(out):
        raise Wrong(f"{what}: {out[-3000:]}")
    if p.returncode:
        raise Missing(f"{what}: {last_words(out)}")
    return out


def last_words(out):
    """The line that says why, of what a failed program said: its first error, else its last line."""
    lines = [line.strip() for line in out.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(error|E:|npm (ERR!|error)|go: (?!downloading))", line, re.I)]
    return (errors or lines or ["it said nothing"])[0 if errors else -1][:300]


def need(tool, path=None):
    found = shutil.which(tool, path=path)
    if not found:
        raise Missing(f"{tool} is not installed")
    return found


def need_room(cache, mib):
    free = shutil.disk_usage(cache).free >> 20
    if free < mib:
        raise Missing(f"{free} MiB of disk are free, it takes {mib}")


def digest(*paths):
    h = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as f:
            h.update(f.read())
    return h.hexdigest()


@contextlib.contextmanager
def folder(cache, name, key):
    """(its path, whether it is complete already); complete when the block ends well.  Another key begins anew."""
    path = os.path.join(cache, name)
    stamp = os.path.join(path, ".complete")
    with contextlib.suppress(OSError), open(stamp) as f:
        if f.read() == key:
            yield path, True
            return
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    yield path, False
    with open(stamp, "w") as f:
        f.write(key)


def kubectl_of_here(cache):
    program = need("kubectl")
    return {"argv": [program], "version": version_of_kubectl(program)}


def version_of_kubectl(program):
    out = run([program, "version", "--client", "-o", "json"], 60, "kubectl version")
    return json.loads(out[out.index("{"):])["clientVersion"]["gitVersion"]


def apt(path, *args):
    run([need("apt-get"), "-q", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20", "-o", "APT::Sandbox::User=root", *args],
        FETCH_SECONDS, f"apt-get {args[0]}", cwd=path)


def kubectl_of_debian_12(cache):
    name = f"kubernetes-client={OLD['version']}"
    with folder(cache, "kubectl-1.20", OLD["version"]) as (path, done):
        program = os.path.join(path, "usr/bin/kubectl")
        if not done:
            need("dpkg-deb")
            need_room(cache, 300)
            try:
                apt(path, "download", name)
            except Missing:
                if os.geteuid():
                    raise
                apt(path, "update")  # its list may be old, or none
                apt(path, "download", name)
            package, = [os.path.join(path, f) for f in os.listdir(path) if f.endswith(".deb")]
            if digest(package) != OLD["sha256"]:
                raise Wrong(f"{package}: its SHA-256 is {digest(package)}")
            run(["dpkg-deb", "-x", package, path], 120, "dpkg-deb")
            os.unlink(package)
    return {"argv": [program], "version": version_of_kubectl(program)}


def python(cache):
    lock = os.path.join(HERE, "requirements.txt")
    with folder(cache, "python", f"{digest(lock)} {sys.version}") as (path, done):
        if not done:
            need_room(cache, 400)
            run([sys.executable, "-m", "pip", "install", "--quiet", "--retries", "1", "--disable-pip-version-check", "--no-compile", "--no-deps",
                 "--only-binary", ":all:", "--require-hashes", "--target", os.path.join(path, "site"), "-r", lock],
                FETCH_SECONDS, "pip", env={**os.environ, "PIP_CACHE_DIR": os.path.join(cache, "pip"),
                                           "PIP_ROOT_USER_ACTION": "ignore"})
    return {"argv": [sys.executable, os.path.join(HERE, "life_python.py")],
            "env": {"PYTHONPATH": os.path.join(path, "site"), "PYTHONDONTWRITEBYTECODE": "1"}, "version": "37.0.2"}


def node(cache):
    files = [os.path.join(HERE, "node", f) for f in ("package.json", "package-lock.json")]
    program = need("node")
    version = run([program, "--version"], 60, "node").strip()
    if int(version[1:].split(".")[0]) < 18:
        raise Missing(f"node is {version}, it takes 18 or newer")
    with folder(cache, "node", digest(*files)) as (path, done):
        if not done:
            need_room(cache, 300)
            for f in files:
                shutil.copy(f, path)
            run([need("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries", "1",
                 "--loglevel", "error"], FETCH_SECONDS, "npm",
                cwd=path, env={**os.environ, "npm_config_cache": os.path.join(cache, "npm"), "npm_config_update_notifier": "false"})
    shutil.copy(os.path.join(HERE, "life_node.mjs"), path)  # modules are looked for beside it
    return {"argv": [program, os.path.join(path, "life_node.mjs")], "version": "1.4.0"}


def go_program(cache, name):
    """Builds a program of tests/clients/go; the compiler's own cache knows what has to be done."""
    program = need("go", os.environ.get("PATH", "") + ":/usr/local/go/bin:/usr/lib/go/bin")
    source = os.path.join(HERE, "go")
    with open(os.path.join(source, "go.mod")) as f:
        wanted = re.search(r"^go (\d+)\.(\d+)", f.read(), re.M).groups()
    have = re.search(r"go(\d+)\.(\d+)", run([program, "version"], 60, "go version")).groups()
    if tuple(map(int, have)) < tuple(map(int, wanted)):
        raise Missing(f"go is {'.'.join(have)}, it takes {'.'.join(wanted)}")
    out = os.path.join(cache, "go", "bin", name)
    env = {**os.environ, "GOPATH": os.path.join(cache, "go", "path"), "GOCACHE": os.path.join(cache, "go", "cache"),
           "GOFLAGS": "-mod=readonly -buildvcs=false -modcacherw", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOWORK": "off"}
    if not os.path.exists(out):
        need_room(cache, 3000)
        # Listing fetches what the program is made of, and no more; else a build that fails could be either's fault.
        run([program, "list", "-deps", f"./{name}"], FETCH_SECONDS, "go list", cwd=source, env=env)
    try:
        run([program, "build", "-trimpath", "-o", out, f"./{name}"], BUILD_SECONDS, "go build", cwd=source, env=env)
    except Missing as e:
        if "not done after" in str(e):
            raise
        raise Wrong(str(e)) from None
    with open(os.path.join(source, "go.mod")) as f:
        version = re.search(r"k8s.io/client-go (v\S+)", f.read())[1]
    return {"argv": [out], "version": version}


def client_go(cache):
    return go_program(cache, "life")


def kubectl_of_go(cache):
    made = go_program(cache, "kubectl")
    return {**made, "version": f"{made['version']} of its module"}


CLIENTS = {"kubectl": kubectl_of_here, "kubectl-1.20": kubectl_of_debian_12, "kubectl-go": kubectl_of_go, "python": python,
           "node": node, "client-go": client_go}
LONG = {"kubectl-go": "it is built only in the long run (./run test --long clients)"}


def prepare(cache, is_long):
    os.makedirs(cache, exist_ok=True)
    path = os.path.join(cache, "clients.json")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)

    def one(name):
        try:
            if name in LONG and not is_long:
                raise Missing(LONG[name])
            return CLIENTS[name](cache)
        except Missing as e:
            return {"why": str(e)}
        except Wrong as e:
            return {"error": str(e)}
        except Exception as e:  # ours: it is a failure of the tests, of this client's alone
            return {"error": f"prepare.py: {e!r}"}
    with concurrent.futures.ThreadPoolExecutor(len(CLIENTS)) as pool:
        made = dict(zip(CLIENTS, pool.map(one, CLIENTS)))
    # The one client that cannot be had: said here, so that nobody believes it was tried.
    made["kubevirt-client-go"] = {"why": "the module kubevirt.io/client-go cannot be fetched; client-go speaks the same paths"}
    with open(path, "w") as f:
        json.dump(made, f, indent=1)
    return made


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cache", required=True)
    p.add_argument("--long", action="store_true")
    args = p.parse_args()
    for name, c in prepare(os.path.abspath(args.cache), args.long).items():
        print(f"{name}: " + (c["version"] if "argv" in c else c.get("why") or c["error"]))


if __name__ == "__main__":
    main()
