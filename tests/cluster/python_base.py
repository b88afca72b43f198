"""Makes the root of a small Linux system around the Python that runs this: a base for images without a network.

Argument: the folder to make. It holds the interpreter with venv and pip, a shell, the plain tools, certificates and
every library of the system that these ask for, as the image `python:3-slim` does.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

TOOLS = (
    *("bash", "sh", "env", "cat", "chmod", "cp", "cut", "date", "dirname", "echo", "expr", "find", "grep", "head"),
    *("id", "ldd", "ln", "ls", "mkdir", "mktemp", "mv", "od", "ps", "pwd", "readlink", "rm", "sed", "sleep", "sort"),
    *("stat", "tail", "tar", "test", "touch", "tr", "true", "uname", "which", "gzip", "hostname", "locale"),
)
LIBRARIES = ("libnss_files.so.2", "libnss_dns.so.2", "libstdc++.so.6", "libgcc_s.so.1", "libgomp.so.1", "librt.so.1")
LIBRARIES += ("libpthread.so.0", "libdl.so.2", "libutil.so.1", "libcrypt.so.1", "libz.so.1", "libresolv.so.2")
FILES = ("/etc/nsswitch.conf", "/etc/ssl/certs/ca-certificates.crt", "/usr/lib/locale/C.utf8", "/etc/protocols")
FOLDERS = ("etc", "tmp", "proc", "sys", "dev", "root", "home", "run", "opt", "mnt", "srv", "var/tmp", "usr/local/bin")
UNWANTED = ("site-packages", "test", "tests", "idlelib", "turtledemo", "tkinter", "lib2to3", "__pycache__", "*.a")
PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"


def make(root: Path) -> None:
    """Make `root`, which must not exist yet."""
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir()
        (root / name).symlink_to(f"usr/{name}")
    for folder in ("tmp", "var/tmp"):
        (root / folder).chmod(0o1777)
    (root / "etc/passwd").write_text(PASSWD)
    (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    tools = [Path(found) for found in map(shutil.which, TOOLS) if found]
    python = _copy_python(root)
    for tool in tools:
        _copy(tool, root, Path("/usr/bin") / tool.name)
    for library in {*libraries(tools), *libraries(python), *_named(LIBRARIES)}:
        if not library.is_relative_to(sys.base_prefix):
            _copy(library, root, library)
    for name in FILES:
        path = Path(name)
        if path.is_dir():
            shutil.copytree(path, root / name.lstrip("/"))
        elif path.exists():
            _copy(path, root, path)
    (root / "etc/ld.so.conf").write_text("/usr/local/lib\n/usr/lib/x86_64-linux-gnu\n/usr/lib/aarch64-linux-gnu\n")
    subprocess.run(["ldconfig", "-r", str(root)], check=True, env={"PATH": "/sbin:/usr/sbin:/usr/bin:/bin"})


def _copy_python(root: Path) -> list[Path]:
    """Copy the interpreter to /usr/local with venv and pip; return the files whose libraries it needs."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    prefix, there = Path(sys.base_prefix), root / "usr" / "local"
    standard = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(standard, there / "lib" / version, ignore=shutil.ignore_patterns(*UNWANTED))
    (there / "lib" / version / "site-packages").mkdir()
    binary = Path(f"{prefix}/bin/{version}")
    _copy(binary, root, Path("/usr/local/bin") / version)
    (there / "bin" / "python3").symlink_to(version)
    shared = Path(sysconfig.get_config_var("LIBDIR")) / str(sysconfig.get_config_var("INSTSONAME"))
    if shared.suffix != ".a" and shared.exists():
        _copy(shared, root, Path("/usr/local/lib") / shared.name)
    return [binary, *(standard / "lib-dynload").glob("*.so")]


def libraries(files: Iterable[Path]) -> Iterator[Path]:
    """Give every library of the system that the files are linked with, the loader too."""
    done = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        for word in line.split():
            if word.startswith("/") and not word.endswith(":"):
                yield Path(word)


def _named(names: Iterable[str]) -> Iterator[Path]:
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    for line in known.splitlines():
        name, _, path = line.strip().partition(" ")
        if (name in names and "x86-64" in line) or (name in names and "aarch64" in line):
            yield Path(path.rpartition(" ")[2])


def _copy(source: Path, root: Path, place: Path) -> None:
    target = root / str(place).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy2(os.path.realpath(source), target)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
