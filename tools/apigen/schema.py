"""Reads api/schema/*.yaml into a checked model.

Every fault is reported as `file:line: where: what`, all of them at once (SchemaErrors).
The notation is explained in docs/internals/api.md.
"""

import re
from dataclasses import dataclass, field as dc_field, replace

import yaml

SCALARS = {
    # name: (base, format, openapi type, openapi format)
    "string": ("STRING", "NONE", "string", None),
    "bool": ("BOOL", "NONE", "boolean", None),
    "int32": ("INT", "NONE", "integer", "int32"),
    "int64": ("INT", "NONE", "integer", "int64"),
    "uint32": ("INT", "NONE", "integer", "int32"),
    "uint64": ("INT", "NONE", "integer", "int64"),
    "float64": ("REAL", "NONE", "number", "double"),
    "Quantity": ("STRING", "QUANTITY", "string", None),
    "Time": ("STRING", "TIME", "string", "date-time"),
    "Duration": ("STRING", "DURATION", "string", None),
    "Bytes": ("STRING", "BASE64", "string", "byte"),
    "IntOrString": ("JSON", "INT_OR_STRING", "string", "int-or-string"),
    "object": ("JSON", "OBJECT", "object", None),
    "any": ("JSON", "ANY", None, None),
}
INT_RANGE = {
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**63 - 1),
}
FORMATS = {
    "dns-label": "DNS_LABEL",
    "dns-subdomain": "DNS_SUBDOMAIN",
    "dns1035-label": "DNS1035_LABEL",
    "qualified-name": "QUALIFIED",
    "label-value": "LABEL_VALUE",
    "uuid": "UUID",
    "mac": "MAC",
    "ip": "IP",
    "cidr": "CIDR",
    "path-segment": "PATH_SEGMENT",
}
SUPPORT = {"works": "WORKS", "rejected": "REJECTED", "noop": "NOOP"}
MERGE = {"merge": "MERGE", "replace": "REPLACE", "retainKeys": "RETAIN_KEYS"}
COLUMN_TYPES = {"string", "integer", "boolean", "date", "number"}
# Flags and options a field may carry after its type.
FLAGS = {"works", "rejected", "inline", "immutable", "integral", "resources", "soft", "nullable"}
OPTIONS = {"noop", "refused", "min", "max", "maxItems", "minItems", "maxLen", "minLen", "default", "merge",
           "mergeKey", "list", "format", "values"}
C_RESERVED = {
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else",
    "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict",
    "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union",
    "unsigned", "void", "volatile", "while", "asm", "typeof", "linux", "unix", "bool",
}
VERSION_RE = re.compile(r"^v([0-9]+)(?:(alpha|beta)([0-9]+))?$")
NAME_RE = re.compile(r"^[A-Z][A-Za-z0-9]*$")
FIELD_RE = re.compile(r"^[A-Za-z_$][A-Za-z0-9_.$-]*$")
METHODS = {"GET", "PUT", "POST"}
SUB_RE = re.compile(r"^([A-Z]+)\s+([a-z][a-z0-9/-]*)(?:\s+(.*))?$")
SUB_FLAGS = {"hidden", "public", "namespace", "cluster"}
SUB_OPTIONS = {"body", "answer", "kind", "code", "id", "query", "rest"}
# What a subresource answers that is no type: its media type, and what OpenAPI calls it.
SUB_ANSWERS = {"websocket": None, "text": ("text/plain", None), "png": ("image/png", "binary"),
               "json": ("application/json", None)}
# Parameters of subresources.
SUB_PARAMS = {
    "moveCursor": ("boolean", "Wake the screen by moving the pointer first."),
    "preserveSession": ("boolean", "Refuse, rather than end another's session."),
    "tls": ("boolean", "Whether the guest is spoken to by TLS; true when absent."),
    "port": ("integer", "Port in the guest."),
    "protocol": ("string", "tcp or udp; tcp when absent."),
}
TOKEN_RE = re.compile(r"""\s*([A-Za-z]+)(?:=("(?:[^"\\]|\\.)*"|\([^)]*\)|[^\s()"]+))?""")


class SchemaErrors(Exception):
    """All faults of a schema, in file order."""

    def __init__(self, faults):
        super().__init__("\n".join(faults))
        self.faults = faults


