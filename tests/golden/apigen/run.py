#!/usr/bin/env python3
"""Golden tests of tools/apigen: every message for a faulty schema, every output for a good one.

  run.py [--update]      --update writes what it got as the new expectation

bad/NAME.yaml must fail with exactly bad/NAME.err; good/schema gives exactly good/expect; what is
committed under docs/api and deploy/kubernetes/crds must be what api/schema gives; api/schema has the kinds
and the fields of wire.txt, and no others in those types.
"""

import filecmp
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
APIGEN = os.path.join(TOP, "tools", "apigen", "apigen.py")
sys.path.insert(0, os.path.dirname(APIGEN))
import schema  # noqa: E402

failures = []


def report(name, ok, detail=""):
    print(f"[ {'      OK' if ok else ' FAILED '} ] {name}", flush=True)
    if not ok:
        failures.append(name)
        print(detail)


def apigen(*args, seed="0"):
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
    p = subprocess.run([sys.executable, APIGEN, *args], capture_output=True, text=True, timeout=120,
                       env=env)
    return p.returncode, p.stderr


def bad_case(path, update):
    name = os.path.basename(path)[:-5]
    with tempfile.TemporaryDirectory() as tmp:
        os.symlink(path, os.path.join(tmp, name + ".yaml"))
        code, text = apigen("--schema", tmp, "--c", os.path.join(tmp, "out"))
        text = re.sub(r"(not YAML): .*", r"\1", text)  # the parser's own words
        wrote = os.path.exists(os.path.join(tmp, "out"))
    expect = path[:-5] + ".err"
    if update:
        with open(expect, "w", encoding="utf-8") as f:
            f.write(text)
    with open(expect, encoding="utf-8") as f:
        want = f.read()
    report(f"bad_{name}", code == 1 and text == want and not wrote, f"--- got\n{text}--- expected\n{want}")


def same_tree(have, want):
    """Names and bytes; the text of the first difference, or None."""
    for name in sorted(set(os.listdir(have)) | set(os.listdir(want))):
        a, b = os.path.join(have, name), os.path.join(want, name)
        if not os.path.exists(a):
            return f"{b}: no longer generated"
        if not os.path.exists(b):
            return f"{name}: missing in {want}"
        if not filecmp.cmp(a, b, shallow=False):
            p = subprocess.run(["diff", "-u", b, a], capture_output=True, text=True, errors="replace",
                               check=False)
            return p.stdout[:4000]
    return None


def outputs(root):
    return ["--c", root, "--openapi", root, "--crds", root, "--docs", root]


def good_case(update):
    expect = os.path.join(HERE, "good", "expect")
    with tempfile.TemporaryDirectory() as tmp:
        a, b = os.path.join(tmp, "a"), os.path.join(tmp, "b")
        for root, seed in ((a, "1"), (b, "2")):
            code, text = apigen("--schema", os.path.join(HERE, "good", "schema"), *outputs(root),
                                seed=seed)
            if code:
                report("good", False, text)
                return
        report("output_depends_on_the_schema_only", same_tree(a, b) is None)
        if update:
            subprocess.run(["rm", "-rf", expect], check=True)
            subprocess.run(["cp", "-r", a, expect], check=True)
        diff = same_tree(a, expect)
        report("good", diff is None, diff)


def committed_case():
    with tempfile.TemporaryDirectory() as tmp:
        crds, docs = os.path.join(tmp, "crds"), os.path.join(tmp, "docs")
        code, text = apigen("--schema", os.path.join(TOP, "api", "schema"), "--crds", crds,
                            "--docs", docs)
        if code:
            report("committed_pages_and_crds_are_current", False, text)
            return
        diff = (same_tree(crds, os.path.join(TOP, "deploy", "kubernetes", "crds"))
                or same_tree(docs, os.path.join(TOP, "docs", "api")))
        report("committed_pages_and_crds_are_current", diff is None,
               f"{diff}\nrun: tools/apigen/apigen.py --schema api/schema "
               "--crds deploy/kubernetes/crds --docs docs/api")


# What Ferry adds to KubeVirt's types, and what every object has.
BESIDE_WIRE = {"ferry", "apiVersion", "kind", "metadata"}


def check_kind(model, words):
    group, versions, scope, name, plural, *short = words
    k = next((k for k in model.kinds if (k.group, k.name) == (group, name)), None)
    if not k:
        return f"kind {group} {name}: missing"
    have = (",".join([k.version] + k.served), "Namespaced" if k.namespaced else "Cluster", k.plural,
            ",".join(k.short))
    want = (versions, scope, plural, short[0] if short else "")
    return None if have == want else f"kind {group} {name}: is {have}, should be {want}"


def check_type(types, words):
    group, name, *fields = words
    t = types.get((group, name))
    if not t:
        return f"type {group} {name}: missing"
    have = {f.name for f in t.fields}
    lost = [f for f in fields if f not in have]
    more = sorted(have - set(fields) - BESIDE_WIRE)
    if lost or more:
        return f"type {group} {name}: lacks {lost}, has besides {more}"
    return None


