"""Client of container registries: digest and size of an image by its address. Downloads no image."""

import base64
import hashlib
import json
import os
import platform
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seamark.errors import SiteError, UserError
from seamark.services.images.images import split_tag

TIMEOUT_S = 30.0
INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
DOCKER_HUB = "registry-1.docker.io"
SCHEMES = ("docker", "oras")


def resolve_address(address: str) -> tuple[str, int | None]:
    """Return the present image of `docker://host/name:tag` (or @digest, or oras://) in its registry: the digest of
    its manifest, and the compressed size of its layers in bytes.

    Credentials are Apptainer's own variables APPTAINER_DOCKER_USERNAME and APPTAINER_DOCKER_PASSWORD, if set.
    Raises UserError for an address of another kind or one that the registry does not have, SiteError when the
    registry cannot be reached or refuses.
    """
    scheme, _, rest = address.partition("://")
    if scheme not in SCHEMES:
        raise UserError(f"{address}: images are pulled from docker:// and oras:// only. Correct the recipe.")
    repository, tag = split_tag(f"docker://{rest}")
    host, name = _host_and_name(repository.removeprefix("docker://"))
    registry = _Registry(host=host, name=name, address=address)
    document, digest = registry.manifest(tag)
    if document.get("mediaType") in INDEXES or "manifests" in document:
        document, _ = registry.manifest(_for_this_machine(document, address))
    layers = document.get("layers")
    return digest, sum(int(layer["size"]) for layer in layers) if layers else None


def is_plain(address: str) -> bool:
    """Return whether the registry of an address runs on this machine, and so speaks HTTP without TLS."""
    host, _ = _host_and_name(address.partition("://")[2])
    return host.partition(":")[0] in ("localhost", "127.0.0.1")


def _host_and_name(repository: str) -> tuple[str, str]:
    host, slash, name = repository.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, name = "docker.io", repository
    if host in ("docker.io", "index.docker.io"):
        return DOCKER_HUB, name if "/" in name else f"library/{name}"
    return host, name


def _for_this_machine(index: Mapping[str, Any], address: str) -> str:
    wanted = MACHINES.get(platform.machine(), platform.machine())
    for entry in index["manifests"]:
        place = entry.get("platform") or {}
        if (place.get("os"), place.get("architecture")) == ("linux", wanted):
            return str(entry["digest"])
    raise SiteError(f"{address}: the registry has no image of it for {platform.machine()}.")


@dataclass(frozen=True, kw_only=True)
class _Registry:
    host: str
    name: str
    address: str

    def manifest(self, reference: str) -> tuple[dict[str, Any], str]:
        """Return a manifest and its digest."""
        scheme = "http" if is_plain(f"docker://{self.host}/") else "https"
        url = f"{scheme}://{self.host}/v2/{self.name}/manifests/{reference}"
        headers = {"Accept": ", ".join((*INDEXES, *MANIFESTS))}
        try:
            try:
                return self._read(url, headers)
            except urllib.error.HTTPError as refusal:
                if refusal.code != 401:
                    raise
                challenge = refusal.headers.get("WWW-Authenticate", "")
            return self._read(url, headers | {"Authorization": self._authorization(challenge)})
        except urllib.error.HTTPError as refusal:
            raise self._refused(refusal.code) from refusal
        except (OSError, ValueError) as cause:
            raise SiteError(
                f"{self.address}: the registry {self.host} cannot be reached ({cause}). Where there is no network,"
                " copy the image there, or build it from a definition (`images.build` of the site)."
            ) from cause

    def _read(self, url: str, headers: Mapping[str, str]) -> tuple[dict[str, Any], str]:
        request = urllib.request.Request(url, headers=dict(headers))
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            body = answer.read()
            digest = answer.headers.get("Docker-Content-Digest")
        return json.loads(body), digest or f"sha256:{hashlib.sha256(body).hexdigest()}"

    def _authorization(self, challenge: str) -> str:
        user, password = (os.environ.get(f"APPTAINER_DOCKER_{name}", "") for name in ("USERNAME", "PASSWORD"))
        basic = {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
        if challenge.lower().startswith("basic"):
            return basic["Authorization"]
        parameters = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        query = {"service": parameters.get("service", ""), "scope": f"repository:{self.name}:pull"}
        url = f"{parameters.get('realm', '')}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url, headers=basic if user else {})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            token = json.load(answer)
        return f"Bearer {token.get('token') or token.get('access_token')}"

    def _refused(self, code: int) -> UserError:
        if code == 404:
            return UserError(f"{self.address}: the registry {self.host} has no such image. Correct the recipe.")
        return SiteError(
            f"{self.address}: the registry {self.host} refuses ({code}). Set APPTAINER_DOCKER_USERNAME and"
            " APPTAINER_DOCKER_PASSWORD if it wants a login, or try again later if it limits pulls."
        )