@dataclass
class Enum:
    name: str
    doc: str
    values: list
    soft: bool
    where: str


@dataclass
class Field:
    name: str
    doc: str
    where: str
    type_text: str
    optional: bool
    is_list: bool = False
    is_map: bool = False
    scalar: str = None      # name in SCALARS of the item or map value
    struct: str = None      # name of a Type
    enum: str = None        # name of an Enum
    support: str = "works"
    why: str = None
    inline: bool = False
    immutable: bool = False
    integral: bool = False
    resources: bool = False
    soft: bool = False
    min: int = None
    max: int = None
    max_items: int = 0
    min_items: int = 0
    max_len: int = 0
    min_len: int = 0
    default: str = None
    merge: str = None
    merge_key: str = None
    list_type: str = None
    list_keys: list = dc_field(default_factory=list)
    format: str = None
    values: list = None

    @property
    def c_name(self):
        name = re.sub(r"[^A-Za-z0-9_]", "_", self.name)
        return name + "_" if name in C_RESERVED else name

    @property
    def is_json(self):
        """Kept as struct json in C."""
        if self.is_map:
            return not self.is_string_map
        return self.scalar is not None and SCALARS[self.scalar][0] == "JSON"

    @property
    def is_string_map(self):
        return self.is_map and self.scalar is not None and SCALARS[self.scalar][0] == "STRING"


@dataclass
class Type:
    name: str
    doc: str
    where: str
    group: str
    version: str
    openapi: str
    mixin: bool
    include: list
    fields: list
    support: str
    kind: "Kind" = None


@dataclass
class Column:
    name: str
    type: str
    path: str
    fn: str
    priority: int
    doc: str


@dataclass
class Kind:
    name: str
    doc: str
    where: str
    group: str
    version: str
    plural: str
    short: list
    categories: list
    namespaced: bool
    status_sub: bool
    scale_sub: bool
    generation: bool
    name_format: str
    strategic: bool
    defaults: bool
    columns: list
    type: Type = None
    refused: str = None         # why no object of it can be made
    served: list = dc_field(default_factory=list)      # further versions, newest first
    deprecated: list = dc_field(default_factory=list)  # versions that warn
    create_only: bool = False   # the body of a request: nothing of it is stored
    wire: str = None            # its name, where that of its type must differ
    views: str = None           # the kind whose objects it shows under other names

    @property
    def api_version(self):
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def kind(self):
        return self.wire or self.name

    def under(self, version):
        """The same kind under another of its versions."""
        return self if version == self.version else replace(self, version=version)


@dataclass
class Subresource:
    """A call on an object, in a namespace or on the cluster that is neither the object nor its status or scale."""
    where: str
    group: str
    version: str
    served: list        # further versions
    method: str
    resource: str       # "" unless of an object
    path: str
    doc: str
    scope: str = "object"
    namespaced: bool = True
    body: str = None
    needs_body: bool = True
    answer: str = None  # a type, or one of SUB_ANSWERS
    kind: str = None    # body and answer are this kind, as Kubernetes' own are
    code: str = "200"
    id: str = None      # operation id behind the version
    query: list = dc_field(default_factory=list)
    rest: list = dc_field(default_factory=list)   # parts of the path behind it; all but the first may be absent
    hidden: bool = False    # not told by discovery
    public: bool = False    # needs no right

    @property
    def c_name(self):
        words = [self.method.lower()] + ([self.resource] if self.resource else []) + [self.path]
        return "api_sub_" + re.sub(r"[^a-z0-9]", "_", "_".join(words))

    def under(self, version):
        return replace(self, version=version)


def version_order(version):
    """Kubernetes' order: v2, v1, v1beta1, v1alpha2."""
    m = VERSION_RE.match(version)
    stage = {None: 0, "beta": 1, "alpha": 2}[m.group(2)]
    return (stage, -int(m.group(1)), -int(m.group(3) or 0))


