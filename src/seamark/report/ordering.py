"""The order in which services, treatments and factors are shown: the same in every report and on the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from seamark.model.load_profile import LOAD_SETTINGS
from seamark.model.service import Value
from seamark.report.servers import SERVER, marks

COMPONENTS = ("storage", "vectordb", "inference")

Treatment = Mapping[str, Any]
Levels = Mapping[str, Sequence[Value]]


def in_order(summary: Mapping[str, Any], levels: Levels | None = None) -> list[dict[str, Any]]:
    """Return a summary's treatments by component, service, workload and level.

    Factors of the service stand before those of the load. Where there are several servers, each treatment has its own
    as the factor `server`, so that no table or figure has both without a mark. Numbers are sorted by size, words as
    `levels` lists them.
    """
    load = [setting.name for setting in LOAD_SETTINGS]
    treatments, servers = [], marks(summary)
    for treatment in summary.get("treatments") or ():
        own = {SERVER: servers[str(treatment["treatment"])]} if servers else {}
        factors = own | dict(treatment.get("factors") or {})
        names = sorted(factors, key=lambda name: load.index(name) if name in load else -1)
        treatments.append({**treatment, "factors": {name: factors[name] for name in names}})
    workloads = list(dict.fromkeys(str(treatment["workload"]) for treatment in treatments))

    def place(treatment: Treatment) -> tuple[int, str, int, list[tuple[float, float, str]]]:
        component = treatment.get("component")
        return (
            COMPONENTS.index(component) if component in COMPONENTS else len(COMPONENTS),
            str(treatment["service"]),
            workloads.index(str(treatment["workload"])),
            [_level_place(name, value, levels or {}) for name, value in treatment["factors"].items()],
        )

    return sorted(treatments, key=place)


def _level_place(name: str, value: Value, levels: Levels) -> tuple[float, float, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (0.0, float(value), "")
    listed = list(levels.get(name) or ())
    return (1.0, float(listed.index(value)) if value in listed else float(len(listed)), str(value))
