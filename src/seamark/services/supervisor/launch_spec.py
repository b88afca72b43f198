"""Launch spec: the input of a supervisor, and the commands made from a recipe's templates."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seamark.dispatch.job import gpus_per_node
from seamark.dispatch.placement import Place
from seamark.errors import UserError
from seamark.model.service import OPTIONS, URLS, WORDS, Service, Value, entries
from seamark.model.site import Site
from seamark.model.trial import Deployment
from seamark.platform.process_tree import SESSION_NICE
from seamark.services.images.images import Image
from seamark.storage.paths import DeploymentFolder, expanded


@dataclass(frozen=True, kw_only=True)
class LaunchSpec:
    """One deployment to serve, pickled to the supervisor's standard input. Paths are absolute; `study` is the folder
    that templates name by `{study}`.

    `environment` is the service's Python environment, None for Seamark's own; `shards` the most workers of one of its
    loads. Inside containers `image` is the server's, `part_images` those of parts with an image of their own, by
    part, and `client` that of the load's workers; None and empty otherwise. `place` is that of a server beside those
    of other services; None for one that has the machine to itself.
    """

    deployment: Deployment
    service: Service
    site: Site
    folder: DeploymentFolder
    scenario: str
    seed: int
    environment: Path | None = None
    image: Image | None = None
    part_images: Mapping[str, Image] = field(default_factory=dict)
    client: Image | None = None
    binds: tuple[str, ...] = ()
    shards: int = 1
    place: Place | None = None
    study: Path = Path()

    @property
    def gpus_per_node(self) -> int:
        """GPUs of each node of the server, as requested from the batch system."""
        return gpus_per_node(self.deployment, self.service)

    @property
    def session_niceness(self) -> int:
        """Niceness of the server's sessions: that of its place, and a lower priority for one that busy-waits."""
        busy = self.service.server is not None and self.service.server.busy_waits
        return max(self.place.niceness if self.place else 0, SESSION_NICE if busy else 0)

    @property
    def shown_study(self) -> tuple[Path, ...]:
        """The study's folder where the recipe names it: containers and other users see it only then."""
        return (self.study,) if "{study}" in repr(self.service) else ()

    @property
    def data(self) -> Path:
        """Data folder of the server: below the site's scratch, by scenario and deployment."""
        return expanded(self.site.paths.scratch) / self.scenario / self.deployment.id

    @property
    def values(self) -> Path:
        """The rendered values of the deployment, of a recipe with `values`."""
        return self.data / "values.yaml"


@dataclass(frozen=True, kw_only=True)
class ProcessSlot:
    """Where one process of a deployment runs, and the addresses of the others.

    `host` is the address of its node; `ports` are its own and those shared by all; `addresses` are those of the first
    node of each part, by part; `nodes` is the number of nodes of the server. `urls` are those of the copies of parts
    with a count, by part; `number` is that of this copy.
    """

    node: str
    host: str
    ports: Mapping[str, int]
    nodes: int = 1
    addresses: Mapping[str, str] = field(default_factory=dict)
    urls: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    number: int | None = None


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One process ready to start: argument vectors, its whole environment, and its user.

    `setup` commands run before it, in order, as the same user. `user` is None for the user of this process; `prefix`
    is the command that switches to another one.
    """

    command: tuple[str, ...]
    setup: tuple[tuple[str, ...], ...]
    health_command: tuple[str, ...]
    environment: Mapping[str, str]
    user: str | None = None
    prefix: tuple[str, ...] = ()


class CommandTemplate:
    """Fills `{name}` and `{name[key]}` in a recipe's strings."""

    def __init__(self, service: str, values: Mapping[str, Any]) -> None:
        self.service = service
        self.values = dict(values)

    def fill(self, text: str) -> str:
        """Return `text` with its placeholders filled. Raises UserError with the recipe, the string and the known
        names."""
        try:
            return text.format(**self.values)
        except (KeyError, IndexError, ValueError, AttributeError) as cause:
            names = ", ".join("{" + _placeholder(name, value) + "}" for name, value in sorted(self.values.items()))
            raise UserError(
                f"service '{self.service}': cannot fill in '{text}': {type(cause).__name__} {cause}."
                f" Known here: {names}. Write a literal brace twice."
            ) from cause

    def fill_all(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """Return every string filled; one that stands for a command line, or for addresses, becomes its words."""
        return tuple(self.fill(word) for text in texts for word in self._words(text))

    def _words(self, text: str) -> list[str]:
        if match := URLS.fullmatch(text):
            return list(self.values["urls"][match[1]])
        if match := OPTIONS.fullmatch(text):
            found = entries(self.values["settings"][match[1]])
            return [f"--{name}={value}".replace("{", "{{").replace("}", "}}") for name, value in found.items()]
        match = WORDS.fullmatch(text)
        return shlex.split(self.values["settings"][match[1]]) if match else [text]


def _placeholder(name: str, value: object) -> str:
    return f"{name}[{'|'.join(map(str, value))}]" if isinstance(value, Mapping) else name


def printed(settings: Mapping[str, Value]) -> dict[str, str]:
    """Return settings as text for a command line: true and false for booleans, empty for None."""
    return {
        name: "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }


def switches(settings: Mapping[str, Value]) -> dict[str, str]:
    """Return boolean settings as switches of a command line: --some-name or --no-some-name."""
    return {
        name: f"--{'' if value else 'no-'}{name.replace('_', '-')}"
        for name, value in settings.items()
        if isinstance(value, bool)
    }
