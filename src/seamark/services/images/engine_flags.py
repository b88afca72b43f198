"""Whether an engine knows the flags of its recipe, asked inside the image, where it costs no allocation."""

import re
import subprocess
from collections.abc import Sequence

from seamark.errors import SiteError, did_you_mean
from seamark.model.service import Service
from seamark.model.site import Site
from seamark.platform.container import engine
from seamark.services.images.images import Image
from seamark.services.runtimes.containers import inside
from seamark.services.supervisor.launch_spec import Template

FLAG = re.compile(r"^--([a-zA-Z][\w-]*)")
SWITCH = re.compile(r"\{switches\[(\w+)\]\}")
OF_A_DEPLOYMENT = re.compile(r"\{(settings|switches|ports|addresses)\[")
TIMEOUT_S = 600.0
TAIL_LINES = 10


def unknown_flags(image: Image, service: Service, site: Site) -> list[str]:
    """Return a line for each flag of the recipe that the engine in the image does not know; [] where it knows all.

    What the engine knows is what the recipe's `container.flags` prints inside the image. Names are compared without
    their dashes, `-` and `_` alike. [] for a recipe without it. Raises SiteError when that command prints
    none of them: some engines do not start where there is no GPU.
    """
    server, container = service.server, service.container
    if server is None or container is None or not container.flags:
        return []
    words = server.command if image.origin == "definition" else container.command or server.command
    printed = _printed(image, service, site, words)
    known = _names(printed)
    return [
        f"service '{service.name}': the engine in {image.path.name} knows no flag --{flag}."
        f"{did_you_mean(flag, sorted(re.findall(r'--([a-z][a-z0-9-]+)', printed)))} Correct its recipe, or the image."
        for flag in flags_of(words)
        if _plain(flag) not in known
    ]


def flags_of(command: Sequence[str]) -> list[str]:
    """Return the names of the flags in a recipe's command, without dashes; a switch by the name of its setting."""
    found = []
    for word in command:
        if match := FLAG.match(word):
            found.append(match[1])
        elif match := SWITCH.fullmatch(word):
            found.append(match[1].replace("_", "-"))
    return list(dict.fromkeys(found))


def _printed(image: Image, service: Service, site: Site, command: Sequence[str]) -> str:
    assert service.container is not None
    assert service.server is not None
    declared = service.server.environment if image.origin == "definition" else service.container.environment
    values = {**inside(), "data": "/tmp", "user": "user", "host": "127.0.0.1", "ports": {}, "settings": {}}
    values |= {"node": "localhost", "nodes": 1}
    template = Template(service.name, values)
    variables = {name: template.fill(value) for name, value in declared.items() if not OF_A_DEPLOYMENT.search(value)}
    words = ["exec", "--containall"]
    for name, value in variables.items():
        words += ["--env", f"{name}={value}"]
    whole = engine(
        site, (*words, str(image.path), *service.container.flags), refuses_root=service.server.refuses_root
    )
    try:
        done = subprocess.run(
            whole, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as cause:
        raise SiteError(
            f"service '{service.name}': `{' '.join(cause.cmd)}` did not end in {TIMEOUT_S:.0f} s."
        ) from cause
    printed = done.stdout + done.stderr
    if not _names(printed) & {_plain(flag) for flag in flags_of(command)}:
        tail = done.stderr.splitlines()[-TAIL_LINES:]
        raise SiteError(
            f"service '{service.name}': `{' '.join(service.container.flags)}` printed none of its flags in"
            f" {image.path.name} (exit code {done.returncode}). Its last lines:",
            *(f"    {line}" for line in tail),
        )
    return printed


def _plain(flag: str) -> str:
    return flag.lower().replace("-", "_")


def _names(text: str) -> set[str]:
    """Return every word that could be the name of a flag."""
    return {_plain(name) for name in re.findall(r"[A-Za-z][\w-]*", text)}
