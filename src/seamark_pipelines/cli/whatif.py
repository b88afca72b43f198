"""bench whatif: p99 and throughput of pipelines if one of their stages were faster."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import click

from seamark.cli.options import StudyOptions, scenario_option
from seamark.config.extends import load_merged
from seamark.config.yaml_source import Mistakes
from seamark.errors import Mistake, UserError, did_you_mean
from seamark.model.plurals import in_percent
from seamark.model.results.comparison import Compared, Comparisons
from seamark.report.comparison import reason_text, verdict_text
from seamark.report.numbers import ABSENT, aligned, level, levels_text
from seamark_pipelines.cli.colocate import measured, yaml_of
from seamark_pipelines.config.read import read_pipelines
from seamark_pipelines.config.workload import SERVICES
from seamark_pipelines.flow.virtual_clock import LATE
from seamark_pipelines.model.graph import FASTER, FASTER_STAGE, PipelineModel

GENERATED = Path(".seamark", "whatif")
METRICS = ("latency_ms.p50", "latency_ms.p99", "throughput")
"""The median as well: p99 needs 1,000 queries."""
MOST_PERCENT = 99


@click.command("whatif")
@scenario_option
@click.option("--stage", required=True, metavar="NAME", help="The stage: its name or id.")
@click.option(
    "--faster", default="10,30", show_default=True, metavar="LIST", help="By how many percent its runs are shorter."
)
@click.option("-n", "--dry-run", is_flag=True, help="Show the scenario, and measure nothing.")
def command(where: StudyOptions, stage: str, faster: str, dry_run: bool) -> Any:
    """Tell what times and throughput of pipelines would be if one stage were faster.

    While the stage runs, the clock of the trial goes slower, and all other runs take their whole time by it. The
    scenario that this makes lies in .seamark/whatif; `bench report -c` and other verbs take it.

    \b
    Examples:
      bench whatif -c config/scenarios/rag.yaml --stage retriever --faster 10,30
      bench whatif rag --stage Generator --faster 50 -n
    """
    study = where.open()
    tree = load_merged(study.scenario_path, Mistakes())
    assert tree is not None, "it was read before"
    scenario, left_out = scenario_of(tree.plain, stage, levels_of(faster))
    path, text = GENERATED / f"{scenario['scenario']}.yaml", yaml_of(scenario)
    for line in left_out:
        click.echo(line, err=True)
    if dry_run:
        click.echo(f"# {path}\n{text}", nl=False)
        return 0
    code = measured(path, text, where.site)
    from seamark.housekeeping.compared_results import compare_levels, comparing_of, results_named

    results = results_named(Path.cwd(), str(path), where.site)
    shares: dict[str, list[float]] = {}
    for view in results.views:
        if view.good is not None and (share := view.good.quality.get(LATE)) is not None:
            shares.setdefault(view.treatment, []).append(share)
    found = compare_levels(results, comparing_of(results.plan, (), None, {}))
    click.echo("\n".join(lines_of(found, {name: median(of_one) for name, of_one in shares.items()})))
    return code


def levels_of(text: str) -> list[float]:
    """Return the percentages of `10,30`, without 0. Raises UserError."""
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not any(found) or not all(0 <= percent <= MOST_PERCENT for percent in found):
        wrong = f"'{text}': write percentages from 0 to {MOST_PERCENT}, with commas, such as 10,30."
        raise UserError(Mistake(code="out_of_limits", path="--faster", text=wrong))
    return [percent for percent in dict.fromkeys(found) if percent]


def scenario_of(document: Mapping[str, Any], stage: str, levels: Sequence[float]) -> tuple[dict[str, Any], list[str]]:
    """Return the scenario in which a stage is faster by these percentages and by 0, and a line for each workload that
    is left out. Raises UserError if no workload has the stage."""
    workloads = [document["workload"]] if "workload" in document else document["workloads"]
    models = [dict(_models_of(workload)) for workload in workloads]
    every = [model for of_one in models for several in of_one.values() for model in several]
    chosen = next((found for model in every if (found := model.named(stage)) is not None), None)
    if chosen is None:
        names = list(dict.fromkeys(known.name for model in every for known in model.stages))
        text = f"no pipeline of the scenario has a stage '{stage}': {', '.join(names) or 'it has no pipeline alone'}."
        raise UserError(Mistake(code="unknown_name", path="--stage", text=f"{text}{did_you_mean(stage, names)}"))
    made, left_out = [], []
    for workload, of_one in zip(workloads, models, strict=True):
        kept = [name for name, several in of_one.items() if all(model.named(chosen.slug) for model in several)]
        gone = [name for name in of_one or {None: []} if name not in kept]
        why = f"has no stage '{chosen.name}'" if of_one else "is no pipeline that is measured alone"
        other = workload.get("name", workload.get("service", "parties"))
        left_out += [f"Left out: {name or other}, which {why}." for name in gone]
        if kept:
            pipelines = {} if kept == [None] else {"pipeline": kept}
            made.append({**workload, **pipelines, FASTER: [0.0, *levels], FASTER_STAGE: chosen.slug})
    name = f"{document['scenario'][: 56 - len(chosen.slug)]}_faster_{chosen.slug}"
    compare = {"family": [FASTER], "metrics": list(METRICS)}
    base = {key: value for key, value in document.items() if key not in ("scenario", "extends", "workload")}
    return {"scenario": name, **base, "workloads": made, "compare": compare}, left_out


def _models_of(workload: Mapping[str, Any]) -> Iterator[tuple[str | None, list[PipelineModel]]]:
    """Yield the pipelines that a workload names, each as it is in all of its files; nothing for other services."""
    if workload.get("service") in SERVICES:
        names, graphs = workload.get("pipeline"), workload["graph"]
        files = [read_pipelines(Path(graph)) for graph in (graphs if isinstance(graphs, list) else [graphs])]
        for name in names if isinstance(names, list) else [names]:
            yield name, [model for file in files if (model := file.pipeline(name)) is not None]


def lines_of(comparisons: Comparisons, late: Mapping[str, float]) -> list[str]:
    """Return a table of the effects with a row for each level, then the reasons of its verdicts. `late` has the share
    of the pauses in which another stage went on, by treatment."""
    rows: dict[str, list[str]] = {}
    reasons: dict[str, None] = {}
    for compared in comparisons.comparisons:
        treatment = compared.new.treatment or ""
        if compared.factor != FASTER:
            continue
        if treatment not in rows:
            share = ABSENT if treatment not in late else in_percent(late[treatment])
            at = levels_text(compared.fixed) or compared.workload
            rows[treatment] = [at, f"{level(compared.new.level)} %", share]
        rows[treatment] += [_change_text(compared), verdict_text(compared)]
        reasons[reason_text(compared)] = None
    head = ["", "faster", "not paused", *(cell for metric in METRICS for cell in (metric, "verdict"))]
    return [*aligned([head, *rows.values()]), *filter(None, reasons)]


def _change_text(compared: Compared) -> str:
    """Return the change of a metric as `-12 % (-14 to -10)`."""
    effect = compared.ratio
    if effect is None:
        return ABSENT
    value, *ends = (f"{100 * (end - 1):+.3g}" for end in (effect.value, effect.low, effect.high) if end is not None)
    return f"{value} % ({' to '.join(ends)})" if len(ends) == 2 else f"{value} %"
