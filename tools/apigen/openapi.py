"""OpenAPI v2 (JSON and gnostic protobuf) and v3 documents, and the C file that embeds them."""

import hashlib
import json

import gnostic
import gnostic3
from schema import SCALARS, SUB_ANSWERS, SUB_PARAMS

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
TIME = META + ".Time"
INFO = {"title": "Kubernetes", "version": "v1.33.0"}
BODIES = ["application/json", "application/yaml"]
ANSWERS = ["application/json"]
PATCHES = ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"]
STRATEGIC = "application/strategic-merge-patch+json"

QUERY = {
    "dryRun": ("string", "\"All\": check everything, store nothing."),
    "fieldManager": ("string", "Name of whoever makes the change."),
    "fieldValidation": ("string", "Ignore, Warn or Strict: what happens to unknown fields."),
    "force": ("boolean", "Take fields over from other managers (apply only)."),
    "pretty": ("string", "\"true\": indented output."),
    "labelSelector": ("string", "Only objects with these labels."),
    "fieldSelector": ("string", "Only objects with these fields."),
    "limit": ("integer", "Most items of one answer."),
    "continue": ("string", "Token of the previous answer."),
    "resourceVersion": ("string", "Version to read at or to watch from."),
    "resourceVersionMatch": ("string", "How resourceVersion is meant."),
    "timeoutSeconds": ("integer", "Seconds after which a watch ends."),
    "watch": ("boolean", "Changes instead of a list."),
    "allowWatchBookmarks": ("boolean", "Marks of progress in a watch."),
    "sendInitialEvents": ("boolean", "A watch begins with what exists."),
    "gracePeriodSeconds": ("integer", "Seconds for shutting down."),
    "propagationPolicy": ("string", "What happens to dependants."),
}
LIST_QUERY = ["allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit",
              "resourceVersion", "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds",
              "watch"]
WRITE_QUERY = ["dryRun", "fieldManager", "fieldValidation"]
VERBS = {"get": "read", "put": "replace", "post": "create", "deletecollection": "delete"}
ACTIONS = {"GET": "get", "PUT": "put", "POST": "post"}
CODES = {"101": "Switching Protocols", "200": "OK", "201": "Created", "202": "Accepted", "401": "Unauthorized"}
DELETE_QUERY = ["dryRun", "gracePeriodSeconds", "propagationPolicy"]


def describe(f):
    """Doc comment plus what Ferry does with the field."""
    doc = f.doc
    if f.values:
        doc += " One of: " + ", ".join(v or '""' for v in f.values) + "."
    if f.support == "rejected":
        doc += f" Refused: {f.why}." if f.why else " Not supported by Ferry yet: refused."
    elif f.support == "noop":
        doc += f" No effect here: {f.why}."
    return doc


def describe_kind(k):
    return f"{k.doc} Refused: {k.refused}." if k.refused else k.doc


