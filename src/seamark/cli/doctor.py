"""bench doctor: checks whether this machine can measure."""

from contextlib import suppress
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from seamark.cli.options import StudyOptions, json_option, scenario_option
from seamark.cli.output import print_json, terminal
from seamark.errors import UserError
from seamark.planning.study import Study

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seamark.trials.reader_self_test import KnownAnswers
    from seamark.trials.self_test import Errors

STYLE = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@click.command("doctor")
@scenario_option
@json_option
@click.option("--calibrate", is_flag=True, help="Measure the limits of the load generator here (20 s).")
@click.option(
    "--self-test",
    is_flag=True,
    help="Check the load generator against the reference server, and known answers of a model.",
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
    from seamark.trials.reader_self_test import reader_self_test
    from seamark.trials.self_test import self_test

    found = self_test(pinning="auto" if study is None else study.site.pinning)
    answers = reader_self_test(study)
    if as_json:
        rows = [vars(errors) | {"right": errors.right, "well": errors.well} for errors in found]
        known = None if answers is None else [vars(each) for each in answers]
        print_json(loads=rows, known_reader=known)
    else:
        console = terminal()
        console.print("Client's time minus server's time (p50 / p99), and schedule lag (p99):")
        console.print(loads_table(found))
        console.print(_known_answers(answers))
    return 0 if all(errors.right for errors in found) and all(each.all_known for each in answers or ()) else 3


def loads_table(found: "Sequence[Errors]") -> Table:
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


def _known_answers(answers: "Sequence[KnownAnswers] | None") -> "Table | str":
    """Return the answers of the known reader as a table, or why it was not asked."""
    if answers is None:
        return (
            "Known reader: not asked. It needs the environment 'evaluation':"
            " bench prepare -c config/scenarios/sparse_attention_local.yaml"
        )
    table = Table(box=None, pad_edge=False, title="Answers of the known reader", title_justify="left")
    for head in ("method", "questions", "right", "as known", ""):
        table.add_column(head, justify="right" if head in ("questions", "right", "as known") else "left")
    for each in answers:
        word = "[green]right[/]" if each.all_known else "[bold red]wrong[/]"
        table.add_row(each.method, f"{each.questions}", f"{each.right}", f"{each.as_known}", word)
    return table
