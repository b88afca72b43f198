"""The images that a study needs on a site of containers: which, from where, by what digest. Makes none."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from os.path import expandvars
from pathlib import Path
from typing import Any

from seamark.model.service import PartImage, Service
from seamark.planning.study import Study
from seamark.services.images.images import Image, client_lock, digest_of_parts, full_address, image_file, read_lock
from seamark.storage.paths import expanded

CLIENT = "client"
"""The definition, and the lock, of an image for workers that need no library of a service."""
JOBS = "seamark"
"""The definition of the images that jobs of loads run in as a whole."""
LOADS = "envs/loads.lock"
PYTHON = "python"
"""The name of the image that definitions start from, where that is pulled."""
SHELL = "containers/environment.sh"
LICENCE = re.compile(r"^\s*org\.opencontainers\.image\.licenses\s+(.+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class StudyImages:
    """The images of one study. Digests that nobody has asked a registry for yet are None."""

    study: Study

    @property
    def folder(self) -> Path:
        """Where the site keeps images; absolute."""
        return expanded(self.study.site.paths.containers)

    @property
    def lock_file(self) -> Path:
        """The study's own lock of images."""
        return self.study.root / "containers" / "images.lock.yaml"

    @cached_property
    def lock(self) -> dict[str, dict[str, Any]]:
        """The lock as it was when it was first asked for."""
        return read_lock(self.lock_file)

    def of_server(self, service: Service, named: str | None) -> Image | None:
        """Return the image that a service's server runs in; None outside of containers, or when there is none.

        The scenario's own image `named` comes first: a file that somebody put there, or the place where the recipe's
        image is to be. Then the recipe's when it is a file, then the definition if the site builds this service or
        its recipe names no image, else the registry.
        """
        if self.study.site.runtime != "apptainer" or service.server is None:
            return None
        container = service.container
        if named is None and container is not None and container.image.endswith(".sif"):
            named = container.image
        if named is not None:
            return self._named(service, expanded(named))
        if container is None or service.name in self.study.site.images.build:
            return self._defined(service.environment or CLIENT)
        return self._pulled(service.name, full_address(container.image), container.digest, service.licence)

    def of_parts(self, service: Service) -> dict[str, Image]:
        """Return the images of those parts of a service's server that have one of their own, by the part's name."""
        if self.study.site.runtime != "apptainer" or service.server is None:
            return {}
        owned = [(part.name, part.container) for part in service.server.parts if part.container is not None]
        return {name: self._of_part(f"{service.name}-{name}", own) for name, own in owned}

    def of_client(self, service: Service) -> Image | None:
        """Return the image that workers of a load run in; None where they run in an environment of the machine."""
        if self.study.site.runtime != "apptainer" or not self.study.site.images.client:
            return None
        return self._defined(client_lock(service, self.of_server(service, self.study.plan.container)) or CLIENT)

    def of_job(self, service: Service) -> Image | None:
        """Return the image that Snakemake runs jobs of loads on a service in; None where the site does not say so."""
        if not self.study.site.images.jobs:
            return None
        lock = client_lock(service, self.of_server(service, self.study.plan.container))
        return self._defined(lock or CLIENT, JOBS)

    def base(self) -> Image | None:
        """Return the image that definitions start from; None when it is a file or a folder of the site's."""
        named = self.study.site.images.base
        if "://" not in named:
            return None
        return self._pulled(PYTHON, named, None, "PSF-2.0 and those of its distribution")

    def wanted(self) -> list[Image]:
        """Return every image that the study's plan needs, once; the base first when something is built from it."""
        found: dict[Path, Image] = {}
        for image in self._of_plan():
            found.setdefault(image.path, image)
        built = any(image.origin == "definition" and not image.there() for image in found.values())
        base = self.base() if built else None
        return [*([base] if base else []), *found.values()]

    def pulled(self, image: Image, digest: str) -> Image:
        """Return an image of a registry as it is with its digest known."""
        own = image.path != image_file(self.folder, image.name, image.digest)
        return replace(image, digest=digest, path=image.path if own else image_file(self.folder, image.name, digest))

    def files_of(self, image: Image) -> dict[str, Path]:
        """Return what an image of a definition is built from, by its path in the folder that it is built in."""
        return self._parts(str(image.environment), image.source)

    def _parts(self, environment: str, definition: str) -> dict[str, Path]:
        more = (LOADS,) if definition == f"containers/{JOBS}.def" else ()
        return {name: self.study.file(name) for name in (definition, SHELL, f"envs/{environment}.lock", *more)}

    def _of_plan(self) -> Iterator[Image]:
        plan = self.study.plan
        for name in dict.fromkeys(deployment.service for deployment in plan.deployments):
            service = self.study.services[name]
            server, parts = self.of_server(service, plan.container), self.of_parts(service).values()
            for image in (server, *parts, self.of_client(service), self.of_job(service)):
                if image is not None:
                    yield image

    def _of_part(self, name: str, own: PartImage) -> Image:
        if own.image.endswith(".sif"):
            path = expanded(own.image)
            return Image(name=name, origin="file", source=str(path), digest=None, licence=own.licence, path=path)
        return self._pulled(name, full_address(own.image), own.digest, own.licence)

    def _named(self, service: Service, path: Path) -> Image:
        file = Image(
            name=service.name, origin="file", source=str(path), digest=None, licence=service.licence, path=path
        )
        container = service.container
        if container is None or container.image.endswith(".sif"):
            return file
        pulled = self._pulled(service.name, full_address(container.image), container.digest, service.licence)
        pulled = replace(pulled, path=path)
        return file if path.is_file() and pulled.made() is None else pulled

    def _pulled(self, name: str, source: str, digest: str | None, licence: str) -> Image:
        entry = self.lock.get(name, {})
        if digest is None and entry.get("source") == source:
            digest = entry.get("digest")
        path = image_file(self.folder, name, digest)
        return Image(name=name, origin="registry", source=source, digest=digest, licence=licence, path=path)

    def _defined(self, environment: str, what: str | None = None) -> Image | None:
        """Return the image of an environment, from its own definition or from `what`."""
        definition = f"containers/{what or environment}.def"
        files = self._parts(environment, definition)
        if not all(path.is_file() for path in files.values()):
            return None
        base = self.base()
        under = base.digest or base.source if base else _identity(expandvars(self.study.site.images.base))
        digest = digest_of_parts(*(path.read_bytes() for path in files.values()), under)
        name = f"{what}-{environment}-built" if what else f"{environment}-built"
        licence = LICENCE.search(files[definition].read_text(encoding="utf-8"))
        return Image(
            name=name,
            origin="definition",
            source=definition,
            digest=digest,
            licence=licence[1].strip() if licence else "not said in its definition",
            path=image_file(self.folder, name, digest),
            environment=environment,
        )


def _identity(base: str) -> str:
    """Return what tells a base that is a file or folder from another version of it."""
    path = Path(base).expanduser()
    try:
        found = path.stat()
    except OSError:
        return base
    return f"{path.name} {found.st_size} {found.st_mtime_ns}"
