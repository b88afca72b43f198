"""The table of what a workload's treatments cost in energy."""

from collections.abc import Sequence

from seamark.report.canvas import numeric
from seamark.report.content import Cell, Column, Table, absent, known
from seamark.report.grid import levels_of
from seamark.report.numbers import level, number
from seamark.report.source import Document

FIGURES = (("per_request_j", "J/request"), ("per_unit_j", "J/unit"), ("power_w", "W"), ("idle_power_w", "W idle"))
UNKNOWN = "not known: `energy_reason` of the trials' metrics.json says why"
SCOPES = {
    "gpu": "the deployment's GPUs",
    "package": "the node's processors and their memory",
    "node": "the whole node, over the whole load",
}


def energy_table(workload: str, treatments: Sequence[Document], named: bool) -> Table | None:
    """Return a row for each treatment, medians over repetitions; None where no energy is known."""
    scopes = sorted({str(treatment["energy"]["scope"]) for treatment in treatments if treatment.get("energy")})
    if not scopes:
        return None
    levels = levels_of(treatments)
    shown = [(name, unit) for name, unit in FIGURES if any(_median(t, name) is not None for t in treatments)]
    columns = [Column(name=name, numeric=numeric(values)) for name, values in levels.items()]
    columns += [
        Column(name="energy", unit=unit, title="median over the repetitions", numeric=True) for _, unit in shown
    ]
    columns.append(Column(name="of"))
    rows = []
    for treatment in treatments:
        factors, energy = treatment.get("factors") or {}, treatment.get("energy") or {}
        figures = [(_median(treatment, name)) for name, _ in shown]
        rows.append(
            (
                *(Cell(text=level(factors.get(name), name)) for name in levels),
                *(absent(UNKNOWN) if value is None else known(number(value)) for value in figures),
                Cell(text=str(energy["scope"])) if energy else absent(UNKNOWN),
            )
        )
    notes = tuple(f"{scope}: {SCOPES.get(scope, scope)}." for scope in scopes)
    return Table(
        columns=tuple(columns),
        rows=tuple(rows),
        caption=f"{workload}: energy" if named else "Energy",
        footnotes=notes,
    )


def _median(treatment: Document, name: str) -> float | None:
    found = ((treatment.get("energy") or {}).get(name) or {}).get("median")
    return None if found is None else float(found)
