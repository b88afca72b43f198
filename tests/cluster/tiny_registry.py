"""A registry of container images on this machine, as much of it as is pulled from; what it holds can be spoiled."""

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from answering import Reply, answering

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass(kw_only=True)
class Registry:
    """Blobs by digest, manifests by digest and by tag of one repository, and the paths that were asked for."""

    address: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def push(self, tag: str, files: dict[str, bytes], *, layer_bytes: int | None = None) -> str:
        """Hold an image of a shell and files under a tag; return its digest. `layer_bytes` is a false size."""
        layer = layer_of(files)
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [sha256(gzip.decompress(layer))]},
        }
        blobs = {CONFIG: json.dumps(config).encode(), LAYER: layer}
        self.blobs |= {sha256(data): data for data in blobs.values()}
        described = [{"mediaType": kind, "digest": sha256(data), "size": len(data)} for kind, data in blobs.items()]
        described[1]["size"] = layer_bytes or len(layer)
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described[0], "layers": [described[1]]}
        data = json.dumps(manifest).encode()
        self.manifests |= {tag: data, sha256(data): data}
        return sha256(data)


def layer_of(files: dict[str, bytes]) -> bytes:
    """Return a layer with /bin/sh of this machine, the libraries it needs, and files."""
    shell = Path(shutil.which("dash") or "/bin/sh").resolve()
    linked = subprocess.run(["ldd", str(shell)], capture_output=True, text=True, check=False).stdout.split()
    libraries = [word for word in linked if word.startswith("/")]
    content = {"bin/sh": shell.read_bytes(), **{each[1:]: Path(each).read_bytes() for each in libraries}, **files}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data in content.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            tar.addfile(entry, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), mtime=0)


@contextmanager
def serving() -> Iterator[Registry]:
    """Serve a registry on a port of its own; `address` is what a recipe would name: docker://127.0.0.1:PORT/tiny."""
    registry = Registry()

    def reply(request: BaseHTTPRequestHandler, _: bytes) -> Reply:
        registry.asked.append(request.path)
        kind, _, wanted = request.path.rpartition("/")
        held = registry.manifests if kind.endswith("/manifests") else registry.blobs
        data = b"{}" if request.path == "/v2/" else held.get(wanted)
        if data is None:
            return 404, b"", {}
        described = {"Content-Type": MANIFEST, "Docker-Content-Digest": sha256(data)}
        return 200, data, described if held is registry.manifests else {}

    with answering(reply) as port:
        registry.address = f"docker://127.0.0.1:{port}/tiny"
        yield registry
