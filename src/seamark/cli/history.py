"""bench history: the runs of scenarios over time, their change points, and a gate for the latest one."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from seamark.cli.options import FiniteRange, moment, names_argument, option, options, share_of, site_option
from seamark.errors import UserError, did_you_mean
from seamark.planning.study import results_of, scenario_name

if TYPE_CHECKING:
    from seamark.history.index import Index
    from seamark.history.series import Series

NOTHING_JUDGED = (
    "Nothing was judged: no earlier run on the machine of the latest one. Where each run has another machine, as with"
    " runners of a CI, `machine: NAME` of the site (config/sites) is the name under which they are one."
)
PRESENT = "present"
"""Name of the runs that are not kept."""


@dataclass(frozen=True, kw_only=True)
class HistoryOptions:
    """Which runs are shown, how the latest is judged, and how they are written."""

    metric: tuple[str, ...] = option(metavar="METRIC", help="Path, as latency_ms.p99. Repeatable.")
    treatment: str | None = option(metavar="T", help="Its id, its workload, or levels as concurrency=1.")
    since: str | None = option(metavar="TIME", help="Only runs since 2026-01-31T12:00, or 30d ago.")
    others: tuple[str, ...] = option("--from", metavar="FOLDER", help="Another results folder too. Repeatable.")
    baseline: str | None = option(metavar="RUN", help="Judge the latest run against this run or commit.")
    threshold: tuple[str, ...] = option(
        metavar="[METRIC=]SHARE",
        help="Largest change that counts as none: 5% (default), or throughput=5%. Repeatable.",
    )
    fail_on: Literal["worse", "change"] | None = option(
        help="Exit code 1 if the latest run is past a threshold: worse, or in any direction."
    )
    significance: float = option(
        type=FiniteRange(0.002, 0.5), default=0.01, metavar="P", help="Largest p of a change point."
    )
    runs: bool = option(help="List every run.")
    form: Literal["text", "markdown", "json"] = option("--format", default="text")
    rebuild: bool = option(help="Rebuild the index from the results.")


@click.command("history")
@names_argument("[SCENARIO]", most=1)
@options(HistoryOptions)
@site_option
def command(names: tuple[str, ...], asked: HistoryOptions, site: str) -> int:
    """Show each treatment's runs over time, where their level changed, and how the latest run compares.

    Runs are the present one, runs that `bench keep` set aside, and runs of other results folders. The value of a run
    is the median of its repetitions. Change points need three runs or more on each side. The latest run is judged
    against --baseline, or the median of the earlier runs since the last change point.

    \b
    Examples:
      bench history
      bench history null --metric throughput --treatment concurrency=4 --runs
      bench history null --baseline v1.2 --threshold throughput=5% --threshold latency_ms.p99=20% --fail-on worse
      bench history null --from ../other-study/results --since 30d --format markdown
    """
    from seamark.history.index import open_index, roots_of
    from seamark.history.series import THRESHOLD_RATIO, judge, metric_named, require_baseline
    from seamark.history.text import as_text, document, failures, notes

    scenario = scenario_name(Path.cwd(), names[0]) if names else None
    results, start = results_of(Path.cwd(), site), moment("--since", asked.since)
    roots = roots_of(results, asked.others, PRESENT)
    with open_index(results, rebuild=asked.rebuild) as index:
        scanned = index.update(roots)
        _require_scenario(index, scenario, notes(scanned))
        limits = {
            None if name is None else metric_named(index, name): limit
            for name, limit in map(_threshold, asked.threshold)
        }
        named = tuple(dict.fromkeys(metric_named(index, name) for name in asked.metric))
        found = _found(index, named, scenario, asked.treatment, start)
    if asked.baseline is not None:
        require_baseline(found, asked.baseline)
    judgements = [
        judge(
            series,
            baseline=asked.baseline,
            threshold_ratio=limits.get(series.metric, limits.get(None, THRESHOLD_RATIO)),
            significance=asked.significance,
        )
        for series in found
    ]
    if asked.form == "json":
        click.echo(json.dumps(document(judgements, scanned), indent=1, allow_nan=False))
    else:
        click.echo(as_text(judgements, scanned, every_run=asked.runs, markdown=asked.form == "markdown"))
    failed = failures(judgements, asked.fail_on) if asked.fail_on else []
    for line in failed:
        click.echo(line, err=True)
    if asked.fail_on and all(judgement.judged in ("no reference", "not in latest run") for judgement in judgements):
        click.echo(NOTHING_JUDGED, err=True)
    return 1 if failed else 0


def _require_scenario(index: "Index", scenario: str | None, damaged: Sequence[str]) -> None:
    """Raise UserError without any trial, or for a scenario without one."""
    known = [row["scenario"] for row in index.rows("SELECT DISTINCT scenario FROM trials ORDER BY scenario")]
    if not known:
        raise UserError("bench history: no trial is measured yet. `bench submit` measures a scenario.", *damaged)
    if scenario is not None and scenario not in known:
        raise UserError(
            f"bench history {scenario}: no measured run of a scenario of that name. Known: {', '.join(known)}."
            f"{did_you_mean(scenario, known)}"
        )


def _found(
    index: "Index", metrics: Sequence[str], scenario: str | None, treatment: str | None, start: datetime | None
) -> "list[Series]":
    """Return the series that the options choose. Raises UserError if there are none."""
    from seamark.history.series import DEFAULT_METRICS, chosen, series_of

    found = series_of(index, metrics or DEFAULT_METRICS, scenario)
    if treatment is not None:
        found = chosen(found, treatment)
    if start is not None:
        since = start.isoformat(timespec="seconds")
        parts = ((series, tuple(run for run in series.runs if run.started_at >= since)) for series in found)
        found = [replace(series, runs=runs) for series, runs in parts if runs]
    if not found:
        raise UserError("bench history: no run with figures is left by these options; trials that failed have none.")
    return found


def _threshold(text: str) -> tuple[str | None, float]:
    """Return metric and share of `throughput=5%`, `latency_ms.p99=0.2` or `5%`, which is for all metrics."""
    name, mark, share = text.rpartition("=")
    limit = share_of(share)
    if limit is None or limit > 10 or (mark and not name):
        raise UserError(f"--threshold {text}: give a share such as 5% or 0.05, or METRIC=SHARE as throughput=5%.")
    return (name if mark else None), limit
