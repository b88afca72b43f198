"""Installs packages into an environment: with uv and the settings of pip, or with pip where uv has no wheel.

`python install.py PYTHON OPTIONS` is `pip install OPTIONS` for the environment of PYTHON. uv lies beside the Python
that runs this, or its pip installs it from uv.lock. Standard library alone: this runs before any package is there.
"""

import ast
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

LOCK = Path(__file__).with_name("uv.lock")
CACHE = "~/.cache/seamark/envs/.uv"
PIP_LINE = re.compile(r"(global|install)\.([\w-]+)=(.+)")
FLAGS = ("--require-hashes", "--no-deps", "--no-index", "--no-build-isolation", "--pre", "--compile-bytecode")
"""Options that uv refuses to read twice."""
VALUED = ("-r", "--requirement", "-e", "--editable", "-c", "--constraint", "-f", "--find-links", "-i", "--index-url")
KNOWN = {*FLAGS, *VALUED, "--extra-index-url", "--only-binary", "--no-binary"}
"""Options that pip and uv read alike; a lock that gives another one to pip is installed by pip."""
LISTS = ("extra-index-url", "find-links", "constraint", "no-binary", "only-binary", "trusted-host")
VARIABLES = {
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "retries": ("UV_HTTP_RETRIES",),
}
"""uv's variables for a setting of pip."""


def pip_settings(listing: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return pip's settings by their long names, from the output of `pip config list` and from PIP_* variables."""
    written = [(section, name, str(ast.literal_eval(value))) for section, name, value in PIP_LINE.findall(listing)]
    written.sort(key=lambda setting: setting[0] == "install")  # the command's section over the general one
    told = [
        (name.removeprefix("PIP_").lower(), value) for name, value in variables.items() if name.startswith("PIP_")
    ]
    settings = {name: value for _, name, value in written} | {name.replace("_", "-"): value for name, value in told}
    return {name.replace("default-timeout", "timeout"): value for name, value in settings.items()}


def uv_options(settings: Mapping[str, str], wanted: Sequence[str]) -> list[str]:
    """Return the options of `uv pip install` for options `wanted` of pip under pip's settings.

    A folder that is not there is left out, as pip does.
    """
    words = list(wanted)
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on", "y", "t"):
        words.append("--no-index")
    elif (index := settings.get("index-url")) and not {"-i", "--index-url"} & _names(wanted):
        words += ["--index-url", _absolute(index)]
    for name in LISTS:
        for value in re.split(r"[\s,]+" if name.endswith("binary") else r"\s+", settings.get(name, "").strip()):
            if value and _is_there(name, value):
                option = "allow-insecure-host" if name == "trusted-host" else name
                located = name in ("extra-index-url", "find-links", "constraint")
                words += [f"--{option}", _absolute(value) if located else value]
    if {"-c", "--constraint"} & _names(words):
        # uv wants hashes of constraints as well. Without the option it still compares every hash that a lock has.
        words = [word for word in words if word != "--require-hashes"]
    return [word for place, word in enumerate(words) if word not in FLAGS or words.index(word) == place]


def uv_variables(settings: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of uv under pip's settings; what is said to uv itself stays."""
    told = {name: settings[key] for key, names in VARIABLES.items() if settings.get(key) for name in names}
    bundle = next((variables[name] for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE") if variables.get(name)), None)
    if (certificates := told.pop("SSL_CERT_FILE", bundle)) is not None:
        told["SSL_CERT_DIR" if Path(certificates).is_dir() else "SSL_CERT_FILE"] = _absolute(certificates)
    own = {
        "UV_CACHE_DIR": str(Path(CACHE).expanduser()),
        "UV_LINK_MODE": "hardlink",
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    return own | dict(variables) | told | {name: value for name, value in variables.items() if name.startswith("UV_")}


def pinned_version() -> str:
    """Return the version of uv in uv.lock."""
    return LOCK.read_text(encoding="utf-8").partition("uv==")[2].split()[0]


def find_uv(pip: Sequence[str], cache: Path) -> Path | None:
    """Return uv in its pinned version: beside this Python, or beside the cache, installed there if need be.

    None where pip cannot install it: no wheel for this machine, or none in the index.
    """
    version = pinned_version()
    own = cache.with_name(f"{cache.name}-{version}-{platform.machine()}")
    there = [Path(sys.executable).with_name("uv"), own / "bin" / "uv"]
    if not any(_runs(uv, version) for uv in there):
        own.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=own.parent, prefix=f"{own.name}."))
        new.chmod(0o755)
        words = ["--quiet", "--require-hashes", "--no-deps", "--only-binary=:all:", "-r", str(LOCK), "--target", new]
        subprocess.run([*pip, "install", "--disable-pip-version-check", *map(str, words)], check=False)
        with suppress(OSError):  # another process has put its own there meanwhile
            new.rename(own)
        shutil.rmtree(new, ignore_errors=True)
    return next((uv for uv in there if _runs(uv, version)), None)


def find_pip(cache: Path) -> list[str]:
    """Return the command of a pip that installs into other environments: this Python's, else one beside the cache."""
    own = cache.with_name(".pip")
    for python in (sys.executable, str(own / "bin" / "python")):
        if _output([python, "-m", "pip", "--python", python, "--version"]):
            return [python, "-m", "pip"]
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(own)], check=True)
    return [str(own / "bin" / "python"), "-m", "pip"]


def install(python: str, wanted: Sequence[str]) -> int:
    """Install into the environment of `python`; return the exit code of uv or pip, whose output is shown as it is."""
    cache = Path(os.environ.get("UV_CACHE_DIR") or CACHE).expanduser().absolute()
    pip = find_pip(cache)
    alien = sorted(_names(wanted) - KNOWN)
    uv = find_uv(pip, cache) if not alien else None
    if uv is None:
        why = f"uv does not know {', '.join(alien)}" if alien else f"uv {pinned_version()} cannot be installed here"
        print(f"{why}: pip installs instead, which takes longer.", file=sys.stderr, flush=True)
        words = [word for word in wanted if word != "--compile-bytecode"]
        command = [*pip, "--python", python, "install", "--disable-pip-version-check", "--no-input", *words]
        return subprocess.run(command, check=False).returncode
    settings = pip_settings(_output([*pip, "config", "list"]), os.environ)
    # As with pip, any index may have the file whose hash is pinned.
    command = [str(uv), "pip", "install", "--python", python, "--index-strategy", "unsafe-best-match"]
    command += uv_options(settings, wanted)
    return subprocess.run(command, check=False, env=uv_variables(settings, os.environ)).returncode


def _runs(uv: Path, version: str) -> bool:
    return _output([str(uv), "--version"]).split()[1:2] == [version]


def _names(words: Iterable[str]) -> set[str]:
    return {word.partition("=")[0] for word in words if word.startswith("-")}


def _absolute(location: str) -> str:
    """Return a location that means the same in any folder."""
    return location if "://" in location else str(Path(location).expanduser().absolute())


def _is_there(name: str, value: str) -> bool:
    if name not in ("extra-index-url", "find-links"):
        return True
    url = urlsplit(value)
    if "://" in value and url.scheme != "file":
        return True
    return Path(url2pathname(url.path) if url.scheme == "file" else _absolute(value)).exists()


def _output(command: Sequence[str]) -> str:
    """Return what a command prints; "" when it fails or is not there."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


if __name__ == "__main__":
    sys.exit(install(sys.argv[1], sys.argv[2:]))
