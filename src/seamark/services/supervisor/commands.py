"""What a keeper executes to start a server, and the templates it is made from. Starts nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seamark.errors import UserError
from seamark.model.service import Value


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One server, ready to be started: argument vectors, the whole environment, and who it runs as.

    `setup` commands run before it, one after another, as the same user. `user` is None for our own; `prefix` are the
    words before each command that make it run as that user.
    """

    command: tuple[str, ...]
    setup: tuple[tuple[str, ...], ...]
    health_command: tuple[str, ...]
    environment: Mapping[str, str]
    user: str | None = None
    prefix: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ProcessSlot:
    """Where one process of a deployment runs, and what it has to know of the others.

    `host` is its node's address, `ports` are its own and those that all know; `addresses` are those of the parts'
    first nodes, by part. `nodes` is how many nodes the server has.
    """

    node: str
    host: str
    ports: Mapping[str, int]
    nodes: int = 1
    addresses: Mapping[str, str] = field(default_factory=dict)


class Template:
    """Fills `{name}` and `{name[key]}` in a recipe's strings."""

    def __init__(self, service: str, values: Mapping[str, Any]) -> None:
        self.service = service
        self.values = dict(values)

    def fill(self, text: str) -> str:
        """Return `text` with its names put in. UserError names the recipe, the string and what is known."""
        try:
            return text.format(**self.values)
        except (KeyError, IndexError, ValueError, AttributeError) as cause:
            known = ", ".join("{" + _shown(name, value) + "}" for name, value in sorted(self.values.items()))
            raise UserError(
                f"service '{self.service}': cannot fill in '{text}': {type(cause).__name__} {cause}."
                f" Known here: {known}. A brace that is meant as such is written twice."
            ) from cause

    def fill_all(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """Return every string filled."""
        return tuple(self.fill(text) for text in texts)


def _shown(name: str, value: object) -> str:
    return f"{name}[{'|'.join(map(str, value))}]" if isinstance(value, Mapping) else name


def printed(settings: Mapping[str, Value]) -> dict[str, str]:
    """Return settings as servers take them on a command line: true and false, nothing for None."""
    return {
        name: "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }


def switches(settings: Mapping[str, Value]) -> dict[str, str]:
    """Return settings that are true or false as switches of a command line: --some-name or --no-some-name."""
    return {
        name: f"--{'' if value else 'no-'}{name.replace('_', '-')}"
        for name, value in settings.items()
        if isinstance(value, bool)
    }
