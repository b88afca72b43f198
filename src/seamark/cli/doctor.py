"""bench doctor: checks whether this machine can measure."""

from contextlib import suppress
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from seamark.cli.options import StudyOptions, json_option, scenario_option
from seamark.cli.output import print_json, terminal
from seamark.errors import UserError
from seamark.model.plugin import parts
from seamark.planning.study import Study

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seamark.trials.self_test import FigureErrors, PluginTest

VERDICTS = {"right": "[green]right[/]", "wrong": "[bold red]wrong[/]"}
STYLE = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@click.command("doctor")
@scenario_option
@json_option
@click.option("--calibrate", is_flag=True, help="Measure the limits of the load generator here (20 s).")
@click.option(
    "--self-test",
    is_flag=True,
    help="Check the load generator against the reference server, and what plugins know beforehand.",
)
def command(where: StudyOptions, as_json: bool, calibrate: bool, self_test: bool) -> int:
    """Check the machine and the site: missing parts, sources of distortion, and their remedies.

    \b
    Examples:
      bench doctor
      bench doctor --calibrate
      bench doctor --self-test
      bench doctor --site meluxina
    """
    from seamark.housekeeping.doctor import examine

    if self_test:
        tested = None
        with suppress(UserError):  # what is tested is the generator: no study is needed for that
            tested = where.open_any()
        return _self_test(as_json, tested)
    study = where.open_any()
    if calibrate:
        from seamark.trials.calibration import calibrate as measure

        measure(study.results, pinning=study.site.pinning)
    findings = examine(study)
    if as_json:
        print_json(findings=[vars(finding) for finding in findings])
    else:
        table = Table("", "", "seen", "remedy", box=None, pad_edge=False)
        for finding in findings:
            table.add_row(
                f"[{STYLE[finding.level]}]{finding.level}[/]",
                *map(Text, (finding.what, finding.seen, finding.remedy)),
            )
        terminal().print(table)
    return 3 if any(finding.level == "problem" for finding in findings) else 0


def _self_test(as_json: bool, study: Study | None) -> int:
    from seamark.trials.self_test import self_test

    found = self_test(pinning="auto" if study is None else study.site.pinning)
    tests: list[PluginTest] = [test(study) for test in parts("self_test")]
    if as_json:
        rows = [vars(errors) | {"right": errors.right, "well": errors.well} for errors in found]
        print_json(loads=rows, **{test.name: test.rows for test in tests})
    else:
        console = terminal()
        console.print("Client's time minus server's time (p50 / p99), and schedule lag (p99):")
        console.print(loads_table(found))
        for test in tests:
            console.print(_plugin_table(test))
    return 0 if all(errors.right for errors in found) and all(test.right for test in tests) else 3


def loads_table(found: "Sequence[FigureErrors]") -> Table:
    """Return the errors of each load, its verdict first, so that a narrow terminal cuts none."""
    table = Table(box=None, pad_edge=False)
    left = ("", "load", "counts")
    for head in ("", "load", "requests", "TTFT ms", "reply ms", "late us", "counts"):
        fold = {"overflow": "fold"} if head == "load" else {"no_wrap": True}
        table.add_column(head, justify="left" if head in left else "right", min_width=0 if head else 5, **fold)
    for errors in found:
        word = "right" if errors.well else "slow" if errors.right else "wrong"
        table.add_row(
            f"[{'green' if errors.well else 'yellow' if errors.right else 'bold red'}]{word}[/]",
            errors.load,
            f"{errors.requests:,}",
            f"{errors.ttft_p50_ms:.2f} / {errors.ttft_p99_ms:.2f}",
            f"{errors.end_p50_ms:.2f} / {errors.end_p99_ms:.2f}",
            "" if errors.lag_p99_us is None else f"{errors.lag_p99_us:,.0f}",
            "wrong" if errors.wrong_tokens + errors.wrong_chunks + errors.failed else "exact",
        )
    return table


def _plugin_table(found: "PluginTest") -> "Table | str":
    """Return what the self-test of a plugin found, or why it did not run."""
    if found.rows is None:
        return found.not_run
    heads = list(found.rows[0]) if found.rows else []
    table = Table(box=None, pad_edge=False, title=found.title, title_justify="left")
    for head in heads:
        number = all(type(row[head]) in (int, float) for row in found.rows)
        table.add_column("" if head == "verdict" else head.replace("_", " "), justify="right" if number else "left")
    for row in found.rows:
        table.add_row(*(VERDICTS.get(str(value), str(value)) for value in row.values()))
    return table
