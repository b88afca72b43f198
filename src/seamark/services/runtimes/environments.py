"""Python environment of a service, built once from its lock file and found again by the lock's content.

A virtual environment cannot be moved, so it is built in place, under a lock; a marker written last says that it is
complete. The remains of a killed build are removed and built again.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from seamark.errors import SiteError, UserError, did_you_mean
from seamark.model.harness import harnesses_of
from seamark.planning.study import SHIPPED, Study
from seamark.services.supervisor.control_files import acquire_lock
from seamark.storage.documents import write_text

COMPLETE = ".complete"
FAILED_IMPORTS = ("ImportError", "ModuleNotFoundError", "cannot open shared object", "bad marshal data", "null bytes")
TAIL_LINES = 15
WAIT_FOR_BUILD_S = 3600.0
INSTALLER = SHIPPED / "envs" / "install.py"
PIP_OPTIONS = "# pip:"
"""Prefix of a lock's line with options of `pip install`, such as `# pip: --no-deps`."""
ALIAS = "# alias:"
"""Prefix of a line with another name of a distribution, such as `# alias: vllm==0.32.0+cpu`.

Only its metadata are written, for code that looks up a name that its distribution does not have.
"""


def environment_folder(name: str, locks: Path, root: Path) -> Path:
    """Return the folder of the environment of lock `name`, built or not. UserError for an unknown lock."""
    lock = _lock_file(name, locks)
    interpreter = f"{platform.python_implementation()} {platform.python_version()} {platform.machine()}"
    digest = hashlib.sha256(interpreter.encode() + b"\n" + lock.read_bytes()).hexdigest()
    return root.expanduser().absolute() / f"{name}-{digest[:12]}"


def is_built(name: str, locks: Path, root: Path) -> bool:
    """Return whether the environment of lock `name` is complete."""
    return (environment_folder(name, locks, root) / COMPLETE).exists()


def missing_environments(study: Study) -> tuple[str, ...]:
    """Return the names of the environments of a study's plan that a run here must build first."""
    if study.site.in_images:
        return ()
    names = {
        study.services[deployment.service].load_lock(elsewhere=deployment.external is not None)
        for deployment in study.plan.served
    }
    names |= harnesses_of(study.plan.measured).keys()
    locked = {name for name in names if name and (study.locks / f"{name}.lock").is_file()}
    return tuple(name for name in sorted(locked) if not is_built(name, study.locks, study.environments))


def installing(study: Study, names: Sequence[str]) -> str | None:
    """Return what is installed now of a run's environments, as `installing s3, 2 of 4`; None when all are made."""
    unmade = [name for name in names if not is_built(name, study.locks, study.environments)]
    begun = [name for name in unmade if environment_folder(name, study.locks, study.environments).is_dir()]
    if not unmade:
        return None
    return f"installing {' and '.join(begun or unmade[:1])}, {len(names) - len(unmade) + 1} of {len(names)}"


def prepare_environment(name: str, locks: Path, root: Path) -> Path:
    """Return the environment of lock `name`, built first if it is not complete.

    Of several processes at once, one builds and the others wait. Raises UserError for a lock that is missing or has
    requirements without hashes, SiteError when the environment cannot be built here or is damaged.
    """
    folder = environment_folder(name, locks, root)
    if (folder / COMPLETE).exists():
        _require_interpreter(folder)
        return folder
    lock = _lock_file(name, locks)
    _require_hashes(lock)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        build_lock = acquire_lock(folder.with_name(f".{folder.name}.lock"), wait_s=WAIT_FOR_BUILD_S)
    except OSError as cause:
        raise SiteError(
            f"{folder.parent}: cannot be written ({cause}). Set paths.environments of the site."
        ) from cause
    if build_lock is None:
        raise SiteError(
            f"{folder}: another process has been building it for {WAIT_FOR_BUILD_S:.0f} s. End it, then try again."
        )
    with build_lock:
        if not (folder / COMPLETE).exists():
            _build(folder, lock)
    return folder


def damage_hint(folder: Path, lines: Sequence[str]) -> str:
    """Return how to rebuild an environment when the last lines of a process in it report a failed import, else ""."""
    if not any(text in line for line in lines for text in FAILED_IMPORTS):
        return ""
    return f" If the import worked before, the environment is damaged. {_rebuild_hint(folder)}"


