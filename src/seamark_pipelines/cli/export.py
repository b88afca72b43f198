"""bench export colocation: what each pipeline did, in the rows of the original benchmark."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from seamark.cli.options import StudyOptions, output_option, scenario_option
from seamark.errors import UserError
from seamark.model.plurals import counted
from seamark.model.trial import Trial
from seamark.storage.paths import TrialFolder
from seamark_pipelines.config.workload import SERVICES
from seamark_pipelines.model.graph import PipelineModel

QUERY = ["index", "due_ns", "sent_ns", "last_ns"]
Row = tuple[float, int, list[object]]
"""A row by its time: in s since 1970, and in ns from the start of load; without both, its columns."""


@click.command("colocation")
@scenario_option
@output_option("folder", required=True, file_okay=False)
@click.option("--perf", is_flag=True, help="Add ns of a monotonic clock to each row, and rows of first tokens.")
def command(where: StudyOptions, folder: Path, perf: bool) -> None:
    """Write the times of pipelines and stages as CSV, a file for each pipeline of each trial.

    Columns are those of the original benchmark: time, pipeline, stage, phase, start or end; for queries also their
    id, time of submission, epoch and batch. Stages with `disable_logs` are left out.

    \b
    Example:
      bench export colocation -c .seamark/colocate/overhead.yaml -o rows --perf
    """
    study = where.open()
    scenario = study.folder(study.scenario.name)
    trials = [load for trial in study.plan.trials for load in trial.measured if load.service in SERVICES]
    measured = [trial for trial in trials if scenario.trial(trial.id).events.exists()]
    if not measured:
        text = f"no trial of a pipeline is measured yet. `bench submit -c {study.scenario_path}` measures them."
        raise UserError(f"{study.scenario.name}: {text}")
    folder.mkdir(parents=True, exist_ok=True)
    for trial in measured:
        write_rows(trial, scenario.trial(trial.id), folder / f"{study.scenario.name}_{trial.id}.csv", perf=perf)
    click.echo(f"{folder}: {counted(len(measured), 'file')}")


def write_rows(trial: Trial, files: TrialFolder, path: Path, *, perf: bool) -> None:
    """Write the rows of one pipeline's trial, by time."""
    from seamark_pipelines.drivers.pipeline import model_of

    model = model_of(trial.settings)
    with path.open("w", encoding="utf-8", newline="") as out:
        for unix_s, at_ns, columns in sorted(_rows(model, files, perf=perf), key=lambda row: row[:2]):
            cells = [f"{unix_s:.6f}", *map(str, columns), *([str(at_ns)] if perf else [])]
            out.write(", ".join(map(_cell, cells)) + "\n")


def _cell(text: str) -> str:
    """Return a value as the original writes it, in quotes only where they are needed to read the row."""
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n') else text


def _rows(model: PipelineModel, files: TrialFolder, *, perf: bool) -> Iterator[Row]:
    import pyarrow.parquet as pq

    from seamark.model.results.load_record import LoadRecord
    from seamark.model.sample import EventKind
    from seamark.storage.documents import read

    load = read(files.load, LoadRecord)
    epoch_s = (load.epoch_unix_ns or 0) / 1e9
    names = [stage.name for stage in model.stages]
    silent = {stage.name for stage in model.stages if stage.disable_logs}
    log = [json.loads(line) for line in files.log.read_text(encoding="utf-8").splitlines()]
    splits: dict[str, int] = {}
    for line in log:
        unix_s = datetime.fromisoformat(line["at"]).timestamp()
        event, at_ns = line["event"], round((unix_s - epoch_s) * 1e9)
        if event in ("pipeline built", "prepared"):
            yield unix_s, at_ns, [model.name, "pipeline", "prepare", "end" if event == "prepared" else "start"]
            splits = line.get("splits", splits)
        elif event in ("stage preparing", "stage prepared") and line["stage"] not in silent:
            end = "end" if event == "stage prepared" else "start"
            yield unix_s, at_ns, [model.name, line["stage"], "prepare", end]
    batches = [(split, batch) for split, count in splits.items() for batch in range(count)]
    samples: dict[str, list[Any]] = pq.read_table(files.samples, columns=QUERY).to_pydict()
    for index, due_ns, sent_ns, last_ns in zip(*samples.values(), strict=True):
        split, batch = batches[index % len(batches)] if batches else ("train", 0)
        about = [index, f"{epoch_s + due_ns / 1e9:.6f}", index // max(1, len(batches)) + 1, batch + 1]
        for at_ns, end in ((sent_ns, "start"), (last_ns, "end")):
            if at_ns is not None:
                yield epoch_s + at_ns / 1e9, at_ns, [model.name, f"pipeline - {split}", "run", end, *about]
    columns = ["stage", "what", "begin_ns", "end_ns"]
    events: dict[str, list[Any]] = pq.read_table(files.events, columns=columns).to_pydict()
    for stage, what, begin_ns, end_ns in zip(*events.values(), strict=True):
        if what == EventKind.RUN:
            yield epoch_s + begin_ns / 1e9, begin_ns, [model.name, names[stage], "run", "start"]
            yield epoch_s + end_ns / 1e9, end_ns, [model.name, names[stage], "run", "end"]
        elif what == EventKind.FIRST_UNIT and perf:
            yield epoch_s + begin_ns / 1e9, begin_ns, [model.name, names[stage], "first_token", "end"]
