"""Order of services, treatments and factors in tables and figures, and the servers that trials were measured on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from seamark.model.plurals import counted
from seamark.model.results.summary import ServerSummary, Summary, SummaryRow
from seamark.model.service import Component, Value
from seamark.model.trial import SERVICE
from seamark.patterns.table import FINITE_SETTINGS, LOAD_SETTINGS
from seamark.report.numbers import ABSENT

SERVER = "server"
"""Column of the server, among the factors."""
ORIGIN = "origin"
"""Column of the origin of trials, among the factors: only where some of a scenario are simulated."""
DIGITS = 8
NOT_RECORDED = "server identity not recorded"


def mixed(summary: Summary) -> bool:
    """Return whether trials of one service were measured on several servers, unknown ones included."""
    services = [server.service for server in summary.servers or ()]
    return len(services) > len(set(services))


def marks(summary: Summary) -> dict[str, str]:
    """Return the server of each treatment, `A` or `A + B`; empty unless there are several."""
    if not mixed(summary):
        return {}
    names = {row.treatment: sorted(filter(None, set(row.trial_servers))) for row in summary.treatments}
    return {treatment: " + ".join(servers) or ABSENT for treatment, servers in names.items()}


def trial_marks(summary: Summary) -> dict[str, str]:
    """Return the server of each good trial; empty unless there are several."""
    if not mixed(summary):
        return {}
    pairs = (pair for row in summary.treatments for pair in zip(row.trials, row.trial_servers, strict=True))
    return {trial: name for trial, name in pairs if name}


def only_simulated(summary: Summary) -> bool:
    """Return whether all trials with a result are simulated."""
    rows = [row for row in summary.treatments if row.repetitions]
    return bool(rows) and all(row.virtual_clock for row in rows)


def simulated_services(summary: Summary) -> list[str]:
    """Return the services whose trials are simulated."""
    return list(dict.fromkeys(row.service for row in summary.treatments if row.virtual_clock))


def about_servers(summary: Summary) -> list[tuple[str, str]]:
    """Return the servers as facts for the head of a report; empty without a good trial."""
    servers = summary.servers
    if servers is None and summary.ok:
        return [("Server", NOT_RECORDED)]
    if not servers:
        return []
    if mixed(summary):
        return [("Servers", "; ".join(f"{server.name}: {_words(server)}" for server in servers))]
    by_place: dict[str, list[str]] = {}
    for server in servers:
        known = by_place.setdefault(server.place or NOT_RECORDED, [])
        known += [f"{server.service} {server.digest[:DIGITS]}"] if server.digest else []
    places = (f"{place}, identity: {', '.join(known)}" if known else place for place, known in by_place.items())
    return [("Server", "; ".join(places))]


def mixture(summary: Summary) -> str | None:
    """Return a warning about several servers, None for one."""
    if not mixed(summary):
        return None
    named = "; ".join(f"{server.name}: {_words(server)}" for server in summary.servers or ())
    return f"These trials were measured on several servers, marked in the column `{SERVER}`. {named}."


def _words(server: ServerSummary) -> str:
    trials = counted(server.trials, "trial")
    if server.place is None:
        return f"{server.service}, {NOT_RECORDED}, {trials}"
    return f"{server.service} on {server.place}, identity {str(server.digest)[:DIGITS]}, {trials}"


COMPONENTS = get_args(Component)

Levels = Mapping[str, Sequence[Value]]


def in_order(summary: Summary, levels: Levels | None = None) -> list[SummaryRow]:
    """Return a summary's treatments by component, service, workload and level.

    Factors of the service stand before those of the load. Where there are several servers, each treatment has its own
    as the factor `server`, so that no table or figure has both without a mark; likewise its `origin` where trials are
    simulated. Numbers are sorted by size, words as
    `levels` lists them.
    """
    load = [setting.name for setting in (*LOAD_SETTINGS, *FINITE_SETTINGS)]
    treatments, servers, simulated = [], marks(summary), simulated_services(summary)
    for row in summary.treatments:
        extra: dict[str, Value] = {ORIGIN: row.origin} if simulated else {}
        extra |= {SERVER: servers[row.treatment]} if servers else {}
        factors = {**extra, **row.factors}
        names = sorted(factors, key=lambda name: load.index(name) if name in load else -1)
        treatments.append(replace(row, factors={name: factors[name] for name in names}))
    workloads = list(dict.fromkeys(row.workload for row in treatments))
    headings = headings_of(treatments)

    def place(row: SummaryRow) -> tuple[int, str, int, list[tuple[float, float, str]]]:
        return (
            COMPONENTS.index(row.component) if row.component in COMPONENTS else len(COMPONENTS),
            headings[row.treatment],
            workloads.index(row.workload),
            [_level_place(name, value, levels or {}) for name, value in row.factors.items()],
        )

    return sorted(treatments, key=place)


def headings_of(treatments: Sequence[SummaryRow]) -> Mapping[str, str]:
    """Return the heading of each treatment: its service, or its workload where services are compared in one."""
    return {row.treatment: row.workload if SERVICE in row.factors else row.service for row in treatments}


def _level_place(name: str, value: Value, levels: Levels) -> tuple[float, float, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (0.0, float(value), "")
    listed = list(levels.get(name) or ())
    return (1.0, float(listed.index(value)) if value in listed else float(len(listed)), str(value))


def numeric(levels: Sequence[Value]) -> bool:
    """Return whether all levels are numbers."""
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in levels)


def levels_of(treatments: Sequence[SummaryRow]) -> dict[str, tuple[Value, ...]]:
    """Return each factor that varies within a workload with its levels: numbers by size, words as they come.

    The server is among them if there are several, and the origin if trials are simulated, so that a table names them.
    """
    levels: dict[str, dict[Value, None]] = {}
    for row in treatments:
        for name, value in row.factors.items():
            levels.setdefault(name, {})[value] = None
    return {
        name: tuple(sorted(values, key=lambda v: float(v or 0)) if numeric(tuple(values)) else values)
        for name, values in levels.items()
        if len(values) > 1 or name in (SERVER, ORIGIN)
    }
