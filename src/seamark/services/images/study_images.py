"""Images that a study needs on a site with containers: name, origin and digest of each."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from os.path import expandvars
from pathlib import Path

from seamark.errors import SiteError
from seamark.model.service import PartImage, Service
from seamark.model.trial import Deployment
from seamark.planning.study import Study
from seamark.services.images.images import (
    Image,
    LockEntry,
    client_lock,
    digest_of_parts,
    full_address,
    image_file,
    read_lock,
)
from seamark.storage.paths import expanded

CLIENT = "client"
"""Definition and lock of the image for workers that need no library of a service."""
JOBS = "seamark"
"""Definition of the images for whole jobs of loads."""
LOADS = "envs/loads.lock"
LOCK = "containers/images.lock.yaml"
PYTHON = "python"
"""Name of the base image of definitions, where that is pulled."""
SHELL = ("containers/environment.sh", "envs/install.py", "envs/uv.lock")
"""What every definition makes its environment with."""
LICENCE = re.compile(r"^\s*org\.opencontainers\.image\.licenses\s+(.+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class StudyImages:
    """Images of one study. A digest that was never requested from the registry is None."""

    study: Study

    @property
    def folder(self) -> Path:
        """Folder of images of the site; absolute."""
        return expanded(self.study.site.paths.containers)

    @property
    def lock_file(self) -> Path:
        """Lock of images in the study, as `bench prepare` writes it."""
        return self.study.root / LOCK

    @cached_property
    def lock(self) -> dict[str, LockEntry]:
        """Entries of the study's lock, of the shipped one while the study has none, read once."""
        return read_lock(self.study.file(LOCK))

    @cached_property
    def servers(self) -> list[Deployment]:
        """The deployments and members of the plan that differ in what their images depend on, each once."""
        return list({_depends_on(deployment): deployment for deployment in self.study.plan.served}.values())

    def of_server(self, deployment: Deployment) -> Image | None:
        """Return the image of a deployment's server; None outside of containers, or when it has none.

        The scenario's image comes first: a file of the user, or the path for the recipe's image. Then the recipe's
        image when it is a file, then the definition if the site builds this service or the recipe names no image,
        else the registry.
        """
        service, named = self.study.services[deployment.service], deployment.container
        if not self.study.site.beside(deployment.external).in_images or service.server is None:
            return None
        container = service.container
        if named is None and container is not None and container.image.endswith(".sif"):
            named = container.image
        if named is not None:
            return self._local_file(service, expanded(named))
        if container is None or service.name in self.study.site.images.build:
            return self._from_definition(service.environment or CLIENT)
        return self._from_registry(service.name, full_address(container.image), container.digest, service.licence)

    def of_parts(self, deployment: Deployment) -> dict[str, Image]:
        """Return the images of parts of a deployment's server that have one of their own, by part."""
        service = self.study.services[deployment.service]
        if not self.study.site.beside(deployment.external).in_images or service.server is None:
            return {}
        return {
            part.name: self._of_part(f"{service.name}-{part.name}", part.container)
            for part in service.server.parts
            if part.container is not None
        }

    def client_lock(self, deployment: Deployment) -> str | None:
        """Return the lock with the libraries of a deployment's loads; None when they need no more than every load."""
        service = self.study.services[deployment.service]
        return client_lock(service, self.of_server(deployment), deployment.external)

    def of_client(self, deployment: Deployment) -> Image | None:
        """Return the image of a load's workers; None where they run in an environment of the machine."""
        if not self.study.site.in_images or not self.study.site.images.client:
            return None
        return self._from_definition(self.client_lock(deployment) or CLIENT)

    def of_job(self, deployment: Deployment) -> Image | None:
        """Return the image for whole jobs of loads on a deployment; None where the site runs them without one.

        Raises SiteError for parties whose loads need the libraries of several services: a job has one image.
        """
        if not self.study.site.images.jobs:
            return None
        locks = list(dict.fromkeys(lock for member in deployment.served if (lock := self.client_lock(member))))
        if len(locks) > 1:
            raise SiteError(
                f"site '{self.study.site_name}': with 'images.jobs' all loads of a job run in one image, and these"
                f" parties need several ({', '.join(locks)}). Write 'images: {{client: true}}' instead."
            )
        return self._from_definition(locks[0] if locks else CLIENT, JOBS)

    def base(self) -> Image | None:
        """Return the base image of definitions; None when it is a file or a folder of the site."""
        named = self.study.site.images.base
        if "://" not in named:
            return None
        return self._from_registry(PYTHON, named, None, "PSF-2.0 and those of its distribution")

    def required(self) -> list[Image]:
        """Return every image that the plan needs, once each; the base first when an image must be built on it."""
        by_path: dict[Path, Image] = {}
        for image in self._of_plan():
            by_path.setdefault(image.path, image)
        to_build = any(image.origin == "definition" and not image.exists() for image in by_path.values())
        base = self.base() if to_build else None
        return [*([base] if base else []), *by_path.values()]

    def with_digest(self, image: Image, digest: str) -> Image:
        """Return an image of a registry with its digest, and the path that goes with it."""
        own = image.path != image_file(self.folder, image.name, image.digest)
        return replace(image, digest=digest, path=image.path if own else image_file(self.folder, image.name, digest))

    def files_of(self, image: Image) -> dict[str, Path]:
        """Return the input files of an image built from a definition, by path in the build folder."""
        return self._inputs(str(image.environment), image.source)

    def _inputs(self, environment: str, definition: str) -> dict[str, Path]:
        more = (LOADS,) if definition == f"containers/{JOBS}.def" else ()
        return {name: self.study.file(name) for name in (definition, *SHELL, f"envs/{environment}.lock", *more)}

    def _of_plan(self) -> Iterator[Image]:
        for deployment in self.servers:
            server, parts = self.of_server(deployment), self.of_parts(deployment).values()
            yield from filter(None, (server, *parts, self.of_client(deployment)))
        jobs = {_depends_on(deployment): deployment for deployment in self.study.plan.deployments}
        yield from filter(None, map(self.of_job, jobs.values()))

    def _of_part(self, name: str, own: PartImage) -> Image:
        if own.image.endswith(".sif"):
            path = expanded(own.image)
            return Image(name=name, origin="file", source=str(path), digest=None, licence=own.licence, path=path)
        return self._from_registry(name, full_address(own.image), own.digest, own.licence)

    def _local_file(self, service: Service, path: Path) -> Image:
        file = Image(
            name=service.name, origin="file", source=str(path), digest=None, licence=service.licence, path=path
        )
        container = service.container
        if container is None or container.image.endswith(".sif"):
            return file
        image = self._from_registry(service.name, full_address(container.image), container.digest, service.licence)
        image = replace(image, path=path)
        return file if path.is_file() and image.read_record() is None else image

    def _from_registry(self, name: str, source: str, digest: str | None, licence: str) -> Image:
        entry = self.lock.get(name, LockEntry())
        if digest is None and entry.source == source:
            digest = entry.digest
        path = image_file(self.folder, name, digest)
        return Image(name=name, origin="registry", source=source, digest=digest, licence=licence, path=path)

    def _from_definition(self, environment: str, what: str | None = None) -> Image | None:
        """Return the image of an environment, built from its own definition or from `what`."""
        definition = f"containers/{what or environment}.def"
        files = self._inputs(environment, definition)
        if not all(path.is_file() for path in files.values()):
            return None
        base = self.base()
        under = base.digest or base.source if base else _base_identity(expandvars(self.study.site.images.base))
        digest = digest_of_parts(*(path.read_bytes() for path in files.values()), under)
        name = f"{what}-{environment}-built" if what else f"{environment}-built"
        licence = LICENCE.search(files[definition].read_text(encoding="utf-8", errors="replace"))
        return Image(
            name=name,
            origin="definition",
            source=definition,
            digest=digest,
            licence=licence[1].strip() if licence else "not stated in its definition",
            path=image_file(self.folder, name, digest),
            environment=environment,
        )


def _depends_on(deployment: Deployment) -> tuple[object, ...]:
    """Return what the images of a deployment, or of its members together, depend on."""
    return tuple((one.service, one.container, one.external is None) for one in deployment.served)


def _base_identity(base: str) -> str:
    """Return the version mark of a base that is a file or folder: name, size, modification time."""
    path = Path(base).expanduser()
    try:
        status = path.stat()
    except OSError:
        return base
    return f"{path.name} {status.st_size} {status.st_mtime_ns}"
