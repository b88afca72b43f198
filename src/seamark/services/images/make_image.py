"""Makes one image: pulls it by digest, or builds it from a definition; atomically, once, with a record.

Caches and temporary files lie in the folder of images, since a home is often small.
"""

import contextlib
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from seamark.errors import SiteError
from seamark.model.site import Site
from seamark.platform.container import engine
from seamark.services.images.images import Image
from seamark.services.images.registry import is_plain
from seamark.services.runtimes.environments import PIP_OPTIONS, lock_directives
from seamark.services.supervisor.control_files import acquire_lock
from seamark.storage.documents import write

WAIT_FOR_OTHER_S = 4 * 3600.0
TAIL_LINES = 15
SPACE_FACTOR = 3
"""Disk space needed during a pull, as a multiple of the layers: layers, unpacked files, the image itself."""
FAST_COMPRESSION = ("--mksquashfs-args", "-comp gzip -Xcompression-level 1")
"""A third of the time for 10 % more bytes; every Apptainer reads gzip."""
REMEDIES = (
    ("no space left", "The disk is full: free space, or set paths.containers of the site."),
    ("disk quota", "The disk quota is exhausted: free space, or set paths.containers of the site."),
    ("no such host", "The network cannot be reached: is this a node without one? See `images.where`."),
    ("dial tcp", "The network cannot be reached: is this a node without one? See `images.where`."),
    ("i/o timeout", "The network cannot be reached: is this a node without one? See `images.where`."),
    (
        "manifest unknown",
        "The registry no longer has this digest. Remove its entry from the lock for a newer one.",
    ),
    ("unauthorized", "The registry wants a login: APPTAINER_DOCKER_USERNAME and APPTAINER_DOCKER_PASSWORD."),
    ("digest", "The download does not match its digest. Nothing was kept. Try again, and tell the registry's owner."),
    ("apptainer: command not found", "The site's modules do not provide apptainer: correct `modules` of the site."),
    (
        "module: command not found",
        "This machine has no environment modules: set `module_init`, or see `images.where`.",
    ),
    ("user namespace", "Building needs user namespaces, which this kernel refuses. Build on another machine."),
)
"""Remedies by a part of Apptainer's output; the first match is printed."""


def pull(image: Image, site: Site, size_bytes: int | None) -> None:
    """Pull an image by its digest. Raises SiteError with the remedy, and leaves nothing then."""
    with _locked_target(image) as temporary:
        if temporary is None:
            return
        _require_space(image.path.parent, size_bytes)
        plain = ["--no-https"] if is_plain(image.source) else []
        _run(engine(site, ["pull", *plain, str(temporary), image.address], folder=image.path.parent), image)
        _publish(image, site, temporary)


def build(image: Image, site: Site, files: Mapping[str, Path], base: Path) -> None:
    """Build an image from its definition on `base`, a .sif or a folder. Raises SiteError with the remedy.

    `files` are its inputs by path in the build folder. Wheels are downloaded first, by Seamark's pip and settings,
    unless the site has a folder of them: the build itself has no network.
    """
    with (
        _locked_target(image) as temporary,
        tempfile.TemporaryDirectory(dir=image.path.parent, prefix=".build-") as name,
    ):
        if temporary is None:
            return
        context = Path(name)
        for path, source in files.items():
            (context / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, context / path)
        wheels = Path(site.images.wheels).expanduser() if site.images.wheels else context / "wheels"
        if not site.images.wheels:
            version = _python_version(base, site)
            for path, lock in files.items():
                if path.endswith(".lock"):
                    _download(lock, wheels, version, image, needed=path != "envs/uv.lock")
        words = ["build", "--ignore-fakeroot-command", *FAST_COMPRESSION, "--bind", f"{wheels}:/mnt"]
        arguments = ["bootstrap=localimage", f"base={base}"]
        if "{{ lock }}" in (context / image.source).read_text(encoding="utf-8", errors="replace"):
            arguments.append(f"lock={image.environment}")
        words += [word for argument in arguments for word in ("--build-arg", argument)]
        words += [str(temporary), image.source]
        _run(engine(site, words, folder=image.path.parent), image, context)
        _publish(image, site, temporary, base=str(base))


