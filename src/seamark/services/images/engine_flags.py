"""Check of a recipe's flags against the help text of the engine in its image, which needs no allocation."""

import re
import subprocess
from collections.abc import Sequence

from seamark.errors import SiteError, did_you_mean
from seamark.model.service import Service
from seamark.model.site import Site
from seamark.platform.container import engine
from seamark.services.images.images import Image
from seamark.services.runtimes.containers import inside
from seamark.services.supervisor.launch_spec import CommandTemplate

FLAG = re.compile(r"^--([a-zA-Z][\w-]*)")
SWITCH = re.compile(r"\{switches\[(\w+)\]\}")
OF_A_DEPLOYMENT = re.compile(r"\{(settings|switches|ports|addresses)\[")
TIMEOUT_S = 600.0
TAIL_LINES = 10


def unknown_flags(image: Image, service: Service, site: Site) -> list[str]:
    """Return a message for each flag of the recipe that the engine in the image does not know.

    The recipe's command `container.flags` prints the known flags inside the image; without it nothing is checked.
    Names are compared without dashes, `-` and `_` alike. Raises SiteError when the command prints none of the flags:
    some engines do not start without a GPU.
    """
    server, container = service.server, service.container
    if server is None or container is None or not container.flags:
        return []
    command = server.command if image.origin == "definition" else container.command or server.command
    help_text = _help_text(image, service, site, command)
    known = _names(help_text)
    spelled = sorted(re.findall(r"--([a-z][a-z0-9-]+)", help_text))
    return [
        f"service '{service.name}': the engine in {image.path.name} knows no flag --{flag}."
        f"{did_you_mean(flag, spelled)} Correct its recipe, or the image."
        for flag in flags_of(command)
        if _normal(flag) not in known
    ]


def flags_of(command: Sequence[str]) -> list[str]:
    """Return the names of the flags in a recipe's command, without dashes; a switch by the name of its setting."""
    names = []
    for word in command:
        if match := FLAG.match(word):
            names.append(match[1])
        elif match := SWITCH.fullmatch(word):
            names.append(match[1].replace("_", "-"))
    return list(dict.fromkeys(names))


def _help_text(image: Image, service: Service, site: Site, command: Sequence[str]) -> str:
    assert service.container is not None
    assert service.server is not None
    declared = service.server.environment if image.origin == "definition" else service.container.environment
    values = {**inside(), "data": "/tmp", "user": "user", "host": "127.0.0.1", "ports": {}, "settings": {}}
    values |= {"node": "localhost", "nodes": 1}
    template = CommandTemplate(service.name, values)
    variables = {name: template.fill(value) for name, value in declared.items() if not OF_A_DEPLOYMENT.search(value)}
    arguments = ["exec", "--containall"]
    for name, value in variables.items():
        arguments += ["--env", f"{name}={value}"]
    full_command = engine(
        site, (*arguments, str(image.path), *service.container.flags), refuses_root=service.server.refuses_root
    )
    try:
        completed = subprocess.run(
            full_command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as cause:
        raise SiteError(
            f"service '{service.name}': `{' '.join(cause.cmd)}` did not end in {TIMEOUT_S:.0f} s."
        ) from cause
    help_text = completed.stdout + completed.stderr
    if not _names(help_text) & {_normal(flag) for flag in flags_of(command)}:
        tail = completed.stderr.splitlines()[-TAIL_LINES:]
        raise SiteError(
            f"service '{service.name}': `{' '.join(service.container.flags)}` printed none of its flags in"
            f" {image.path.name} (exit code {completed.returncode}). Its last lines:",
            *(f"    {line}" for line in tail),
        )
    return help_text


def _normal(flag: str) -> str:
    return flag.lower().replace("-", "_")


def _names(text: str) -> set[str]:
    """Return every word of a text that could be the name of a flag."""
    return {_normal(name) for name in re.findall(r"[A-Za-z][\w-]*", text)}