class Schemas:
    """Definitions of one document; v3 wraps references, v2 puts them beside the description."""

    def __init__(self, model, v3):
        self.model = model
        self.v3 = v3
        self.prefix = "#/components/schemas/" if v3 else "#/definitions/"
        self.out = {}

    def ref(self, name):
        return {"$ref": self.prefix + name}

    def described_ref(self, name, doc):
        if self.v3:
            return {"description": doc, "allOf": [self.ref(name)]}
        return {"description": doc, **self.ref(name)}

    def scalar(self, name):
        shared = {"Quantity": QUANTITY, "Time": TIME, "IntOrString": INT_OR_STRING}
        if name in shared:
            self.add_shared(shared[name])
            return self.ref(shared[name])
        if name == "Duration":
            return {"type": "string"}
        _, _, kind, fmt = SCALARS[name]
        out = {}
        if kind:
            out["type"] = kind
        if fmt:
            out["format"] = fmt
        return out

    def add_shared(self, name):
        either = {"oneOf": [{"type": "string"}, {"type": "number"}]}
        docs = {
            QUANTITY: ({"description": "A number with a suffix: 512Mi, 500m, 2G."},
                       {"type": "string"}, either),
            TIME: ({"description": "A time as RFC 3339 writes it."},
                   {"type": "string", "format": "date-time"}, None),
            INT_OR_STRING: ({"description": "A number or text.", "format": "int-or-string"},
                            {"type": "string"},
                            {"oneOf": [{"type": "integer"}, {"type": "string"}]}),
        }
        common, v2, v3 = docs[name]
        self.out[name] = {**common, **(v3 if self.v3 and v3 else v2)}

    def item(self, f):
        if f.struct:
            t = self.model.types[f.struct]
            self.add(t)
            return self.ref(t.openapi)
        return self.scalar(f.scalar)

    def field(self, f):
        doc = describe(f)
        item = self.item(f)
        if f.is_list:
            out = {"description": doc, "type": "array", "items": item}
            if f.merge:
                out["x-kubernetes-patch-strategy"] = (
                    "merge,retainKeys" if f.merge == "retainKeys" and f.merge_key else f.merge)
            if f.merge_key:
                out["x-kubernetes-patch-merge-key"] = f.merge_key
            if f.list_type:
                out["x-kubernetes-list-type"] = f.list_type
            if f.list_keys:
                out["x-kubernetes-list-map-keys"] = f.list_keys
            return out
        if f.is_map:
            return {"description": doc, "type": "object", "additionalProperties": item}
        if "$ref" in item:
            return self.described_ref(item["$ref"][len(self.prefix):], doc)
        return {"description": doc, **item}

    def add(self, t):
        if t.openapi in self.out:
            return
        out = self.out[t.openapi] = {"description": describe_kind(t.kind) if t.kind else t.doc,
                                     "type": "object"}
        props = {}
        if t.kind:
            props["apiVersion"] = {"description": "Group and version.", "type": "string"}
            props["kind"] = {"description": "Kind.", "type": "string"}
        for f in t.fields:
            props[f.name] = self.field(f)
        if props:
            out["properties"] = props
        required = [f.name for f in t.fields if not f.optional]
        if required:
            out["required"] = required
        if t.kind:
            out["x-kubernetes-group-version-kind"] = gvks(t.kind)
        elif t.name in {s.kind for s in self.model.subresources}:
            out["x-kubernetes-group-version-kind"] = [
                {"group": t.group, "kind": t.name, "version": t.version}]

    def add_list(self, k):
        self.add_meta()
        self.out[k.type.openapi + "List"] = {
            "description": f"A list of {k.kind}.", "type": "object", "required": ["items"],
            "properties": {
                "apiVersion": {"description": "Group and version.", "type": "string"},
                "kind": {"description": "Kind.", "type": "string"},
                "metadata": self.described_ref(META + ".ListMeta", "Metadata of the list."),
                "items": {"description": "The objects.", "type": "array",
                          "items": self.ref(k.type.openapi)},
            },
            "x-kubernetes-group-version-kind": [{**g, "kind": k.kind + "List"} for g in gvks(k)],
        }

    def add_meta(self):
        if META + ".ListMeta" in self.out:
            return
        text = {"type": "string"}
        self.out[META + ".ListMeta"] = {
            "description": "Metadata of a list.", "type": "object", "properties": {
                "continue": {"description": "Token for the next part.", **text},
                "remainingItemCount": {"description": "Items in later parts.", "type": "integer",
                                       "format": "int64"},
                "resourceVersion": {"description": "Version of the list.", **text},
                "selfLink": {"description": "Historic.", **text},
            }}
        self.out[META + ".Patch"] = {
            "description": "A patch, in the form that its content type names.", "type": "object"}
        self.out[META + ".Status"] = {
            "description": "The outcome of a request without an object.", "type": "object",
            "properties": {
                "apiVersion": {"description": "Group and version.", **text},
                "kind": {"description": "Kind.", **text},
                "code": {"description": "HTTP status.", "type": "integer", "format": "int32"},
                "details": {"description": "What it is about, with causes.", "type": "object"},
                "message": {"description": "A sentence for people.", **text},
                "metadata": self.described_ref(META + ".ListMeta", "Metadata."),
                "reason": {"description": "One word for programs.", **text},
                "status": {"description": "Success or Failure.", **text},
            },
            "x-kubernetes-group-version-kind": [{"group": "", "kind": "Status", "version": "v1"}]}


def gvk(k):
    return {"group": k.group, "kind": k.kind, "version": k.version}


def gvks(k):
    """Of every version that it is served under; its own first."""
    own = k.type.kind
    return [gvk(own.under(v)) for v in [own.version] + own.served]