def _require_interpreter(folder: Path) -> None:
    python = folder / "bin" / "python"
    if not os.access(python, os.X_OK) or not any(folder.glob("lib/python*/site-packages/*")):
        what = "no packages" if os.access(python, os.X_OK) else "no interpreter bin/python"
        raise SiteError(f"{folder}: this environment is damaged: it has {what}. {_rebuild_hint(folder)}")


def _rebuild_hint(folder: Path) -> str:
    return f"`rm -r {shlex.quote(str(folder))}`, and the next run builds it again."


def _build(folder: Path, lock: Path) -> None:
    """Install what a lock names and nothing else. The lock is whole: an installer would look extras up past its pins.

    Modules are compiled, since starts of servers are timed and a server may not be allowed to write there.
    """
    if folder.exists():
        shutil.rmtree(folder)
    log = folder.with_name(f"{folder.name}.log")
    log.unlink(missing_ok=True)
    python = str(folder / "bin" / "python")
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], lock, log, "Is the venv module there?")
    options = ["--require-hashes", "--no-deps", "--compile-bytecode", *lock_directives(lock, PIP_OPTIONS)]
    remedy = (
        "Is the network up, and does the installer need a proxy (https_proxy) or an index of its own (PIP_INDEX_URL)?"
        f" Without a network: `pip download --require-hashes --no-deps -r {lock} -d wheels` where there is one, copy"
        " the folder here, and set PIP_NO_INDEX=1 PIP_FIND_LINKS=wheels. A file with another hash: restore the lock."
    )
    _run([sys.executable, str(INSTALLER), python, *options, "-r", str(lock)], lock, log, remedy)
    for alias in lock_directives(lock, ALIAS):
        _write_metadata(folder, *alias.split("==", 1))
    write_text(folder / COMPLETE, lock.read_text(encoding="utf-8"))


def _run(command: list[str], lock: Path, log: Path, remedy: str) -> None:
    """Run a command; its output is shown as it comes, and kept in the log."""
    cache = os.environ.get("UV_CACHE_DIR") or str(log.with_name(".uv"))  # one file system: environments share files
    try:
        with (
            log.open("ab") as kept,
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                umask=0o022 if os.geteuid() == 0 else -1,  # readable to all: root's servers run as another user
                env={**os.environ, "UV_CACHE_DIR": cache},
            ) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                kept.write(line)
                sys.stderr.write(line.decode(errors="replace"))
                sys.stderr.flush()
    except OSError as cause:
        raise SiteError(f"{lock}: the environment cannot be built: {cause}.") from cause
    if process.returncode != 0:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        raise SiteError(
            f"environment '{lock.stem}' ({lock}): it cannot be built. {remedy} Log: {log}",
            *(f"    {line}" for line in lines[-TAIL_LINES:]),
        )


def lock_directives(lock: Path, prefix: str) -> list[str]:
    """Return the words of a lock's lines with a prefix: PIP_OPTIONS or ALIAS."""
    lines = lock.read_text(encoding="utf-8").splitlines()
    return [word for line in lines if line.startswith(prefix) for word in line.removeprefix(prefix).split()]


def _write_metadata(folder: Path, name: str, version: str) -> None:
    packages = sysconfig.get_path("purelib", "venv", {"base": str(folder)})
    metadata = Path(packages) / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
    write_text(metadata, f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def _lock_file(name: str, locks: Path) -> Path:
    lock = locks / f"{name}.lock"
    if not lock.is_file():
        known = sorted(path.stem for path in locks.glob("*.lock"))
        raise UserError(
            f"environment '{name}': no such lock as {lock}. Known: {', '.join(known) or 'none'}."
            f"{did_you_mean(name, known)}"
        )
    return lock


def _require_hashes(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8").replace("\\\n", " ")
    bare = [
        line.split()[0]
        for line in map(str.strip, text.splitlines())
        if line and not line.startswith(("#", "-")) and "--hash=" not in line
    ]
    if bare:
        raise UserError(
            *(f"{lock}: '{requirement}' has no --hash. Generate the lock with hashes." for requirement in bare[:10])
        )
