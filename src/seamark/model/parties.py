"""Trials of several parties: the service that stands for all of them, and the settings of the whole."""

import re
from collections.abc import Mapping, Sequence

from seamark.model.service import Service, Setting, Value

BURNER = "burner"
"""The component of services that only keep a resource busy: `pairs` and `all` leave them out."""
SEPARATOR = "+"
"""Between the names of the parties in a set, as `search+ingest`."""
SETS = Setting(
    name="sets",
    type="str",
    role="workload",
    help="Parties that are under load at the same time: lists of their names, or alone, pairs and all for all sets "
    "of one, two and all parties, burners left out, and burners for each party beside each burner. Default: "
    "[alone, all].",
)
PLACEMENT = Setting(
    name="placement",
    type="str",
    role="deployment",
    default="shared",
    help="How cores, threads, priority and GPUs are divided among the parties: shared, split, pinned or priority, or "
    "a function of your own by its dotted path.",
)
KEEP_BUSY = Setting(
    name="keep_busy",
    type="bool",
    role="workload",
    default=False,
    help="A party whose requests or items run out early begins anew, until the others have ended. Else the measured "
    "window ends there for all.",
)
OF_THE_WHOLE = (SETS, PLACEMENT, KEEP_BUSY)

PARTIES = Service(
    name="parties",
    component="pipeline",
    summary="Several services under load at the same time",
    version="1",
    licence="Apache-2.0",
    driver="",
    workers="processes",
    settings=OF_THE_WHOLE,
)
"""The service of a deployment with members, and of its trials. It has no recipe: each party has one."""


def set_of(names: Sequence[str]) -> str:
    """Return the level of `sets` that stands for some parties."""
    return SEPARATOR.join(names)


def names_in(level: str) -> tuple[str, ...]:
    """Return the parties of a level of `sets`."""
    return tuple(level.split(SEPARATOR))


SERVER = re.compile(r"\{server\[(\w+)\]\}")
"""In a text setting of a party: the address, HOST:PORT, of the server of another one, which its load uses as well."""


def servers_named(settings: Mapping[str, Value]) -> set[str]:
    """Return the parties whose servers the settings of another one name."""
    return {name for value in settings.values() if isinstance(value, str) for name in SERVER.findall(value)}


def with_servers(settings: Mapping[str, Value], addresses: Mapping[str, str]) -> dict[str, Value]:
    """Return settings with the addresses of the servers that they name."""
    return {
        name: SERVER.sub(lambda match: addresses[match[1]], value) if isinstance(value, str) else value
        for name, value in settings.items()
    }