class Paths:
    def __init__(self, schemas):
        self.s = schemas
        self.out = {}

    def param(self, name, where, ptype, doc, required=False):
        out = {"name": name, "in": where, "description": doc}
        if required:
            out["required"] = True
        if self.s.v3:
            out["schema"] = {"type": ptype}
        else:
            out["type"] = ptype
        return out

    def query(self, names):
        return [self.param(n, "query", *(QUERY.get(n) or SUB_PARAMS[n])) for n in sorted(names)]

    def request(self, out, params, body, consumes, needs_body):
        """What an operation takes: a type by its name, or nothing."""
        if self.s.v3:
            if body:
                out["requestBody"] = {"required": needs_body, "content": {
                    m: {"schema": self.s.ref(body)} for m in consumes or BODIES}}
            return
        out["consumes"] = consumes or (BODIES if body else ["*/*"])
        if body:
            params.append({"name": "body", "in": "body", "required": needs_body,
                           "schema": self.s.ref(body)})

    def responses(self, out, answers):
        """answers: (code, media type, schema); a schema of None is an answer without a body."""
        out["responses"] = {}
        for code, media, schema in answers:
            r = out["responses"][code] = {"description": CODES[code]}
            if schema and self.s.v3:
                r["content"] = {media: {"schema": schema}}
            elif schema:
                r["schema"] = schema

    def op(self, k, action, answer, names, body=None, code="200", consumes=None, of=None, sub="",
           in_all=False):
        out = {"description": f"{action} {k.kind}", "tags": [self.tag(k)],
               "operationId": self.op_id(k, action, sub, in_all),
               "x-kubernetes-action": action, "x-kubernetes-group-version-kind": of or gvk(k)}
        params = self.query(names)
        if not self.s.v3:
            out["produces"] = ANSWERS
        self.request(out, params, body, consumes, action != "delete")
        self.responses(out, [(code, ANSWERS[0], self.s.ref(answer))])
        if params:
            out["parameters"] = params
        return out

    @staticmethod
    def words(k):
        """The group as Kubernetes writes it in tags and operation ids: core, rbacAuthorization, kubevirtIo."""
        first, *rest = (k.group.removesuffix(".k8s.io") or "core").split(".")
        return first + "".join(w.capitalize() for w in rest)

    def tag(self, k):
        return f"{self.words(k)}_{k.version}"

    def op_id(self, k, action, sub="", in_all=False):
        """Kubernetes' names: listCoreV1PodForAllNamespaces, deleteCoreV1CollectionNamespacedPod."""
        words = self.words(k)
        return "".join([VERBS.get(action, action), words[0].upper(), words[1:], k.version.capitalize(),
                        "Collection" if action == "deletecollection" else "",
                        "Namespaced" if k.namespaced and not in_all else "", k.kind, sub,
                        "ForAllNamespaces" if in_all else ""])

    def patch_op(self, k, name, of=None, sub=""):
        kinds = PATCHES + ([STRATEGIC] if k.strategic else [])
        return self.op(k, "patch", name, WRITE_QUERY + ["force"], META + ".Patch", consumes=kinds,
                       of=of, sub=sub)

    def add_sub(self, k, item, sub, name, of=None):
        """A subresource that is read and written like an object."""
        title = sub.capitalize()
        self.out[f"{item}/{sub}"] = {
            "get": self.op(k, "get", name, [], of=of, sub=title),
            "put": self.op(k, "put", name, WRITE_QUERY, name, of=of, sub=title),
            "patch": self.patch_op(k, name, of, title),
            "parameters": self.place(k.namespaced, True)}

    def add(self, k):
        name = k.type.openapi
        base = f"/apis/{k.group}/{k.version}" if k.group else f"/api/{k.version}"
        delete = META + ".DeleteOptions"
        if k.name == "Binding":  # the body of a subresource
            return
        if k.namespaced:
            if not k.create_only:
                self.out[f"{base}/{k.plural}"] = {
                    "get": self.op(k, "list", name + "List", LIST_QUERY, in_all=True),
                    "parameters": self.place(False, False)}
            base += "/namespaces/{namespace}"
        if k.create_only:
            self.out[f"{base}/{k.plural}"] = {
                "post": self.op(k, "post", name, WRITE_QUERY, name, "201"),
                "parameters": self.place(k.namespaced, False)}
            return
        self.out[f"{base}/{k.plural}"] = {
            "get": self.op(k, "list", name + "List", LIST_QUERY),
            "post": self.op(k, "post", name, WRITE_QUERY, name, "201"),
            "delete": self.op(k, "deletecollection", META + ".Status", LIST_QUERY + DELETE_QUERY,
                              delete),
            "parameters": self.place(k.namespaced, False)}
        item = f"{base}/{k.plural}/{{name}}"
        self.out[item] = {
            "get": self.op(k, "get", name, []),
            "put": self.op(k, "put", name, WRITE_QUERY, name),
            "patch": self.patch_op(k, name),
            "delete": self.op(k, "delete", META + ".Status", DELETE_QUERY, delete),
            "parameters": self.place(k.namespaced, True)}
        if k.status_sub:
            self.add_sub(k, item, "status", name)
        if k.scale_sub:
            self.s.add(self.s.model.types["Scale"])
            self.add_sub(k, item, "scale", self.s.model.types["Scale"].openapi,
                         {"group": "autoscaling", "kind": "Scale", "version": "v1"})

    def add_call(self, s):
        """A subresource of the schema, with each form of its path."""
        base = f"/apis/{s.group}/{s.version}" if s.group else f"/api/{s.version}"
        if s.namespaced and s.scope != "cluster":
            base += "/namespaces/{namespace}"
        if s.scope == "object":
            base += f"/{s.resource}/{{name}}"
        base += "/" + s.path
        # The first part behind the path is needed, the others may be absent.
        for n in range(1 if s.rest else 0, len(s.rest) + 1):
            names = s.rest[:n]
            place = self.place(s.namespaced and s.scope != "cluster", s.scope == "object", bool(s.kind))
            place += [self.param(w, "path", *SUB_PARAMS[w], True) for w in names]
            item = self.out.setdefault(base + "".join(f"/{{{w}}}" for w in names), {})
            item[ACTIONS[s.method]] = self.call(s, "WithProtocol" if n > 1 else "")
            item.pop("parameters", None)  # stand behind the operations
            if place:
                item["parameters"] = place

    def type_name(self, name):
        t = self.s.model.types[name]
        self.s.add(t)
        return t.openapi

    def call(self, s, suffix):
        if s.kind:
            return self.kind_call(s)
        out = {"description": s.doc, "tags": [self.tag(s)], "operationId": s.version + s.id + suffix}
        params = self.query(s.query)
        code, media, schema = s.code, ANSWERS[0], None
        if s.answer == "websocket":
            code = "101"
        elif s.answer in SUB_ANSWERS:
            media, fmt = SUB_ANSWERS[s.answer]
            schema = {"type": "object"} if s.answer == "json" else {"type": "string"}
            schema = {**schema, "format": fmt} if fmt else schema
        elif s.answer:
            schema = self.s.ref(self.type_name(s.answer))
        if not self.s.v3:
            out["produces"] = [media] if schema else ["*/*"]
        self.request(out, params, self.type_name(s.body) if s.body else None, ["application/json"]
                     if s.body else None, s.needs_body)
        denied = [] if s.public else [("401", media, None)]
        self.responses(out, [(code, media, schema)] + denied)
        if params:
            out["parameters"] = params
        return out

    def kind_call(self, s):
        """As Kubernetes describes a subresource whose body is a kind of its own."""
        k = next(k for k in self.s.model.kinds if (k.group, k.plural) == (s.group, s.resource))
        t = self.s.model.types[s.kind]
        return self.op(k.under(s.version), ACTIONS[s.method], self.type_name(s.kind), WRITE_QUERY, t.openapi, s.code,
                       of={"group": t.group, "kind": t.name, "version": t.version},
                       sub=s.path.capitalize())

    def place(self, namespaced, named, pretty=True):
        out = []
        if named:
            out.append(self.param("name", "path", "string", "Name of the object.", True))
        if namespaced:
            out.append(self.param("namespace", "path", "string", "Namespace.", True))
        return out + self.query(["pretty"]) if pretty else out


