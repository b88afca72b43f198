"""bench check: an execution log checked for overlaps and contradictions."""

from pathlib import Path

import click

from seamark.cli.options import require_unread
from seamark.errors import UserError
from seamark.model.plurals import counted

SHOWN = 10
"""Lines about what is wrong; the others are counted."""


@click.command("check")
@click.argument("log", type=click.Path(path_type=Path), default=Path("baseline_execution_log.json"))
@click.option("--save-report", is_flag=True, help="Write what is wrong to LOG_conflicts_report.json.")
@click.option("--quiet", is_flag=True, help="Print only PASS or FAIL.")
@click.option("--config", "system", type=click.Path(path_type=Path), help="Models and workflows of the log.")
@click.option("--requests", type=click.Path(path_type=Path), help="Requests of the log.")
def command(log: Path, save_report: bool, quiet: bool, system: Path | None, requests: Path | None) -> int:
    """Check an execution log of `bench baseline` or `bench simulate`, or executions.parquet of a simulated trial.

    No GPU has two executions at a time, all fields are there, times agree with each other, and GPUs are consecutive.
    With --config and --requests also: each node was executed once, after its predecessors and its request's arrival,
    on the right number of GPUs, and each switch of a model took its time.

    \b
    Examples:
      bench check baseline_execution_log.json --save-report
      bench check --config system_config.yaml --requests workflow_requests.yaml

    Exit code 1 for a log with mistakes, 2 for a file that cannot be read.
    """
    from seamark.storage.codec import encode
    from seamark.storage.documents import write_json
    from seamark_simulate.config.workloads.table import read_workload
    from seamark_simulate.simulation.checker import check_log, check_rules
    from seamark_simulate.simulation.machine import Machine

    if system is not None and requests is None:
        raise UserError("--config: needs --requests too. Give both files, or neither.")
    path = log.parent / f"{log.stem}_conflicts_report.json"
    if save_report:
        require_unread(path, "--save-report")
    document = _document(log)
    result = check_log(document)
    if requests is not None:
        inputs = read_workload(system, requests)
        if result.gpus:
            inputs = inputs.fitting(Machine(gpus=result.gpus))
        check_rules(result, document, inputs.system, inputs.requests)
    conflicts, others = len(result.conflicts), len(result.problems)
    verdict = (
        f"PASS: {result.executions:,} executions without conflicts"
        if result.passed
        else f"FAIL: {counted(conflicts, 'conflict')}, {counted(others, 'other mistake')}"
    )
    if not quiet:
        wrong = [*(conflict.text for conflict in result.conflicts), *result.problems]
        more = len(wrong) - SHOWN
        for line in wrong[:SHOWN]:
            click.echo(line)
        if more > 0:
            click.echo(f"... and {more:,} more{'' if save_report else '; --save-report writes all of them'}")
    click.echo(verdict)
    if save_report:
        report = {
            "source_file": log.name,
            "total_conflicts": conflicts,
            "conflicts": encode(result.conflicts),
            "problems": result.problems,
            "summary": {"executions": result.executions, "passed": result.passed, "other_mistakes": others},
        }
        write_json(path, report)
        if not quiet:
            click.echo(f"Report: {path}")
    return 0 if result.passed else 1


def _document(log: Path) -> dict[str, object]:
    """Return the execution log in a file: a JSON object, or that of executions.parquet. Raises UserError."""
    from seamark.patterns.packed import unpacked
    from seamark.storage.codec import parse_object

    if log.suffix == ".parquet" and log.is_file():
        return _document_of_trial(log)
    try:
        with unpacked(log) as file:
            return parse_object(file.read().decode())
    except FileNotFoundError:
        text = "no such file. Name an execution log; `bench baseline` writes baseline_execution_log.json."
        raise UserError(f"{log}: {text}") from None
    except OSError as error:
        raise UserError(f"{log}: cannot be read: {error.strerror}.") from None
    except ValueError as error:
        hint = " To check a scenario: `bench plan -c FILE`." if log.suffix in (".yaml", ".yml") else ""
        raise UserError(f"{log}: is no execution log: {error}.{hint}") from None


def _document_of_trial(path: Path) -> dict[str, object]:
    """Return the execution log of a simulated trial. Raises UserError."""
    from seamark.analysis.metrics.samples import DamagedError
    from seamark.storage.codec import encode
    from seamark_simulate.trials.execution_file import log_of_file

    try:
        document: dict[str, object] = encode(log_of_file(path))
    except DamagedError as damage:
        remedy = "`bench submit` simulates the trial again where the file has another size; else `bench retry TRIAL`."
        raise UserError(f"{path}: {damage}. {remedy}") from None
    return document