def check_enum(model, words):
    name, *values = words
    have = model.enums[name].values if name in model.enums else []
    want = ["" if v == "-" else v for v in values]
    return None if have == want else f"enum {name}: is {have}, should be {want}"


def wire_case():
    """Every kind, field and enumerated value that clients of KubeVirt and CDI may send or look for."""
    folder = os.path.join(TOP, "api", "schema")
    names = sorted(n for n in os.listdir(folder) if n.endswith(".yaml"))
    model = schema.load([(os.path.join(folder, n), n) for n in names])
    types = {(t.group, t.openapi.rsplit(".", 1)[1]): t for t in model.types.values()}
    faults = []
    with open(os.path.join(HERE, "wire.txt"), encoding="utf-8") as f:
        for line in f:
            what, *words = line.split()
            if what == "kind":
                faults.append(check_kind(model, words))
            elif what == "type":
                faults.append(check_type(types, words))
            elif what == "enum":
                faults.append(check_enum(model, words))
    seen = len(faults)
    faults = [x for x in faults if x]
    report("kinds_and_fields_are_those_of_the_wire", seen > 400 and not faults, "\n".join(faults))


def read_varint(data, at):
    n = shift = 0
    while True:
        byte = data[at]
        at += 1
        n |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return n, at


def fields_of(data):
    """(number, bytes) of the length-delimited fields of a protobuf message."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        n, at = read_varint(data, at)
        if key & 7 == 2:
            yield key >> 3, data[at:at + n]
            at += n


def only(data, number):
    return [v for n, v in fields_of(data) if n == number]


def path2(data):
    """openapi.v2.PathItem -> what operation2() takes of the JSON form."""
    out = {}
    for verb, n in (("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("patch", 8)):
        for op in only(data, n):
            out[verb] = ([v.decode() for v in only(op, 1)], only(op, 3)[0].decode(), only(op, 5)[0].decode(),
                         [v.decode() for v in only(op, 6)], [v.decode() for v in only(op, 7)],
                         len(only(op, 8)),
                         {only(r, 1)[0].decode(): len(only(only(only(r, 2)[0], 1)[0], 2))
                          for r in only(only(op, 9)[0], 1)})
    return out


def operation2(op):
    """Tags, description, operation id, media types, number of parameters, answers with their schemas' number."""
    return (op["tags"], op["description"], op["operationId"], op["produces"], op["consumes"],
            len(op.get("parameters", [])), {c: int("schema" in r) for c, r in op["responses"].items()})


def protobuf_case():
    """The protobuf form, taken apart again, has the paths and definitions of the JSON form."""
    with tempfile.TemporaryDirectory() as tmp:
        code, text = apigen("--schema", os.path.join(TOP, "api", "schema"), "--openapi", tmp)
        with open(os.path.join(tmp, "openapi_v2.json"), encoding="utf-8") as f:
            doc = json.load(f)
        with open(os.path.join(tmp, "openapi_v2.pb"), "rb") as f:
            pb = f.read()
    paths = [only(v, 1)[0].decode() for v in only(only(pb, 8)[0], 2)]
    names = [only(v, 1)[0].decode() for v in only(only(pb, 9)[0], 1)]
    properties = {}
    for v in only(only(pb, 9)[0], 1):
        body = only(v, 2)[0]
        props = only(body, 25)
        properties[only(v, 1)[0].decode()] = [only(p, 1)[0].decode() for p in only(props[0], 1)] if props else []
    want = {name: list(d.get("properties", {})) for name, d in doc["definitions"].items()}
    ops = {only(v, 1)[0].decode(): path2(only(v, 2)[0]) for v in only(only(pb, 8)[0], 2)}
    want_ops = {name: {verb: operation2(op) for verb, op in v.items() if verb != "parameters"}
                for name, v in doc["paths"].items()}
    report("protobuf_says_what_the_json_says", code == 0 and paths == list(doc["paths"])
           and names == list(doc["definitions"]) and properties == want and ops == want_ops, text)


def schema3(data):
    """openapi.v3.SchemaOrReference -> the JSON that it was made from."""
    ref = only(data, 2)
    if ref:
        return {"$ref": only(ref[0], 1)[0].decode()}
    data, out = only(data, 1)[0], {}
    for key, n in (("type", 25), ("description", 34), ("format", 35)):
        out.update({key: v.decode() for v in only(data, n)})
    out["required"] = [v.decode() for v in only(data, 23)]
    out["allOf"] = [schema3(v) for v in only(data, 26)]
    out["oneOf"] = [schema3(v) for v in only(data, 27)]
    out["items"] = [schema3(only(v, 1)[0]) for v in only(data, 30)]
    out["additionalProperties"] = [schema3(only(v, 1)[0]) for v in only(data, 32)]
    for key in ("items", "additionalProperties"):
        out[key] = out[key][0] if out[key] else None
    out["properties"] = {only(p, 1)[0].decode(): schema3(only(p, 2)[0])
                         for v in only(data, 31) for p in only(v, 1)}
    out.update({only(v, 1)[0].decode(): json.loads(only(only(v, 2)[0], 2)[0]) for v in only(data, 36)})
    return {k: v for k, v in out.items() if v or k == "items" and v is not None}


