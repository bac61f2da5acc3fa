#!/usr/bin/env python3
"""Make an OCI image layout with one layer: ociimage.py OUT FILE:PATH...

A containerDisk is one file below /disk; a kernelBoot image holds a kernel and an initrd.  Only what the
image specification asks for: oci-layout, index.json, and three blobs.
"""
import gzip
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile


def blob(out, data):
    digest = hashlib.sha256(data).hexdigest()
    with open(os.path.join(out, "blobs/sha256", digest), "wb") as f:
        f.write(data)
    return {"digest": f"sha256:{digest}", "size": len(data)}


def layer_tar(pairs, mutate=None):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        seen = set()
        for src, path in pairs:
            parts = path.strip("/").split("/")
            for i in range(1, len(parts)):
                d = "/".join(parts[:i])
                if d not in seen:
                    seen.add(d)
                    info = tarfile.TarInfo(d)
                    info.type, info.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(info)
            info = tarfile.TarInfo("/".join(parts))
            info.size, info.mode, info.uid, info.gid = os.path.getsize(src), 0o440, 107, 107
            with open(src, "rb") as f:
                tar.addfile(info, f)
        if mutate:
            mutate(tar)
    return raw.getvalue()


def make(out, pairs, tag="latest", mutate=None):
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(os.path.join(out, "blobs/sha256"))
    tar = layer_tar(pairs, mutate)
    layer = {"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
             **blob(out, gzip.compress(tar, compresslevel=1, mtime=0))}
    config = {"architecture": "amd64", "os": "linux", "config": {},
              "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(tar).hexdigest()]}}
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
                           **blob(out, json.dumps(config).encode())}, "layers": [layer]}
    entry = {"mediaType": manifest["mediaType"], **blob(out, json.dumps(manifest).encode()),
             "annotations": {"org.opencontainers.image.ref.name": tag}}
    with open(os.path.join(out, "index.json"), "w") as f:
        json.dump({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}, f)
    with open(os.path.join(out, "oci-layout"), "w") as f:
        json.dump({"imageLayoutVersion": "1.0.0"}, f)
    return entry["digest"]


if __name__ == "__main__":
    make(sys.argv[1], [tuple(a.rsplit(":", 1)) for a in sys.argv[2:]])
