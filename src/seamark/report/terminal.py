"""The summary as a table for a terminal, at the end of `bench submit`."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from seamark.report.numbers import ABSENT, level, number, percent, span, unit_words

COLOURS = {"VALID": "green", "SUSPECT": "yellow", "INVALID": "red"}


def summary_table(summary: Mapping[str, Any]) -> Table:
    """Return a row for each treatment of a summary.json document; a number that is withheld is an en dash."""
    table = Table(title=None, header_style="bold", pad_edge=False, box=None, padding=(0, 1))
    table.add_column("workload", overflow="fold")
    table.add_column("factors", overflow="fold")
    for head in ("throughput", "min – max"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("unit")
    for head in ("p50 ms", "p95 ms", "p99 ms", "err %"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("ok", justify="right")
    table.add_column("verdict")
    last = None
    for treatment in summary.get("treatments") or ():
        throughput, latency = treatment.get("throughput") or {}, treatment.get("latency_ms") or {}
        verdict = str(treatment.get("verdict") or "INVALID")
        factors = " ".join(f"{name}={level(value, name)}" for name, value in (treatment.get("factors") or {}).items())
        workload = str(treatment["workload"])
        if last is not None and workload != last:
            table.add_section()
        table.add_row(
            Text("" if workload == last else workload),
            Text(factors or ABSENT),
            number(throughput.get("median")),
            span(throughput.get("min"), throughput.get("max")),
            Text(unit_words(throughput.get("unit"))),
            *(number(latency.get(name)) for name in ("p50", "p95", "p99")),
            percent((treatment.get("errors") or {}).get("rate")),
            f"{treatment.get('repetitions', 0)}/{treatment.get('planned', ABSENT)}",
            Text(verdict, style=COLOURS.get(verdict, "")),
        )
        last = workload
    return table