def media3(data):
    return {only(v, 1)[0].decode(): {"schema": schema3(only(only(v, 2)[0], 1)[0])} for v in only(data, 1)}


def params3(values):
    out = []
    for v in values:
        p = only(v, 1)[0]
        one = {"name": only(p, 1)[0].decode(), "in": only(p, 2)[0].decode(), "description": only(p, 3)[0].decode(),
               "schema": schema3(only(p, 10)[0])}
        out.append(one)
    return out


def response3(data):
    return {"description": only(data, 1)[0].decode(), "content": [media3(v) for v in only(data, 3)]}


def path3(data):
    out = {"parameters": params3(only(data, 13))}
    for verb, n in (("get", 4), ("put", 5), ("post", 6), ("delete", 7), ("patch", 10)):
        for op in only(data, n):
            out[verb] = {"tags": [v.decode() for v in only(op, 1)],
                         "description": only(op, 3)[0].decode(), "operationId": only(op, 5)[0].decode(),
                         "parameters": params3(only(op, 6)),
                         "requestBody": [media3(only(only(v, 1)[0], 2)[0]) for v in only(op, 7)],
                         "responses": {only(r, 1)[0].decode(): response3(only(only(r, 2)[0], 1)[0])
                                       for r in only(only(op, 8)[0], 2)}}
            out[verb].update({only(v, 1)[0].decode(): json.loads(only(only(v, 2)[0], 2)[0]) for v in only(op, 13)})
    return out


def path_of_json(node):
    """The same of a path item as JSON: without what is a number in protobuf."""
    def params(values):
        return [{k: v for k, v in p.items() if k != "required"} for p in values]

    out = {"parameters": params(node.get("parameters", []))}
    for verb, op in node.items():
        if verb != "parameters":
            body = op.get("requestBody")
            out[verb] = {**op, "parameters": params(op.get("parameters", [])),
                         "requestBody": [body["content"]] if body else [],
                         "responses": {c: {"description": r["description"],
                                           "content": [r["content"]] if "content" in r else []}
                                       for c, r in op["responses"].items()}}
    return out


def protobuf3_case():
    """Every v3 document as protobuf, taken apart again, is the JSON one."""
    wrong, n = [], 0
    with tempfile.TemporaryDirectory() as tmp:
        apigen("--schema", os.path.join(TOP, "api", "schema"), "--openapi", tmp)
        for name in sorted(x for x in os.listdir(tmp) if x.startswith("openapi_v3") and x.endswith(".json")):
            with open(os.path.join(tmp, name), encoding="utf-8") as f:
                doc = json.load(f)
            with open(os.path.join(tmp, name[:-5] + ".pb"), "rb") as f:
                pb = f.read()
            n += 1
            schemas = {only(v, 1)[0].decode(): schema3(only(v, 2)[0]) for v in only(only(only(pb, 5)[0], 1)[0], 1)}
            want = doc["components"]["schemas"]
            wrong += [f"{name}: {k}\n{schemas.get(k)}\n{v}" for k, v in want.items() if schemas.get(k) != v]
            paths = {only(v, 1)[0].decode(): path3(only(v, 2)[0]) for v in only(only(pb, 4)[0], 1)}
            wrong += [f"{name}: {k}\n{paths.get(k)}\n{path_of_json(v)}" for k, v in doc["paths"].items()
                      if paths.get(k) != path_of_json(v)]
            if list(schemas) != list(want) or list(paths) != list(doc["paths"]):
                wrong.append(f"{name}: other names")
    report("v3_protobuf_says_what_the_json_says", n > 10 and not wrong, "\n".join(wrong[:5]))


def references_case():
    """No document refers to a definition that it lacks."""
    lost = []

    def walk(node, known, name):
        if isinstance(node, dict):
            ref = node.get("$ref")
            if isinstance(ref, str) and ref.rsplit("/", 1)[1] not in known:
                lost.append(f"{name}: {ref}")
            for v in node.values():
                walk(v, known, name)
        elif isinstance(node, list):
            for v in node:
                walk(v, known, name)

    with tempfile.TemporaryDirectory() as tmp:
        apigen("--schema", os.path.join(TOP, "api", "schema"), "--openapi", tmp)
        for name in sorted(os.listdir(tmp)):
            if not name.endswith(".json"):
                continue
            with open(os.path.join(tmp, name), encoding="utf-8") as f:
                doc = json.load(f)
            known = doc.get("definitions") or doc["components"]["schemas"]
            walk(doc, known, name)
    report("every_reference_resolves", not lost, "\n".join(lost))


def main():
    update = "--update" in sys.argv[1:]
    folder = os.path.join(HERE, "bad")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".yaml"):
            bad_case(os.path.join(folder, name), update)
    good_case(update)
    committed_case()
    wire_case()
    protobuf_case()
    protobuf3_case()
    references_case()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
