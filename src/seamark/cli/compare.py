"""bench compare: levels of a scenario, or two results, by exact tests with a verdict each."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from seamark.cli.options import names_argument, option, options, require_unread, scenario_site_option, share_of
from seamark.errors import UserError

TABLES = (".csv", ".parquet")


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """What is compared, by which margins, and how the comparison is written."""

    baseline: tuple[str, ...] = option(
        metavar="LEVEL", help="Baseline of a factor, as LEVEL or FACTOR=LEVEL. Default: the first level."
    )
    metric: tuple[str, ...] = option(
        metavar="NAME", help="Metric, such as throughput or latency_ms.p99. Repeatable. Default: by component."
    )
    margin: float | None = option(
        metavar="RATIO", help="Equivalent: surely within this of each other. Default: 0.05."
    )
    quality_margin: float | None = option(
        metavar="SCORE", help="The same for scores of the same items. Default: the scenario's."
    )
    between: str | None = option(
        metavar="SHARE",
        help="Assumed standard deviation between two results, if the history has fewer than five. Default: 5%.",
    )
    form: Literal["text", "markdown", "json"] = option(
        "--format", default="text", help="markdown: a table for a merge request."
    )
    changed: Path | None = option(
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Write the items with another score to this .csv or .parquet.",
    )
    fail_on: tuple[str, ...] = option(
        type=click.Choice(["worse", "inconclusive"]),
        help="Exit code 1 if a comparison of the family has this verdict. Repeatable.",
    )


@click.command("compare")
@names_argument("SCENARIO|BASE [NEW]", most=2, needed="a scenario or a folder of results")
@scenario_site_option
@options(CompareOptions)
def command(names: tuple[str, ...], site: str | None, asked: CompareOptions) -> int:
    """Compare the levels of a scenario, or two results, and say better, worse, equivalent or inconclusive.

    One name: each level of a factor is compared with the baseline of the factor, all others fixed. Two names
    (scenarios or folders of results): treatments with equal settings are compared. Two results were not measured in
    turns, so there is no p: better or worse lies beyond the margin, widened by how much results differ.

    \b
    Examples:
      bench compare config/scenarios/quickstart.yaml
      bench compare my_scenario --baseline shared_buffers_mb=16 --metric throughput
      bench compare results/before results/after --format markdown
      bench compare main branch --between 3% --fail-on worse
      bench compare my_evaluation --quality-margin 0.01 --changed changed.csv
    """
    from seamark.analysis.comparison.two_results import ASSUMED_SD
    from seamark.housekeeping.compared_results import (
        baseline_of,
        compare_levels,
        compare_results,
        comparing_of,
        results_named,
        write_changed,
    )
    from seamark.planning.study import results_of
    from seamark.report.comparison import comparison_lines, comparison_markdown
    from seamark.storage.codec import encode

    base, new = names[0], names[1] if len(names) > 1 else None
    margin, quality_margin, between, changed = asked.margin, asked.quality_margin, asked.between, asked.changed
    if margin is not None and not 0 < margin < 1:
        raise UserError(f"--margin {margin:g}: give a ratio between 0 and 1, such as 0.05 for 5 %.")
    if quality_margin is not None and quality_margin <= 0:
        raise UserError(f"--quality-margin {quality_margin:g}: give a number above 0, in units of the score.")
    spread = None if between is None else share_of(between)
    if between is not None and (spread is None or spread >= 1 or new is None):
        raise UserError(f"--between {between}: give a share below 1, such as 5%, with two results.")
    if changed is not None and changed.suffix not in TABLES:
        raise UserError(f"--changed {changed}: name a file that ends in {' or '.join(TABLES)}.")
    first = results_named(Path.cwd(), base, site)
    sides = (first, first)
    if new is None:
        found = compare_levels(
            first,
            comparing_of(first.plan, asked.metric, margin, baseline_of(first.plan, asked.baseline), quality_margin),
            declared=first.plan.compare is not None or bool(asked.metric or asked.baseline or asked.fail_on),
        )
    else:
        other = results_named(Path.cwd(), new, site)
        if first.folder.root.resolve() == other.folder.root.resolve():
            raise UserError(f"{base} and {new} are the same results. Name two, or one alone to compare its levels.")
        if asked.baseline:
            raise UserError(
                f"--baseline {asked.baseline[0]}: of two results the first is the baseline. The option chooses a"
                " level of one scenario."
            )
        sides = (first, other)
        comparing = comparing_of(first.plan, asked.metric, margin, {}, quality_margin)
        results = results_of(Path.cwd(), site or "local")
        found = compare_results(first, other, comparing, results, ASSUMED_SD if spread is None else spread)
    if changed is not None:
        require_unread(changed, "--changed", *(path for side in sides for path in side.folder.inputs()))
        write_changed(changed, found, sides)
    if asked.form == "json":
        click.echo(json.dumps(encode(found), indent=1))
    else:
        click.echo("\n".join(comparison_lines(found)) if asked.form == "text" else comparison_markdown(found))
    return int(any(comparison.verdict in asked.fail_on for comparison in found.judged))
