"""Environments of the other clients, one each, created on first use."""

import subprocess
import sys
from pathlib import Path

from machine import CACHE

import seamark
from seamark.services.runtimes.environments import prepare_environment

PINS = {
    "aiohttp": ("aiohttp[speedups]==3.14.5", "uvloop==0.23.0"),
    "aiperf": ("aiperf==0.13.0",),
    "guidellm": ("guidellm==0.8.1", "uvloop==0.23.0"),
    "locust": ("locust==2.47.0",),
}
FOR_VLLM = ("pandas==2.3.3", "python-dateutil==2.9.0.post0", "pytz==2025.2", "tzdata==2025.2", "six==1.17.0")
"""What `vllm bench serve` imports and the service's environment does not have."""
ROOT = Path(seamark.__file__).parents[2]
QUIET = {
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
}


def peer(name: str, pins: tuple[str, ...] = ()) -> Path:
    """Return the folder of programs of an environment with `pins`, by default those of a client. Creates it if
    missing."""
    pins = pins or PINS[name]
    folder = CACHE / name
    complete = folder / ".complete"
    if not complete.exists() or complete.read_text() != "\n".join(pins):
        print(f"installing {', '.join(pins)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *pins], check=True)
        complete.write_text("\n".join(pins))
    return folder / "bin"


def vllm() -> Path:
    """Return the folder of vLLM's programs, in the environment that the service itself has."""
    return prepare_environment("vllm", ROOT / "envs", CACHE.parent / "envs") / "bin"


def for_vllm() -> Path:
    """Return a folder for PYTHONPATH with what vLLM's benchmark needs besides."""
    folder = CACHE / "vllm-bench"
    if not (folder / "pandas").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
        subprocess.run([*pip, *FOR_VLLM], check=True)
    return folder


def tokenizer() -> Path:
    """Return a folder with the tokenizer of the tiny model: clients require one, even where they do not use it."""
    folder = CACHE / "tiny"
    if not (folder / "tokenizer.json").exists():
        code = (
            "import sys; from pathlib import Path; from seamark.drivers.openai.models import write_tiny; "
            "write_tiny(Path(sys.argv[1]), 1)"
        )
        path = {"PYTHONPATH": str(Path(seamark.__file__).parents[1])}
        subprocess.run([vllm() / "python", "-c", code, folder], check=True, env=path, capture_output=True)
    return folder
