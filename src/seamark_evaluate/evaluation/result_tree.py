"""Finished trials as the result tree of System B: `<model>/<attention>/<benchmark>[_<subset>]/`, one folder a stub.

A folder is whole or absent: its files are written beside it and renamed together. It has `raw_results.csv`,
`metrics.json`, `config.json`, and `micro_metrics.jsonl` where the server says something about its attention.
"""

import csv
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from seamark.analysis.answers import FACT
from seamark.config.levels import show
from seamark.errors import UserError
from seamark.model.trial import Trial
from seamark.storage.codec import parse_object
from seamark.storage.documents import write_text
from seamark_evaluate.attention.method import read_method
from seamark_evaluate.evaluation.evaluated_trial import EvaluatedTrial, answer_rows, micro_metrics, setting_name
from seamark_evaluate.evaluation.matrix import path_name

OUT_OF_CSV = ("context", "reply", "facts")
"""Parts of a row that raw_results.csv has not: contexts are long and shared, facts have columns of their own."""


IN_PATH = ("model", "method", "task")
"""Settings that every folder has in its path."""
DENSE = "dense"
"""Folder of trials without a method."""
FILES = ("raw_results.csv", "config.json", "metrics.json")
"""Files that a whole folder has."""


def is_whole(folder: Path) -> bool:
    """Return whether a folder of the tree has all of its files."""
    return all((folder / name).is_file() for name in FILES)


def is_current(folder: Path, trial: EvaluatedTrial) -> bool:
    """Return whether a folder of the tree is whole, is this trial's, is not older than the trial's figures, and has
    them: a damaged file counts as missing."""
    if not is_whole(folder) or _holder(folder) != _identity(trial):
        return False
    figures = folder / "metrics.json"
    try:
        said = parse_object(figures.read_text(encoding="utf-8"))
        older = figures.stat().st_mtime_ns < trial.folder.metrics.stat().st_mtime_ns
    except (OSError, ValueError):
        return False
    return not older and (not trial.whole or said == json.loads(json.dumps(trial.document())))


def is_of_another(folder: Path, trial: EvaluatedTrial) -> bool:
    """Return whether a folder of the tree says that it holds another trial or configuration than this one."""
    return _holder(folder) not in (None, _identity(trial))


