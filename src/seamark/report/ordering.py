"""Order of services, treatments and factors in tables and figures, and the servers that trials were measured on."""

from collections.abc import Mapping, Sequence
from typing import Any

from seamark.model.plurals import counted
from seamark.model.service import Value
from seamark.patterns.table import LOAD_SETTINGS
from seamark.report.numbers import ABSENT

SERVER = "server"
"""Column of the server, among the factors."""
DIGITS = 8
NOT_RECORDED = "server identity not recorded"

Document = Mapping[str, Any]


def mixed(summary: Document) -> bool:
    """Return whether trials of one service were measured on several servers, unknown ones included."""
    services = [server["service"] for server in summary.get("servers") or ()]
    return len(services) > len(set(services))


def marks(summary: Document) -> dict[str, str]:
    """Return the server of each treatment, `A` or `A + B`; empty unless there are several."""
    if not mixed(summary):
        return {}
    names = {
        str(each["treatment"]): sorted(filter(None, set(each["trial_servers"]))) for each in summary["treatments"]
    }
    return {treatment: " + ".join(found) or ABSENT for treatment, found in names.items()}


def trial_marks(summary: Document) -> dict[str, str]:
    """Return the server of each good trial; empty unless there are several."""
    if not mixed(summary):
        return {}
    return {
        trial: name
        for each in summary["treatments"]
        for trial, name in zip(each["trials"], each["trial_servers"], strict=True)
        if name
    }


def about_servers(summary: Document) -> list[tuple[str, str]]:
    """Return the servers as facts for the head of a report; empty without a good trial."""
    servers = summary.get("servers")
    if servers is None and summary.get("ok"):
        return [("Server", NOT_RECORDED)]
    if not servers:
        return []
    if mixed(summary):
        return [("Servers", "; ".join(f"{each['name']}: {_words(each)}" for each in servers))]
    by_place: dict[str, list[str]] = {}
    for each in servers:
        by_place.setdefault(each["place"] or NOT_RECORDED, []).append(_digest(each))
    return [("Server", "; ".join(f"{place}{_identities(digests)}" for place, digests in by_place.items()))]


def mixture(summary: Document) -> str | None:
    """Return a warning about several servers, None for one."""
    if not mixed(summary):
        return None
    named = "; ".join(f"{each['name']}: {_words(each)}" for each in summary["servers"])
    return f"These trials were measured on several servers, marked in the column `{SERVER}`. {named}."


def _words(server: Document) -> str:
    trials = counted(int(server["trials"]), "trial")
    if server["place"] is None:
        return f"{server['service']}, {NOT_RECORDED}, {trials}"
    return f"{server['service']} on {server['place']}, identity {str(server['digest'])[:DIGITS]}, {trials}"


def _digest(server: Document) -> str:
    return f"{server['service']} {str(server['digest'])[:DIGITS]}" if server["digest"] else ""


def _identities(digests: Sequence[str]) -> str:
    known = [digest for digest in digests if digest]
    return f", identity: {', '.join(known)}" if known else ""


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


def numeric(levels: Sequence[Value]) -> bool:
    """Return whether all levels are numbers."""
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in levels)


def levels_of(treatments: Sequence[Document]) -> dict[str, tuple[Value, ...]]:
    """Return each factor that varies within a workload with its levels: numbers by size, words as they come.

    The server is among them wherever it is told, so that a table says of which one it is.
    """
    found: dict[str, dict[Value, None]] = {}
    for treatment in treatments:
        for name, value in (treatment.get("factors") or {}).items():
            found.setdefault(name, {})[value] = None
    return {
        name: tuple(sorted(values, key=lambda v: float(v or 0)) if numeric(tuple(values)) else values)
        for name, values in found.items()
        if len(values) > 1 or name == SERVER
    }
