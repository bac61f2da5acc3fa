#!/usr/bin/env python3
"""apigen: api/schema/*.yaml to C types, descriptor tables, OpenAPI, CRDs and reference pages.

  apigen.py --schema DIR [--c DIR] [--openapi DIR] [--crds DIR] [--docs DIR] [--check]

Output depends on the schema only, byte for byte.  Faults of a schema go to stderr, one a line,
`file:line: where: what`; the exit code is then 1.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import cgen  # noqa: E402
import schema  # noqa: E402


def write(folder, name, data):
    """Write only what differs, so that builds stay incremental."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    if isinstance(data, str):
        data = data.encode()
    try:
        with open(path, "rb") as f:
            if f.read() == data:
                os.utime(path)
                return
    except FileNotFoundError:
        pass
    with open(path, "wb") as f:
        f.write(data)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    ap.add_argument("--schema", required=True, help="folder of *.yaml")
    ap.add_argument("--c", help="folder for api_types.h and api_tables.c")
    ap.add_argument("--openapi", help="folder for OpenAPI documents and openapi_data.[ch]")
    ap.add_argument("--crds", help="folder for CRD manifests")
    ap.add_argument("--docs", help="folder for reference pages")
    args = ap.parse_args()

    names = sorted(n for n in os.listdir(args.schema) if n.endswith(".yaml"))
    try:
        model = schema.load([(os.path.join(args.schema, n), n) for n in names])
    except schema.SchemaErrors as e:
        for fault in e.faults:
            print(fault, file=sys.stderr)
        return 1

    if args.c:
        write(args.c, "api_types.h", cgen.emit_header(model))
        write(args.c, "api_tables.c", cgen.Tables(model).emit())
    if args.openapi:
        import openapi
        for name, data in openapi.emit(model):
            write(args.openapi, name, data)
    if args.crds:
        import crd
        for name, data in crd.emit(model):
            write(args.crds, name, data)
    if args.docs:
        import docs
        for name, data in docs.emit(model):
            write(args.docs, name, data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
