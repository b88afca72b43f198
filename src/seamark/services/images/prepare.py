"""Preparation of a study: the images and environments it needs on its site, pulled, built and checked once.

Each step is one image or one environment. A failed step does not affect the others.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from seamark.errors import SiteError, UserError
from seamark.model.digest import sha256_of
from seamark.model.harness import harnesses_of
from seamark.model.plurals import counted
from seamark.model.results.deployment_record import ImageRecord
from seamark.model.service import Service
from seamark.model.trial import Deployment
from seamark.planning.study import Study
from seamark.services.images.engine_flags import unknown_flags
from seamark.services.images.images import Image, LockEntry, read_lock, write_lock
from seamark.services.images.make_image import build, pull
from seamark.services.images.registry import resolve_address
from seamark.services.images.study_images import LOCK, StudyImages
from seamark.services.runtimes.environments import environment_folder, is_built, prepare_environment
from seamark.storage.documents import write
from seamark.storage.paths import expanded


@dataclass(frozen=True, kw_only=True)
class PreparationStep:
    """One image or environment that is needed, and its state; `why` is the reason of a failed one."""

    kind: str
    name: str
    source: str
    path: str
    digest: str | None
    licence: str
    state: str
    size_bytes: int | None = None
    flags: str | None = None
    why: str | None = None


def missing(study: Study) -> list[PreparationStep]:
    """Return every step with its state, 'there' or 'missing'; no registry is contacted."""
    return [*(_step(image) for image in StudyImages(study=study).required()), *_environments(study, make=False)]


def require_images(study: Study) -> None:
    """Raise SiteError, before anything is submitted, when an image of the plan is missing."""
    missing_images = [image for image in StudyImages(study=study).required() if not image.exists()]
    if missing_images:
        names = ", ".join(image.name for image in missing_images)
        count = counted(len(missing_images), "image")
        raise SiteError(
            f"site '{study.site_name}': {count} missing ({names}). Prepare first:"
            f" bench prepare -c {study.scenario_path} --site {study.site_name}"
        )


def prepare(
    study: Study, *, verify: bool = False, say: Callable[[str], None] = lambda _: None
) -> list[PreparationStep]:
    """Make every missing image and environment; return all with their new state: 'there', 'made' or 'failed'.

    `verify` compares the content of every existing image with its record. `say` gets a line for each step begun.
    """
    steps: list[PreparationStep] = []
    images = StudyImages(study=study)
    if (base := next((image for image in images.required() if image.path == _base_path(images)), None)) is not None:
        steps.append(_prepare_image(images, base, verify, say))
        images = StudyImages(study=study)  # images built on the base are named by its digest
    for image in images.required():
        if image.path != _base_path(images):
            steps.append(_prepare_image(images, image, verify, say))
    return [*steps, *_environments(study, make=True, say=say)]


def _base_path(images: StudyImages) -> Path | None:
    base = images.base()
    return base.path if base else None


def _step(image: Image) -> PreparationStep:
    made = image.read_record() or ImageRecord()
    return PreparationStep(
        kind="image",
        name=image.name,
        source=image.source,
        path=str(image.path),
        digest=image.digest,
        licence=image.licence,
        state="there" if image.exists() else "missing",
        size_bytes=made.size_bytes or (image.path.stat().st_size if image.path.is_file() else None),
        flags=made.flags,
    )


def _prepare_image(images: StudyImages, image: Image, verify: bool, say: Callable[[str], None]) -> PreparationStep:
    try:
        return _prepared_step(images, image, verify, say)
    except UserError as mistake:
        return replace(_step(image), state="failed", why=str(mistake))


def _prepared_step(images: StudyImages, image: Image, verify: bool, say: Callable[[str], None]) -> PreparationStep:
    if "$" in str(image.path):
        raise SiteError(f"{image.path}: a variable in the image's path is not set. Export it, then prepare again.")
    state = "there"
    if image.origin != "file" and (image.digest is None or not image.exists()):
        image, state = _make(images, image, say), "made"
    elif not image.path.is_file():
        raise SiteError(f"{image.path}: this image file of the scenario or recipe is missing. Put it there.")
    elif image.origin == "file" and image.read_record() is None:
        say(f"reading {image.path.name}")
        write(image.record, image.new_record())
    elif verify and (made := image.read_record()) is not None:
        say(f"reading {image.path.name}")
        if sha256_of(image.path) != made.sha256:
            raise SiteError(
                f"{image.path}: its content is not what was made ({str(made.sha256)[:12]}): the file was damaged or"
                " changed. Remove it, then prepare again."
            )
    _update_lock(images, image)
    flags = _check_flags(StudyImages(study=images.study), image)  # reads the updated lock
    return replace(_step(image), state=state, flags=flags)


def _make(images: StudyImages, image: Image, say: Callable[[str], None]) -> Image:
    """Make an image; return it with its digest."""
    site = images.study.site
    if image.origin == "definition":
        base = images.base()
        under = base.path if base else expanded(site.images.base)
        if not under.exists():
            raise SiteError(f"{under}: the base of the image '{image.name}' is missing (`images.base`).")
        say(f"building {image.path.name} on {under.name}")
        build(image, site, images.files_of(image), under)
        return image
    digest, size_bytes = resolve_address(image.address)
    if image.digest is not None and digest != image.digest:
        raise SiteError(f"{image.address}: the registry answers with another digest, {digest}. Nothing was kept.")
    if image.digest is None:
        image = images.with_digest(image, digest)
        _update_lock(images, image)
    if not image.exists():
        size = f", {size_bytes / 1e9:.2f} GB" if size_bytes else ""
        say(f"pulling {image.address}{size}")
        pull(image, site, size_bytes)
    return image


def _update_lock(images: StudyImages, image: Image) -> None:
    """Update the lock's entry of an image."""
    if image.origin == "file":
        return
    made = image.read_record() or ImageRecord()
    entry = LockEntry(source=image.source, digest=image.digest, licence=image.licence, size_bytes=made.size_bytes)
    entries = read_lock(images.study.file(LOCK))
    if entries.get(image.name) != entry:
        write_lock(images.lock_file, entries | {image.name: entry})


