"""OpenAPI v3 as protobuf (gnostic's openapi.v3.Document), which kubectl asks for.

As gnostic.py: an encoder of the message fields that our documents use; numbers are those of gnostic's
OpenAPIv3.proto.
"""

from gnostic import any_value, chunk, extensions, flag, named, texts


def schema_or_ref(node):
    if set(node) == {"$ref"}:
        return chunk(2, chunk(1, node["$ref"]))
    return chunk(1, schema(node))


def schema(node):
    out = texts(23, node.get("required", []))
    out += b"".join(chunk(24, any_value(v)) for v in node.get("enum", []))
    if "type" in node:
        out += chunk(25, node["type"])
    out += b"".join(chunk(26, schema_or_ref(v)) for v in node.get("allOf", []))
    out += b"".join(chunk(27, schema_or_ref(v)) for v in node.get("oneOf", []))
    if "items" in node:
        out += chunk(30, chunk(1, schema_or_ref(node["items"])))
    if "properties" in node:
        out += chunk(31, b"".join(named(1, name, schema_or_ref(v))
                                  for name, v in node["properties"].items()))
    if "additionalProperties" in node:
        out += chunk(32, chunk(1, schema_or_ref(node["additionalProperties"])))
    if "description" in node:
        out += chunk(34, node["description"])
    if "format" in node:
        out += chunk(35, node["format"])
    return out + extensions(36, node)


def parameter(node):
    out = chunk(1, node["name"]) + chunk(2, node["in"]) + chunk(3, node["description"])
    out += flag(4, node.get("required")) + chunk(10, schema_or_ref(node["schema"]))
    return chunk(1, out)


def media(node):
    return b"".join(named(1, name, chunk(1, schema_or_ref(v["schema"]))) for name, v in node.items())


def responses(node):
    out = b""
    for code, r in node.items():
        answer = chunk(1, r["description"])
        if "content" in r:
            answer += chunk(3, media(r["content"]))
        out += named(2, code, chunk(1, answer))
    return out


def operation(node):
    out = texts(1, node["tags"]) + chunk(3, node["description"]) + chunk(5, node["operationId"])
    out += b"".join(chunk(6, parameter(p)) for p in node.get("parameters", []))
    if "requestBody" in node:
        body = node["requestBody"]
        out += chunk(7, chunk(1, chunk(2, media(body["content"])) + flag(3, body["required"])))
    out += chunk(8, responses(node["responses"]))
    return out + extensions(13, node)


def path_item(node):
    numbers = {"get": 4, "put": 5, "post": 6, "delete": 7, "patch": 10}
    out = b"".join(chunk(n, operation(node[verb])) for verb, n in numbers.items() if verb in node)
    return out + b"".join(chunk(13, parameter(p)) for p in node.get("parameters", []))


def encode(doc):
    info = chunk(1, doc["info"]["title"]) + chunk(6, doc["info"]["version"])
    paths = b"".join(named(1, name, path_item(v)) for name, v in doc["paths"].items())
    schemas = b"".join(named(1, name, schema_or_ref(v))
                       for name, v in doc["components"]["schemas"].items())
    return chunk(1, doc["openapi"]) + chunk(2, info) + chunk(4, paths) + chunk(5, chunk(1, schemas))
