"""CRD manifests for a real Kubernetes: structural schemas, columns, subresources.

Support levels are not part of a CRD: Ferry's webhook refuses what does not work yet, so that nothing is
pruned silently.
"""

import json

from openapi import describe
from schema import SCALARS

QUANTITY_PATTERN = (r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|"
                    r"([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$")


def scalar(name):
    if name == "Quantity":
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": QUANTITY_PATTERN,
                "x-kubernetes-int-or-string": True}
    if name == "IntOrString":
        return {"anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True}
    if name == "any":
        return {"x-kubernetes-preserve-unknown-fields": True}
    if name == "object":
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    _, _, kind, fmt = SCALARS[name]
    return {"type": kind, **({"format": fmt} if fmt else {})}


class Structural:
    def __init__(self, model):
        self.model = model

    def item(self, f):
        if f.struct == "ObjectMeta":
            return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        if f.struct:
            return self.type(self.model.types[f.struct])
        return scalar(f.scalar)

    def field(self, f):
        item = self.item(f)
        if f.is_list:
            out = {"type": "array", "items": item}
            if f.max_items:
                out["maxItems"] = f.max_items
            # the keys of a map list must be required or have a default in a structural schema
            keyed = f.list_type == "map" and all(self.is_required(f, k) for k in f.list_keys)
            if keyed or f.list_type in ("set", "atomic"):
                out["x-kubernetes-list-type"] = f.list_type
            if keyed:
                out["x-kubernetes-list-map-keys"] = f.list_keys
        elif f.is_map:
            out = {"type": "object", "additionalProperties": item}
        else:
            out = dict(item)
            if f.values and not f.soft:
                out["enum"] = f.values + ([""] if f.optional and "" not in f.values else [])
            if f.scalar != "Quantity":
                for key, value in (("minimum", f.min), ("maximum", f.max)):
                    if value is not None and not f.soft:
                        out[key] = value
        return {"description": describe(f), **out}

    def is_required(self, f, key):
        return any(x.name == key and not x.optional for x in self.model.types[f.struct].fields)

    def type(self, t):
        out = {"type": "object"}
        if t.fields:
            out["properties"] = {f.name: self.field(f) for f in t.fields}
        required = [f.name for f in t.fields if not f.optional]
        if required:
            out["required"] = required
        return out


def manifest(model, k):
    s = Structural(model)
    schema = s.type(k.type)
    schema["description"] = k.doc
    schema["properties"]["metadata"] = {"type": "object"}
    schema["properties"] = {"apiVersion": {"type": "string"}, "kind": {"type": "string"},
                            **schema["properties"]}
    version = {"name": k.version, "served": True, "storage": True,
               "schema": {"openAPIV3Schema": schema}}
    columns = [{"name": c.name, "type": c.type, "jsonPath": c.path, "description": c.doc,
                **({"priority": c.priority} if c.priority else {})} for c in k.columns if c.path]
    if columns:
        version["additionalPrinterColumns"] = columns
    subs = {"status": {}} if k.status_sub else {}
    if k.scale_sub:
        subs["scale"] = {"specReplicasPath": ".spec.replicas",
                         "statusReplicasPath": ".status.replicas",
                         "labelSelectorPath": ".status.labelSelector"}
    if subs:
        version["subresources"] = subs
    names = {"kind": k.name, "listKind": k.name + "List", "plural": k.plural,
             "singular": k.name.lower()}
    if k.short:
        names["shortNames"] = k.short
    if k.categories:
        names["categories"] = k.categories
    labels = {"kubevirt.io": ""} if k.group == "kubevirt.io" else {"app.kubernetes.io/part-of": "ferry"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{k.plural}.{k.group}", "labels": labels},
            "spec": {"group": k.group, "names": names,
                     "scope": "Namespaced" if k.namespaced else "Cluster", "versions": [version]}}


def yaml_text(value, indent=0):
    """Plain block YAML; scalars as JSON, which YAML reads."""
    pad = "  " * indent
    if isinstance(value, dict) and value:
        out = ""
        for key, v in value.items():
            key = key if key.replace("-", "").replace(".", "").replace("/", "").isalnum() else json.dumps(key)
            nested = isinstance(v, (dict, list)) and v
            out += f"{pad}{key}:" + ("\n" + yaml_text(v, indent + 1) if nested
                                     else " " + json.dumps(v, ensure_ascii=False) + "\n")
        return out
    if isinstance(value, list) and value:
        out = ""
        for v in value:
            if isinstance(v, (dict, list)) and v:
                body = yaml_text(v, indent + 1)
                out += pad + "- " + body[len(pad) + 2:]
            else:
                out += pad + "- " + json.dumps(v, ensure_ascii=False) + "\n"
        return out
    return pad + json.dumps(value, ensure_ascii=False) + "\n"


def emit(model):
    for k in model.kinds:
        # The kinds that a real Kubernetes does not have itself; those that are refused here may have
        # an owner there.
        if not k.strategic and not k.refused and not k.create_only:
            head = "# Generated by tools/apigen from api/schema; do not edit.\n"
            yield f"{k.plural}.{k.group}.yaml", head + yaml_text(manifest(model, k))
