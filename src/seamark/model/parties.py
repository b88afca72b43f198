"""Trials of several parties: the service that stands for all of them, and the settings of the whole."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from seamark.model.annotations import limited
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
GPU_SHARING = Setting(
    name="gpu_sharing",
    type="str",
    role="deployment",
    help="How parties share GPUs: exclusive, time_sliced, {mps: {threads: 50}} or {mig: 3g.20gb}, proved during the "
    "load. Default: each GPU belongs to one party, and which one it used is not proved.",
)
KEEP_BUSY = Setting(
    name="keep_busy",
    type="bool",
    role="workload",
    default=False,
    help="A party whose requests or items run out early begins anew, until the others have ended. Else the measured "
    "window ends there for all.",
)
OF_THE_WHOLE = (SETS, PLACEMENT, GPU_SHARING, KEEP_BUSY)

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


Sharing = Literal["exclusive", "time_sliced", "mps", "mig"]
SHARING_TEXT = re.compile(r"exclusive|time_sliced|mps:(100|[1-9]\d?)|mig:((?:\d+c\.)?\d+g\.\d+gb(?:[+-][a-z.]+)*)")
"""A level of `gpu_sharing` as text: the word, and what the mapping has after a colon."""


@dataclass(frozen=True, kw_only=True)
class Mps:
    """What `{mps: ...}` has: the percentage of a GPU's threads that a process of a party may use."""

    threads: int = limited(100, minimum=1, maximum=100, unit="%")


@dataclass(frozen=True, kw_only=True)
class GpuSharing:
    """A level of `gpu_sharing`. `threads` is the percentage of a GPU's threads for a process under MPS, None for all;
    `profile` that of the MIG slices. A party's own has the UUIDs of its `devices`, GPUs or slices, and under MPS the
    folder of the daemon's `pipes`."""

    way: Sharing
    threads: int | None = None
    profile: str | None = None
    devices: tuple[str, ...] = ()
    pipes: str | None = None

    @classmethod
    def of(cls, level: Value) -> "GpuSharing | None":
        """Return what a level asks for, None for null. Raises ValueError for a text of another form."""
        if level is None:
            return None
        match = SHARING_TEXT.fullmatch(str(level))
        if match is None:
            raise ValueError(f"'{level}' is no way to share GPUs")
        way = cast("Sharing", match[0].partition(":")[0])
        return cls(way=way, threads=int(match[1]) if match[1] else None, profile=match[2])

    @property
    def in_common(self) -> bool:
        """Whether several parties have the same GPUs."""
        return self.way in ("time_sliced", "mps")


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