def document(model, kinds, subresources, v3):
    schemas = Schemas(model, v3)
    paths = Paths(schemas)
    schemas.add(model.types["DeleteOptions"])
    for k in kinds:
        schemas.add(k.type)
        schemas.add_list(k)
        paths.add(k)
    for s in subresources:
        paths.add_call(s)
    body = dict(sorted(schemas.out.items()))
    routes = dict(sorted(paths.out.items()))
    check_ids(routes)
    if v3:
        return {"openapi": "3.0.0", "info": INFO, "paths": routes, "components": {"schemas": body}}
    return {"swagger": "2.0", "info": INFO, "paths": routes, "definitions": body}


def check_ids(routes):
    """Generators of clients make a function of each."""
    seen = set()
    for path, item in routes.items():
        for verb, op in item.items():
            if verb == "parameters":
                continue
            if op["operationId"] in seen:
                raise AssertionError(f"{verb} {path}: the operation id {op['operationId']} is taken")
            seen.add(op["operationId"])


def text(doc):
    return json.dumps(doc, separators=(",", ":"), sort_keys=False)


def groups(kinds):
    """Kinds, or subresources, by the path of their group and version."""
    out = {}
    for k in kinds:
        path = f"apis/{k.group}/{k.version}" if k.group else f"api/{k.version}"
        out.setdefault(path, []).append(k)
    return out