def _check_flags(images: StudyImages, image: Image) -> str | None:
    """Check the flags of every recipe served from the image against its engine, once for each recipe and image."""
    served = [deployment for deployment in images.servers if _serves_from(images, deployment, image)]
    services = [images.study.services[deployment.service] for deployment in served]
    for service in services:
        assert service.container is not None
        made = image.read_record()
        if made and made.flags and made.flags_of == _recipe(service):
            continue
        try:
            unknown = unknown_flags(image, service, images.study.site)
        except SiteError as cause:
            return f"not checked: {cause}"
        if unknown:
            raise UserError(*unknown)
        if made:
            write(image.record, replace(made, flags="known", flags_of=_recipe(service)))
    return "known" if services else None


def _recipe(service: Service) -> tuple[str, ...]:
    container = service.container
    assert container is not None
    assert service.server is not None
    return (*container.flags, *(container.command or ()), *service.server.command)


def _serves_from(images: StudyImages, deployment: Deployment, image: Image) -> bool:
    server, container = images.of_server(deployment), images.study.services[deployment.service].container
    return bool(server and server.path == image.path and container and container.flags)


def _environments(
    study: Study, *, make: bool, say: Callable[[str], None] = lambda _: None
) -> Iterator[PreparationStep]:
    """Yield a step for the environment of each service's clients, where these do not run in images."""
    if study.site.in_images and study.site.images.client:
        return
    images = StudyImages(study=study)
    licences: dict[str, str] = {}
    for deployment in images.servers:
        lock = images.client_lock(deployment)
        if lock is not None and (study.locks / f"{lock}.lock").is_file():
            licences.setdefault(lock, study.services[deployment.service].licence)
    for lock, tool in harnesses_of(study.plan.measured).items():
        licences.setdefault(lock, tool.licence)
    unmade = [lock for lock in licences if not is_built(lock, study.locks, study.environments)]
    for lock, licence in licences.items():
        folder = environment_folder(lock, study.locks, study.environments)
        state, why = "missing" if lock in unmade else "there", None
        if make and lock in unmade:
            say(f"installing {lock}, {unmade.index(lock) + 1} of {len(unmade)}")
            try:
                prepare_environment(lock, study.locks, study.environments)
                state = "made"
            except UserError as mistake:
                state, why = "failed", str(mistake)
        yield PreparationStep(
            kind="environment",
            name=lock,
            source=f"envs/{lock}.lock",
            path=str(folder),
            digest=None,
            licence=licence,
            state=state,
            why=why,
        )