def _holder(folder: Path) -> tuple[str, str] | None:
    """Return id and configuration of the trial that a folder's config.json names; None where it names none."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return config["trial"], config["config_hash"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _identity(trial: EvaluatedTrial) -> tuple[str, str]:
    return trial.id, trial.trial.config_hash


def folders_of(trials: Iterable[Trial]) -> dict[str, Path]:
    """Return the folder of each trial in the tree, by its id.

    A task that trials of one model and method have with several levels of other settings has these in its folder:
    `needles_length_words_256`. A further repetition has the suffix `_rN`. Raises UserError where two trials would
    share a folder all the same.
    """
    alike: dict[tuple[Path, int], list[Trial]] = {}
    for trial in trials:
        alike.setdefault((_plain_folder(trial), trial.repetition), []).append(trial)
    varied: dict[str, dict[str, None]] = {}
    for (folder, _), members in alike.items():
        names = dict.fromkeys(name for trial in members for name in trial.settings if name not in IN_PATH)
        differ = [name for name in names if len({trial.settings.get(name) for trial in members}) > 1]
        varied.setdefault(folder.name, {}).update(dict.fromkeys(differ))
    found: dict[str, Path] = {}
    first: dict[str, str] = {}
    for (folder, repetition), members in alike.items():
        for trial in members:
            levels = [f"_{name}_{show(trial.settings.get(name))}" for name in varied[folder.name]]
            suffix = f"_r{repetition}" if repetition > 1 else ""
            found[trial.id] = folder.with_name(f"{folder.name}{path_name(''.join(levels))}{suffix}")
            other = first.setdefault(str(found[trial.id]).casefold(), trial.id)
            if other != trial.id:
                raise UserError(
                    f"{found[trial.id]}: the trials {other} and {trial.id} would share this folder. Rename a model or"
                    " a method, or export scenarios whose treatments differ in their settings."
                )
    return found


def _plain_folder(trial: Trial) -> Path:
    method = setting_name(trial, "method") if trial.settings.get("method") else DENSE
    task = setting_name(trial, "task").replace("/", "_")
    return Path(path_name(str(trial.settings.get("model"))), path_name(method), path_name(task))


def write_tree(trials: Sequence[EvaluatedTrial], base: Path) -> list[Path]:
    """Write the folders of all whole trials; return them. A folder that is there is replaced, others are left.

    Trials that are not whole yet take part in the names, so that these stay when they are. Raises UserError
    where two trials would share a folder, OSError for a full disk.
    """
    folders = folders_of(trial.trial for trial in trials)
    return write_whole({base / folders[trial.id]: trial for trial in trials})


def write_whole(trials: Mapping[Path, EvaluatedTrial]) -> list[Path]:
    """Write each whole trial into its folder; return these folders. Raises OSError for a full disk."""
    whole = [folder for folder, trial in trials.items() if trial.whole]
    for folder in whole:
        _write_folder(trials[folder], folder)
    return whole


def _write_folder(trial: EvaluatedTrial, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    beside.chmod(0o755)
    try:
        rows = list(answer_rows(trial))
        _write_csv(beside / "raw_results.csv", rows)
        attention = list(micro_metrics(rows))
        if attention:
            write_text(beside / "micro_metrics.jsonl", "".join(f"{json.dumps(line)}\n" for line in attention))
        write_text(beside / "config.json", f"{json.dumps(config_of(trial), indent=1)}\n")
        write_text(beside / "metrics.json", f"{json.dumps(trial.document(), indent=1)}\n")
        if target.exists():
            shutil.rmtree(target)
        beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def config_of(trial: EvaluatedTrial) -> Mapping[str, Any]:
    """Return `config.json`: every setting that differs from its default, method and task in full."""
    settings = dict(trial.trial.settings)
    method, task = (
        json.loads(str(settings.pop(name))) if settings.get(name) else None for name in ("method", "task")
    )
    return {
        "trial": trial.id,
        "config_hash": trial.trial.config_hash,
        "model": settings.get("model"),
        "sparse_attention": method,
        "sparse_attention_notes": [] if method is None else list(read_method(method, "method").notes),
        "benchmark": task,
        "repetition": trial.trial.repetition,
        "settings": {name: value for name, value in settings.items() if value is not None and name != "model"},
    }


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    facts = list(dict.fromkeys(name for row in rows for name in row["facts"]))
    names = [name for name in rows[0] if name not in OUT_OF_CSV] if rows else []
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:  # halves of surrogate pairs
        writer = csv.writer(file)
        writer.writerow([*names, *_fact_columns(facts, names)])
        for row in rows:
            writer.writerow(
                [*(_cell(row[name]) for name in names), *(_cell(row["facts"].get(name)) for name in facts)]
            )


def _fact_columns(facts: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the column of each fact: its name, behind `fact_` where another column has that name."""
    taken, columns = {*others, *facts}, []
    for fact in facts:
        column = fact
        while fact in others and column in taken:
            column = f"{FACT}{column}"
        taken.add(column)
        columns.append(column)
    return columns


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, tuple, dict)) else value


def write_summary(
    trials: Mapping[str, EvaluatedTrial], base: Path, *, skipped: int = 0, took_s: float | None = None
) -> Mapping[str, Any]:
    """Write execution_summary.json of trials by their titles into a folder of this execution; return its document.
    Nothing that is resumed lies there. `took_s` None: the time of all loads together."""
    whole = {title: trial.document() for title, trial in trials.items() if trial.whole}
    failures = []
    for title, trial in trials.items():
        if not trial.whole:
            category, reason = trial.failure
            failed = {"stub": title, "error_type": category, "error_message": reason, "execution_time": trial.took_s}
            failures.append(failed)
    document = {
        "total_stubs": len(trials),
        "skipped_stubs": skipped,
        "completed_stubs": len(whole) - skipped,
        "failed_stubs": len(failures),
        "execution_time": sum(trial.took_s for trial in trials.values()) if took_s is None else took_s,
        "scores": {title: metrics["scores"].get("score", {}).get("mean") for title, metrics in whole.items()},
        "failures": failures,
    }
    folder = new_folder(base / f"execution_{datetime.now(UTC).strftime('%Y%m%d_%H%M%S')}")
    write_text(folder / "execution_summary.json", f"{json.dumps(document, indent=1)}\n")
    return document


def new_folder(wanted: Path) -> Path:
    """Make a folder that is not there yet, with a number behind its name where it is, and return it."""
    for number in count(1):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}_{number}")
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise AssertionError