def emit(model):
    """(file name, content) of every document, then the C files that embed them."""
    subs = model.served_subresources()
    v2 = document(model, model.served(), subs, False)
    yield "openapi_v2.json", text(v2)
    yield "openapi_v2.pb", gnostic.encode(v2)
    blobs = [("api_openapi_v2_json", "openapi_v2.json"), ("api_openapi_v2_pb", "openapi_v2.pb")]
    rows = []
    kinds_of, subs_of = groups(model.served()), groups(subs)
    for path in sorted(kinds_of.keys() | subs_of.keys()):
        name = "openapi_v3_" + "".join(c if c.isalnum() else "_" for c in path) + ".json"
        doc = document(model, kinds_of.get(path, []), subs_of.get(path, []), True)
        body = text(doc)
        yield name, body
        yield name[:-5] + ".pb", gnostic3.encode(doc)
        blobs.append(("blob_" + name[:-5], name))
        blobs.append(("blob_" + name[:-5] + "_pb", name[:-5] + ".pb"))
        rows.append((path, "blob_" + name[:-5], hashlib.sha256(body.encode()).hexdigest()[:16]))
    yield "openapi_data.c", emit_c(blobs, rows)
    yield "openapi_data.h", HEADER


HEADER = """/* Generated by tools/apigen from api/schema; do not edit.
 * The OpenAPI documents of every kind, linked into the program.
 */
#ifndef API_GEN_OPENAPI_DATA_H
#define API_GEN_OPENAPI_DATA_H

#include <stddef.h>

struct api_blob {
	const unsigned char *p;
	size_t n;
};

struct api_openapi_v3 {
	const char *path; /* "api/v1", "apis/kubevirt.io/v1" */
	struct api_blob json;
	struct api_blob pb; /* application/com.github.proto-openapi.spec.v3@v1.0+protobuf */
	unsigned long long hash; /* of json: changes when it does */
};

/* OpenAPI v2 as JSON and as application/com.github.proto-openapi.spec.v2@v1.0+protobuf. */
struct api_blob api_openapi_v2_json(void);
struct api_blob api_openapi_v2_pb(void);
/* One document per group and version; the last row has path NULL. */
const struct api_openapi_v3 *api_openapi_v3(void);

#endif
"""


def emit_c(blobs, rows):
    out = ["/* Generated by tools/apigen from api/schema; do not edit. */\n",
           '#include "api/gen/openapi_data.h"\n\n',
           "#define BLOB(name_, file_) \\\n",
           '\t__asm__(".section .rodata\\n.balign 8\\n.local " #name_ "_p\\n.local " #name_ "_e\\n" \\\n',
           '\t\t#name_ "_p: .incbin \\"" file_ "\\"\\n" #name_ "_e:\\n.previous\\n"); \\\n',
           "\textern const unsigned char name_##_p[] __attribute__((visibility(\"hidden\"))); \\\n",
           "\textern const unsigned char name_##_e[] __attribute__((visibility(\"hidden\")))\n\n"]
    for name, path in blobs:
        out.append(f'BLOB({name}, API_GEN_DIR "/{path}");\n')
    for name in ("api_openapi_v2_json", "api_openapi_v2_pb"):
        out.append(f"\nstruct api_blob {name}(void)\n{{\n"
                   f"\treturn (struct api_blob){{{name}_p, (size_t)({name}_e - {name}_p)}};\n}}\n")
    out.append("\nconst struct api_openapi_v3 *api_openapi_v3(void)\n{\n"
               f"\tstatic struct api_openapi_v3 rows[{len(rows) + 1}];\n\n"
               "\tif (!rows[0].path) {\n")
    for i, (path, name, digest) in enumerate(rows):
        out.append(f'\t\trows[{i}] = (struct api_openapi_v3){{"{path}", '
                   f"{{{name}_p, (size_t)({name}_e - {name}_p)}}, "
                   f"{{{name}_pb_p, (size_t)({name}_pb_e - {name}_pb_p)}}, 0x{digest}}};\n")
    out.append("\t}\n\treturn rows;\n}\n")
    return "".join(out)