@contextlib.contextmanager
def _locked_target(image: Image) -> Iterator[Path | None]:
    """Yield a path to make the image at, under a lock; None when another process has made it meanwhile."""
    folder = image.path.parent
    try:
        for path in (folder, folder / ".tmp", folder / ".cache"):
            path.mkdir(parents=True, exist_ok=True)
        held = acquire_lock(folder / f".{image.path.name}.lock", wait_s=WAIT_FOR_OTHER_S)
    except OSError as cause:
        raise SiteError(f"{folder}: cannot be written ({cause}). Set paths.containers of the site.") from cause
    if held is None:
        raise SiteError(f"{image.path}: another process has been making it for hours. End that one, then try again.")
    temporary = folder / f".{image.path.stem}.new.sif"
    with held:
        temporary.unlink(missing_ok=True)
        try:
            yield None if image.exists() and image.read_record() else temporary
        finally:
            temporary.unlink(missing_ok=True)


def _require_space(folder: Path, size_bytes: int | None) -> None:
    free = shutil.disk_usage(folder).free
    if size_bytes is not None and free < SPACE_FACTOR * size_bytes:
        raise SiteError(
            f"{folder}: {free / 1e9:.1f} GB free, but {SPACE_FACTOR * size_bytes / 1e9:.1f} GB are needed while this"
            " image is pulled. Free space, or set paths.containers of the site."
        )


def _run(command: Sequence[str], image: Image, folder: Path | None = None) -> None:
    log = image.path.with_name(f"{image.path.name}.log")
    with log.open("wb") as output:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder, check=False
        )
    if done.returncode != 0:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        text = "\n".join(lines).lower()
        remedy = next((remedy for part, remedy in REMEDIES if part in text), "Its output follows.")
        raise SiteError(
            f"{image.name}: {image.address} could not be made into {image.path}. {remedy} Log: {log}",
            *(f"    {line}" for line in lines[-TAIL_LINES:]),
        )


def _publish(image: Image, site: Site, temporary: Path, *, base: str | None = None) -> None:
    """Write the record, then move the image to its path."""
    temporary.chmod(0o644)
    record = replace(
        replace(image, path=temporary).new_record(),
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        made_on=platform.node(),
        machine=platform.machine(),
        engine=_captured(engine(site, ["--version"])).stdout.strip(),
        base=base,
    )
    write(image.record, record)
    temporary.replace(image.path)


def _python_version(base: Path, site: Site) -> str:
    """Return the version of the base's Python, such as 3.11."""
    words = ["exec", "--containall", str(base), "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    version = _captured(engine(site, words)).stdout.strip()
    if not version:
        raise SiteError(
            f"{base}: this base image has no python3, which definitions need. Set `images.base` of the site."
        )
    return version


def _captured(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )


def _download(lock: Path, wheels: Path, version: str, image: Image, *, needed: bool) -> None:
    """Download the packages of a lock for the Python of the base; only wheels when that is another version.

    Without a wheel of uv, which is not `needed`, pip installs in the image.
    """
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    other = [] if version == ours else [f"--python-version={version}"]
    wheels_only = [] if version == ours and needed else ["--only-binary=:all:"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--require-hashes", "--no-deps", *lock_directives(lock, PIP_OPTIONS), *wheels_only, *other]
    command += ["-r", str(lock), "--dest", str(wheels)]
    done = _captured(command)
    if needed and done.returncode != 0:
        raise SiteError(
            f"{lock}: the packages of the image '{image.name}' cannot be downloaded. Is the network up? Without"
            " one, fill a folder elsewhere with `pip download` and name it as images.wheels of the site.",
            *(f"    {line}" for line in done.stderr.splitlines()[-TAIL_LINES:]),
        )
