"""What must be there before a scenario can run on its site: images, by digest and checked, and environments.

Each step is one image or one environment, done once. A step that fails leaves the others alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seamark.errors import SiteError, UserError
from seamark.model.service import Service
from seamark.planning.study import Study
from seamark.services.images.engine_flags import unknown_flags
from seamark.services.images.images import Image, client_lock, read_lock, sha256_of, write_lock
from seamark.services.images.make_image import build, pull
from seamark.services.images.registry import ask
from seamark.services.images.study_images import StudyImages
from seamark.services.runtimes.environments import COMPLETE, environment_folder, prepare_environment
from seamark.storage.paths import expanded, write_json


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing that is needed. `done`: it was there; `why` says what went wrong when it could not be had."""

    kind: str
    name: str
    source: str
    path: Path
    digest: str | None
    licence: str
    state: str
    size_bytes: int | None = None
    flags: str | None = None
    why: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the step as JSON has it."""
        return {**vars(self), "path": str(self.path)}


def missing(study: Study) -> list[Step]:
    """Return everything that is needed, with its state: 'there' or 'missing'. Asks no registry."""
    return [*(_seen(image) for image in StudyImages(study=study).wanted()), *_environments(study, make=False)]


def require_images(study: Study) -> None:
    """Raise SiteError, before anything is submitted, when an image of the plan is not there."""
    lacking = [image for image in StudyImages(study=study).wanted() if not image.there()]
    if lacking:
        names = ", ".join(image.name for image in lacking)
        what, it = ("an image is", "it") if len(lacking) == 1 else (f"{len(lacking)} images are", "them")
        raise SiteError(
            f"site '{study.site_name}': {what} not there yet ({names}). Make {it} first:"
            f" bench prepare -c {study.scenario_path} --site {study.site_name}"
        )


def prepare(study: Study, *, verify: bool = False, say: Callable[[str], None] = lambda _: None) -> list[Step]:
    """Get all that is missing; return it with its new state: 'there', 'made', or 'failed' with the reason.

    `verify` reads every image that is there and holds it against what was written down. `say` hears what is begun.
    """
    steps: list[Step] = []
    images = StudyImages(study=study)
    if (base := next((image for image in images.wanted() if image.path == _base_path(images)), None)) is not None:
        steps.append(_get(images, base, verify, say))
        images = StudyImages(study=study)  # what is built on it is named by its digest
    for image in images.wanted():
        if image.path != _base_path(images):
            steps.append(_get(images, image, verify, say))
    return [*steps, *_environments(study, make=True, say=say)]


def _base_path(images: StudyImages) -> Path | None:
    base = images.base()
    return base.path if base else None


def _seen(image: Image) -> Step:
    made = image.made() or {}
    return Step(
        kind="image",
        name=image.name,
        source=image.source,
        path=image.path,
        digest=image.digest,
        licence=image.licence,
        state="there" if image.there() else "missing",
        size_bytes=made.get("size_bytes") or (image.path.stat().st_size if image.path.is_file() else None),
        flags=made.get("flags"),
    )


def _get(images: StudyImages, image: Image, verify: bool, say: Callable[[str], None]) -> Step:
    try:
        return _got(images, image, verify, say)
    except UserError as mistake:
        return replace(_seen(image), state="failed", why=str(mistake))


def _got(images: StudyImages, image: Image, verify: bool, say: Callable[[str], None]) -> Step:
    if "$" in str(image.path):
        raise SiteError(f"{image.path}: a variable in the image's path is not set. Export it, then prepare again.")
    state = "there"
    if image.origin != "file" and (image.digest is None or not image.there()):
        image, state = _make(images, image, say), "made"
    elif not image.path.is_file():
        raise SiteError(f"{image.path}: this image of the scenario's or recipe's own is not there. Put it there.")
    elif image.origin == "file" and image.made() is None:
        say(f"reading {image.path.name}")
        write_json(image.record, image.described())
    elif verify and (made := image.made()) is not None:
        say(f"reading {image.path.name}")
        if sha256_of(image.path) != made["sha256"]:
            raise SiteError(
                f"{image.path}: its content is not what was made ({made['sha256'][:12]}): the file is damaged or was"
                " changed. Remove it, then prepare again."
            )
    _note(images, image)
    flags = _check_flags(StudyImages(study=images.study), image)  # whose lock is the new one
    return replace(_seen(image), state=state, flags=flags)


def _make(images: StudyImages, image: Image, say: Callable[[str], None]) -> Image:
    """Make an image; return it with the digest that it has now."""
    site = images.study.site
    if image.origin == "definition":
        base = images.base()
        under = base.path if base else expanded(site.images.base)
        if not under.exists():
            raise SiteError(f"{under}: what the image '{image.name}' is built on is not there (`images.base`).")
        say(f"building {image.path.name} on {under.name}")
        build(image, site, images.files_of(image), under)
        return image
    found = ask(image.address)
    if image.digest is not None and found.digest != image.digest:
        raise SiteError(
            f"{image.address}: the registry answers with another digest, {found.digest}. Nothing was kept."
        )
    if image.digest is None:
        image = images.pulled(image, found.digest)
        _note(images, image)
    if not image.there():
        size = f", {found.size_bytes / 1e9:.2f} GB" if found.size_bytes else ""
        say(f"pulling {image.address}{size}")
        pull(image, site, found.size_bytes)
    return image


def _note(images: StudyImages, image: Image) -> None:
    """Bring the lock up to date with an image."""
    if image.origin == "file":
        return
    entry: dict[str, Any] = {"source": image.source, "digest": image.digest, "licence": image.licence}
    if made := image.made():
        entry["size_bytes"] = made["size_bytes"]
    entries = read_lock(images.lock_file)
    if entries.get(image.name) != entry:
        write_lock(images.lock_file, entries | {image.name: entry})


def _check_flags(images: StudyImages, image: Image) -> str | None:
    """Hold the flags of every recipe that is served from the image against its engine, once for each of both."""
    services = [service for service in _services(images.study) if _is_of(images, service, image)]
    for service in services:
        assert service.container is not None
        made = dict(image.made() or {})
        if made.get("flags") and made.get("flags_of") == _recipe(service):
            continue
        try:
            unknown = unknown_flags(image, service, images.study.site)
        except SiteError as silent:
            return f"not checked: {silent}"
        if unknown:
            raise UserError(*unknown)
        if made:
            write_json(image.record, made | {"flags": "known", "flags_of": _recipe(service)})
    return "known" if services else None


def _recipe(service: Service) -> list[str]:
    container = service.container
    assert container is not None
    assert service.server is not None
    return [*container.flags, *(container.command or ()), *service.server.command]


def _is_of(images: StudyImages, service: Service, image: Image) -> bool:
    server = images.of_server(service, images.study.plan.container)
    return bool(server and server.path == image.path and service.container and service.container.flags)


def _services(study: Study) -> Iterator[Service]:
    for name in dict.fromkeys(deployment.service for deployment in study.plan.deployments):
        yield study.services[name]


def _environments(study: Study, *, make: bool, say: Callable[[str], None] = lambda _: None) -> Iterator[Step]:
    """The environments of the services' clients, where they do not run in images."""
    if study.site.runtime == "apptainer" and study.site.images.client:
        return
    images = StudyImages(study=study)
    for service in _services(study):
        lock = client_lock(service, images.of_server(service, study.plan.container))
        if lock is None or not (study.locks / f"{lock}.lock").is_file():
            continue
        folder = environment_folder(lock, study.locks, study.environments)
        state, why = "there" if (folder / COMPLETE).exists() else "missing", None
        if make and state == "missing":
            say(f"making {folder.name}")
            try:
                prepare_environment(lock, study.locks, study.environments)
                state = "made"
            except UserError as mistake:
                state, why = "failed", str(mistake)
        yield Step(
            kind="environment",
            name=lock,
            source=f"envs/{lock}.lock",
            path=folder,
            digest=None,
            licence=service.licence,
            state=state,
            why=why,
        )