class Model:
    def __init__(self):
        self.types = {}
        self.enums = {}
        self.kinds = []
        self.views = []     # kinds that show another's objects
        self.subresources = []

    def served(self):
        """Every kind under every version it is served under, as discovery tells them: by group, the
        newest version first, then by name."""
        out = [k.under(v) for k in self.kinds for v in [k.version] + k.served] + self.views
        return sorted(out, key=lambda k: (k.group, version_order(k.version), k.name))

    def served_subresources(self):
        """Each under each of its versions."""
        return [s.under(v) for s in self.subresources for v in [s.version] + s.served]

    def sorted_types(self):
        """Types that have a C struct, each after those it holds by value."""
        done, out = set(), []

        def visit(t):
            if t.name in done:
                return
            done.add(t.name)
            for f in t.fields:
                if f.struct and f.inline:
                    visit(self.types[f.struct])
            out.append(t)

        for name in sorted(self.types):
            if not self.types[name].mixin:
                visit(self.types[name])
        return out


class Reader:
    """One pass over all files collects; finish() resolves and checks."""

    def __init__(self):
        self.model = Model()
        self.faults = []

    def fault(self, where, text):
        self.faults.append(f"{where}: {text}")

    # -- YAML nodes ------------------------------------------------------------------------

    def pairs(self, node, path):
        """(key, value node, where) of a mapping, duplicate keys refused."""
        if not isinstance(node, yaml.MappingNode):
            self.fault(self.at(node, path), "must be a mapping")
            return []
        seen, out = set(), []
        for k, v in node.value:
            where = self.at(k, path)
            if k.value in seen:
                self.fault(where, f"'{k.value}' appears twice")
                continue
            seen.add(k.value)
            out.append((k.value, v, where))
        return out

    def at(self, node, path):
        return f"{path}:{node.start_mark.line + 1}"

    def take(self, node, path, what, allowed):
        """Mapping as a dict of plain values and nodes; unknown keys are faults."""
        out = {}
        for key, v, where in self.pairs(node, path):
            if key not in allowed:
                self.fault(where, f"{what}: unknown key '{key}'")
                continue
            kind = allowed[key]
            if kind is None:
                out[key] = v
            elif kind is list:
                if not isinstance(v, yaml.SequenceNode):
                    self.fault(where, f"{what}: '{key}' must be a list")
                    continue
                out[key] = [n.value for n in v.value]
            elif kind is bool:
                if v.value not in ("true", "false"):
                    self.fault(where, f"{what}: '{key}' must be true or false")
                    continue
                out[key] = v.value == "true"
            else:
                if not isinstance(v, yaml.ScalarNode):
                    self.fault(where, f"{what}: '{key}' must be text")
                    continue
                out[key] = v.value
        return out

    def need_doc(self, got, where, what):
        doc = (got.get("doc") or "").strip()
        if not doc:
            self.fault(where, f"{what}: needs a doc comment")
        return " ".join(doc.split())

    # -- files -----------------------------------------------------------------------------

    def read(self, path, label):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        try:
            loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
            node = yaml.compose(text, Loader=loader)
        except yaml.MarkedYAMLError as e:
            line = e.problem_mark.line + 1 if e.problem_mark else 1
            self.fault(f"{label}:{line}", f"not YAML: {e.problem}")
            return
        if node is None:
            self.fault(f"{label}:1", "empty file")
            return
        top = self.take(node, label, "file", {"group": str, "version": str, "openapi": str,
                                              "support": str, "enums": None, "types": None,
                                              "kinds": None, "served": list,
                                              "subresources": None})
        for key in ("group", "version", "openapi"):
            if key not in top:
                self.fault(f"{label}:1", f"file: needs '{key}'")
        group, version = top.get("group", ""), top.get("version", "")
        prefix = top.get("openapi", "")
        support = self.level(top.get("support", "works"), f"{label}:1", "file")
        if "enums" in top:
            for name, v, where in self.pairs(top["enums"], label):
                self.read_enum(name, v, where, label)
        if "types" in top:
            for name, v, where in self.pairs(top["types"], label):
                self.read_type(name, v, where, label, group, version, prefix, support)
        if "kinds" in top:
            for name, v, where in self.pairs(top["kinds"], label):
                self.read_kind(name, v, where, label, group, version, prefix)
        if "subresources" in top:
            if not isinstance(top["subresources"], yaml.SequenceNode):
                self.fault(self.at(top["subresources"], label), "file: 'subresources' must be a list")
                return
            for v in top["subresources"].value:
                self.read_sub(v, self.at(v, label), group, version, top.get("served", []))

    def read_sub(self, node, where, group, version, served):
        text, bar, doc = (node.value if isinstance(node, yaml.ScalarNode) else "").partition("|")
        what = f"subresource '{text.strip()}'"
        m = SUB_RE.match(text.strip())
        if not m or m.group(1) not in METHODS:
            self.fault(where, f"{what}: must be: METHOD path options | doc")
            return
        if not bar or not doc.strip():
            self.fault(where, f"{what}: needs a doc comment after '|'")
        s = Subresource(where, group, version, served, m.group(1), "", m.group(2), " ".join(doc.split()))
        what = f"subresource '{s.method} {s.path}'"
        for key, value in self.tokens(m.group(3) or "", where, what):
            if key in SUB_FLAGS and value is None:
                self.set_sub_flag(s, key)
            elif key in SUB_OPTIONS and value is not None:
                words = [w.strip() for w in value.strip("()").split(",")]
                setattr(s, key, words if key in ("query", "rest") else value)
            else:
                self.fault(where, f"{what}: cannot read option '{key}'")
        if s.scope == "object":
            s.resource, _, s.path = s.path.partition("/")
            if not s.path:
                self.fault(where, f"{what}: must be resource/path, or say namespace or cluster")
        if s.body and s.body.endswith("?"):
            s.body, s.needs_body = s.body[:-1], False
        if s.kind:
            s.body, s.answer = (None if s.method == "GET" else s.kind), s.kind
        for word in s.query + s.rest:
            if word not in SUB_PARAMS:
                self.fault(where, f"{what}: unknown parameter '{word}'")
        self.model.subresources.append(s)

    @staticmethod
    def set_sub_flag(s, key):
        if key in ("namespace", "cluster"):
            s.scope = key
        else:
            setattr(s, key, True)

    def tokens(self, text, where, what):
        """(key, value or None) of each option."""
        pos, text = 0, text.strip()
        while pos < len(text):
            m = TOKEN_RE.match(text, pos)
            if not m:
                self.fault(where, f"{what}: cannot read '{text[pos:].strip()}'")
                return
            pos = m.end()
            value = m.group(2)
            if value is not None and value.startswith('"'):
                value = value[1:-1].replace('\\"', '"')
            yield m.group(1), value

    def level(self, text, where, what):
        """The support level that fields have when they name none."""
        if text in SUPPORT and text != "noop":
            return text
        self.fault(where, f"{what}: support must be works or rejected")
        return "works"

    def claim(self, name, where, what):
        if not NAME_RE.match(name):
            self.fault(where, f"{what} '{name}': must be PascalCase")
        if name in self.model.types or name in self.model.enums or name in SCALARS:
            self.fault(where, f"{what} '{name}': the name is taken")
            return False
        return True

    def read_enum(self, name, node, where, label):
        what = f"enum '{name}'"
        if not self.claim(name, where, "enum"):
            return
        got = self.take(node, label, what, {"doc": str, "values": list, "soft": bool})
        values = got.get("values", [])
        if not values:
            self.fault(where, f"{what}: needs values")
        for v in sorted({v for v in values if values.count(v) > 1}):
            self.fault(where, f"{what}: value '{v}' appears twice")
        self.model.enums[name] = Enum(name, self.need_doc(got, where, what), values,
                                      got.get("soft", False), where)

    def read_type(self, name, node, where, label, group, version, prefix, support):
        what = f"type '{name}'"
        if not self.claim(name, where, "type"):
            return
        got = self.take(node, label, what, {"doc": str, "fields": None, "mixin": bool,
                                            "include": list, "openapi": str, "support": str})
        support = self.level(got.get("support", support), where, what)
        t = Type(name, self.need_doc(got, where, what), where, group, version,
                 f"{prefix}.{got.get('openapi', name)}", got.get("mixin", False),
                 got.get("include", []), [], support)
        if "fields" in got:
            t.fields = self.read_fields(got["fields"], label, what, support)
        self.model.types[name] = t

    def read_fields(self, node, label, what, support):
        out = []
        for key, v, where in self.pairs(node, label):
            if not isinstance(v, yaml.ScalarNode):
                self.fault(where, f"{what}: field '{key}' must be one line: type options | doc")
                continue
            f = self.read_field(key, v.value, where, what, support)
            if f:
                out.append(f)
        return out

    def read_field(self, key, text, where, what, support):
        optional = key.endswith("?")
        name = key[:-1] if optional else key
        what = f"{what}: field '{name}'"
        if not FIELD_RE.match(name):
            self.fault(where, f"{what}: bad name")
            return None
        spec, bar, doc = text.partition("|")
        doc = " ".join(doc.split())
        if not bar or not doc:
            self.fault(where, f"{what}: needs a doc comment after '|'")
        spec = spec.strip()
        m = re.match(r"^((?:map\[string\])?[A-Za-z0-9]+(?:\[\])?)(?:\s+(.*))?$", spec)
        if not m:
            self.fault(where, f"{what}: cannot read the type in '{spec}'")
            return None
        f = Field(name, doc, where, m.group(1), optional, support=support)
        self.read_options(f, m.group(2) or "", what)
        return f

    def read_options(self, f, text, what):
        for key, value in self.tokens(text, f.where, what):
            if key in FLAGS and value is None:
                self.set_flag(f, key)
            elif key in OPTIONS and value is not None:
                self.set_option(f, key, value, what)
            elif key in FLAGS or key in OPTIONS:
                self.fault(f.where, f"{what}: '{key}' "
                           + ("needs a value" if key in OPTIONS else "takes no value"))
            else:
                self.fault(f.where, f"{what}: unknown option '{key}'")

    @staticmethod
    def set_flag(f, key):
        if key in ("works", "rejected"):
            f.support = key
        elif key != "nullable":
            setattr(f, key, True)

    def set_option(self, f, key, value, what):
        ints = {"min": "min", "max": "max", "maxItems": "max_items", "minItems": "min_items",
                "maxLen": "max_len", "minLen": "min_len"}
        words = [w.strip() for w in value.strip("()").split(",")]
        if key in ints:
            n = parse_number(value)
            if n is None:
                self.fault(f.where, f"{what}: '{key}' needs a number, not '{value}'")
            else:
                setattr(f, ints[key], n)
        elif key == "noop":
            f.support, f.why = "noop", value
        elif key == "refused":  # rejected, for a reason that stays
            f.support, f.why = "rejected", value
        elif key == "default":
            f.default = value
        elif key == "merge":
            if value not in MERGE:
                self.fault(f.where, f"{what}: merge must be one of {', '.join(MERGE)}")
            f.merge = value
        elif key == "mergeKey":
            f.merge_key = value
        elif key == "values":
            f.values = words
        elif key == "format":
            if value not in FORMATS:
                self.fault(f.where, f"{what}: unknown format '{value}'")
            else:
                f.format = value
        elif key == "list":
            m = re.match(r"^(atomic|set|map)$", value) or re.match(r"^map:([A-Za-z0-9_,]+)$", value)
            if not m or value == "map":
                self.fault(f.where, f"{what}: list must be atomic, set or map:key,...")
            elif value.startswith("map:"):
                f.list_type, f.list_keys = "map", m.group(1).split(",")
            else:
                f.list_type = value

    def read_kind(self, name, node, where, label, group, version, prefix):
        what = f"kind '{name}'"
        if not self.claim(name, where, "kind"):
            return
        got = self.take(node, label, what, {
            "doc": str, "plural": str, "short": list, "categories": list, "scope": str,
            "subresources": list, "generation": bool, "name": str, "strategicPatch": bool,
            "defaults": bool, "spec": str, "status": str, "fields": None, "columns": list,
            "refused": str, "served": list, "deprecated": list, "createOnly": bool, "kind": str,
            "views": str})
        doc = self.need_doc(got, where, what)
        scope = got.get("scope", "Namespaced")
        if scope not in ("Namespaced", "Cluster"):
            self.fault(where, f"{what}: scope must be Namespaced or Cluster")
        if "plural" not in got:
            self.fault(where, f"{what}: needs 'plural'")
        subs = got.get("subresources", [])
        for s in subs:
            if s not in ("status", "scale"):
                self.fault(where, f"{what}: unknown subresource '{s}'")
        if got.get("name", "dns-subdomain") not in FORMATS:
            self.fault(where, f"{what}: unknown name format '{got['name']}'")
        k = Kind(name, doc, where, group, version, got.get("plural", name.lower() + "s"),
                 got.get("short", []), got.get("categories", []), scope == "Namespaced",
                 "status" in subs, "scale" in subs, got.get("generation", True),
                 got.get("name", "dns-subdomain"), got.get("strategicPatch", False),
                 got.get("defaults", False), [], None, got.get("refused"), got.get("served", []),
                 got.get("deprecated", []), got.get("createOnly", False), got.get("kind"),
                 got.get("views"))
        self.check_versions(k, what)
        # As Kubernetes shows custom resources that name no column.
        age = [] if k.strategic else ["Age | date | .metadata.creationTimestamp | Time since its creation."]
        for text in got.get("columns", age):
            self.read_column(k, text, what)
        t = Type(name, doc, where, group, version, f"{prefix}.{k.kind}", False, [], [], "works", k)
        t.fields.append(Field("metadata", "Standard object metadata.", where, "ObjectMeta", True,
                              inline=True))
        for part, optional in (("spec", False), ("status", True)):
            if part in got:
                doc = {"spec": "What is wanted.", "status": "What was observed."}[part]
                t.fields.append(Field(part, doc, where, got[part], optional, inline=True))
        if "fields" in got:
            t.fields += self.read_fields(got["fields"], label, what, "works")
        k.type = t
        self.model.types[name] = t
        (self.model.views if k.views else self.model.kinds).append(k)

    def check_versions(self, k, what):
        known = [k.version] + k.served
        for v in known:
            if not VERSION_RE.match(v):
                self.fault(k.where, f"{what}: version '{v}' must be like v1, v1beta1 or v1alpha1")
        for v in sorted({v for v in known if known.count(v) > 1}):
            self.fault(k.where, f"{what}: version '{v}' appears twice")
        for v in k.deprecated:
            if v not in known:
                self.fault(k.where, f"{what}: deprecated version '{v}' is not served")

    def read_column(self, k, text, what):
        parts = [p.strip() for p in text.split("|")]
        if len(parts) != 4:
            self.fault(k.where, f"{what}: column '{text}' must be: Name | type | path | doc")
            return
        name, ctype, path, doc = parts
        priority = 0
        if ctype.endswith(" wide"):
            ctype, priority = ctype[:-5].strip(), 1
        if ctype not in COLUMN_TYPES:
            self.fault(k.where, f"{what}: column '{name}': unknown type '{ctype}'")
        if not doc:
            self.fault(k.where, f"{what}: column '{name}': needs a doc comment")
        fn = None if path.startswith(".") else path
        k.columns.append(Column(name, ctype, None if fn else path, fn, priority, doc))

    # -- the whole -------------------------------------------------------------------------

    def finish(self):
        m = self.model
        for t in m.types.values():
            self.expand(t, [])
        for t in m.types.values():
            seen = set()
            for f in t.fields:
                what = f"type '{t.name}': field '{f.name}'"
                if f.name in seen:
                    self.fault(f.where, f"{what}: appears twice")
                seen.add(f.name)
                self.resolve(f, what)
        for t in m.types.values():
            self.check_inline(t, [])
            for f in t.fields:
                self.check_keys(t, f)
        keys = {}
        for k in m.views:
            if k.views not in {x.name for x in m.kinds}:
                self.fault(k.where, f"kind '{k.name}': views '{k.views}', which is no kind")
        for k in m.kinds + m.views:
            if k.scale_sub and "Scale" not in m.types:
                self.fault(k.where, f"kind '{k.name}': subresource 'scale' needs the type Scale")
            for version in [k.version] + k.served:
                key = (k.group, version, k.plural)
                if keys.setdefault(key, k.name) != k.name:
                    self.fault(k.where,
                               f"kind '{k.name}': plural '{k.plural}' is taken by {keys[key]}")
        self.check_subs()
        if self.faults:
            raise SchemaErrors(list(dict.fromkeys(self.faults)))
        m.kinds.sort(key=lambda k: (k.group, k.version, k.name))
        return m

    def check_subs(self):
        plurals = {(k.group, k.plural): k for k in self.model.kinds}
        seen = {}
        for s in self.model.subresources:
            what = f"subresource '{s.method} {s.resource or s.scope}/{s.path}'"
            if seen.setdefault((s.group, s.c_name), s) is not s:
                self.fault(s.where, f"{what}: appears twice")
            for name in (s.body, s.answer):
                if name and name not in self.model.types and (name is s.body or name not in SUB_ANSWERS):
                    self.fault(s.where, f"{what}: unknown type '{name}'")
            if bool(s.id) == bool(s.kind):
                self.fault(s.where, f"{what}: needs either 'id' or 'kind'")
            k = plurals.get((s.group, s.resource))
            if s.kind and not k:
                self.fault(s.where, f"{what}: only resources of this group have subresources of a kind")
            if k:
                s.namespaced = k.namespaced

    def expand(self, t, stack):
        """Append the fields of included mixins."""
        include, t.include = t.include, []
        for name in include:
            if name == t.name or name in stack:
                self.fault(t.where, f"type '{t.name}': includes itself")
                continue
            other = self.model.types.get(name)
            if not other:
                self.fault(t.where, f"type '{t.name}': includes unknown type '{name}'")
                continue
            self.expand(other, stack + [t.name])
            t.fields += other.fields

    def resolve(self, f, what):
        name = f.type_text
        if name.endswith("[]"):
            f.is_list, name = True, name[:-2]
        elif name.startswith("map[string]"):
            f.is_map, name = True, name[len("map[string]"):]
        if name in SCALARS:
            f.scalar = name
        elif name in self.model.enums:
            f.scalar, f.enum = "string", name
            f.values = self.model.enums[name].values
            f.soft = f.soft or self.model.enums[name].soft
        elif name in self.model.types and not self.model.types[name].mixin:
            f.struct = name
        else:
            self.fault(f.where, f"{what}: unknown type '{name}'")
            return
        if f.inline and (not f.struct or f.is_list or f.is_map):
            self.fault(f.where, f"{what}: only a single object can be inline")
        if f.list_type and not f.is_list:
            self.fault(f.where, f"{what}: 'list' needs a list")
        if f.merge_key and not (f.is_list and f.struct):
            self.fault(f.where, f"{what}: 'mergeKey' needs a list of objects")
        base = SCALARS[f.scalar][0] if f.scalar else None
        if f.integral and f.scalar != "Quantity":
            self.fault(f.where, f"{what}: 'integral' needs a Quantity")
        if (f.min is not None or f.max is not None) and base != "INT" and f.scalar != "Quantity":
            self.fault(f.where, f"{what}: min and max need an integer or a Quantity")
        if f.values and base != "STRING":
            self.fault(f.where, f"{what}: 'values' needs text")
        if f.default is not None and f.values and f.default not in f.values:
            self.fault(f.where, f"{what}: default '{f.default}' is not one of the values")
        if f.scalar in INT_RANGE and not f.is_map:
            lo, hi = INT_RANGE[f.scalar]
            f.min = lo if f.min is None else max(f.min, lo)
            f.max = hi if f.max is None else min(f.max, hi)
        if f.is_list and f.scalar and SCALARS[f.scalar][0] in ("BOOL", "REAL"):
            self.fault(f.where, f"{what}: lists of {f.scalar} are not supported")

    def check_inline(self, t, stack):
        if t.name in stack:
            self.fault(t.where, f"type '{t.name}': holds itself inline")
            return
        for f in t.fields:
            if f.inline and f.struct:
                self.check_inline(self.model.types[f.struct], stack + [t.name])

    def check_keys(self, t, f):
        if not f.struct:
            return
        names = {x.name for x in self.model.types[f.struct].fields}
        for key in ([f.merge_key] if f.merge_key else []) + f.list_keys:
            if key not in names:
                self.fault(f.where, f"type '{t.name}': field '{f.name}': "
                           f"key '{key}' is not a field of {f.struct}")


def parse_number(text):
    """Integers with an optional binary suffix: 4, 2Mi."""
    m = re.match(r"^(-?\d+)(Ki|Mi|Gi|Ti)?$", text)
    if not m:
        return None
    return int(m.group(1)) * {None: 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}[m.group(2)]


def load(paths):
    """paths: (path, label) pairs, read in the given order.  Raises SchemaErrors."""
    r = Reader()
    for path, label in paths:
        r.read(path, label)
    return r.finish()
