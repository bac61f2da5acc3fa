"""OpenAPI v2 as the protobuf that Kubernetes clients ask for (gnostic's openapi.v2.Document).

A hand-written encoder of the message fields that our documents use; numbers are those of gnostic's
OpenAPIv2.proto.  Vendor extensions are stored as YAML text, and JSON is YAML.
"""

import json


def varint(n):
    out = bytearray()
    while True:
        n, low = n >> 7, n & 0x7F
        out.append(low | (0x80 if n else 0))
        if not n:
            return bytes(out)


def chunk(number, data):
    """A length-delimited field: text, bytes or a message that is encoded already."""
    if isinstance(data, str):
        data = data.encode()
    return varint(number << 3 | 2) + varint(len(data)) + data


def flag(number, value):
    return varint(number << 3) + varint(1) if value else b""


def texts(number, values):
    return b"".join(chunk(number, v) for v in values)


def any_value(value):
    return chunk(2, json.dumps(value, separators=(",", ":")))


def extensions(number, node):
    out = b""
    for key, value in node.items():
        if key.startswith("x-"):
            out += chunk(number, chunk(1, key) + chunk(2, any_value(value)))
    return out


def schema(node):
    out = b""
    if "$ref" in node:
        out += chunk(1, node["$ref"])
    if "format" in node:
        out += chunk(2, node["format"])
    if "description" in node:
        out += chunk(4, node["description"])
    out += texts(19, node.get("required", []))
    if "additionalProperties" in node:
        out += chunk(21, chunk(1, schema(node["additionalProperties"])))
    if "type" in node:
        out += chunk(22, chunk(1, node["type"]))
    if "items" in node:
        out += chunk(23, chunk(1, schema(node["items"])))
    if "properties" in node:
        out += chunk(25, b"".join(named(1, name, schema(v))
                                  for name, v in node["properties"].items()))
    return out + extensions(31, node)


def named(number, name, message):
    return chunk(number, chunk(1, name) + chunk(2, message))


def parameter(node):
    if node["in"] == "body":
        body = chunk(2, node["name"]) + chunk(3, "body") + flag(4, node.get("required"))
        body += chunk(5, schema(node["schema"]))
        return chunk(1, chunk(1, body))
    sub = flag(1, node.get("required")) + chunk(2, node["in"]) + chunk(3, node["description"])
    sub += chunk(4, node["name"])
    if node["in"] == "path":
        return chunk(1, chunk(2, chunk(4, sub + chunk(5, node["type"]))))
    return chunk(1, chunk(2, chunk(3, sub + chunk(6, node["type"]))))


def responses(node):
    out = b""
    for code, r in node.items():
        answer = chunk(1, r["description"])
        if "schema" in r:
            answer += chunk(2, chunk(1, schema(r["schema"])))
        out += named(1, code, chunk(1, answer))
    return out


def operation(node):
    out = texts(1, node["tags"]) + chunk(3, node["description"]) + chunk(5, node["operationId"])
    out += texts(6, node.get("produces", [])) + texts(7, node.get("consumes", []))
    out += b"".join(chunk(8, parameter(p)) for p in node.get("parameters", []))
    out += chunk(9, responses(node["responses"]))
    return out + extensions(13, node)


def path_item(node):
    numbers = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}
    out = b"".join(chunk(n, operation(node[verb])) for verb, n in numbers.items() if verb in node)
    return out + b"".join(chunk(9, parameter(p)) for p in node.get("parameters", []))


def encode(doc):
    info = chunk(1, doc["info"]["title"]) + chunk(2, doc["info"]["version"])
    paths = b"".join(named(2, name, path_item(v)) for name, v in doc["paths"].items())
    definitions = b"".join(named(1, name, schema(v)) for name, v in doc["definitions"].items())
    return chunk(1, doc["swagger"]) + chunk(2, info) + chunk(8, paths) + chunk(9, definitions)
