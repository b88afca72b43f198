"""Finished trials in the files of lm-evaluation-harness: `results.json`, and `samples_TASK.jsonl` with every answer.

Names and places are those that version 0.4 of the harness writes with `--log_samples`
(https://github.com/EleutherAI/lm-evaluation-harness), so its readers and leaderboards take them.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from seamark.storage.documents import write_text
from seamark_evaluate.evaluation.evaluated_trial import EvaluatedTrial, answer_rows, setting_name
from seamark_evaluate.evaluation.result_tree import folders_of

FILTER = "none"
"""Name of the harness for answers that no filter has changed."""


def write_harness_files(trials: Sequence[EvaluatedTrial], base: Path) -> list[Path]:
    """Write one `results.json` for each model and method, with a file of samples for each task; return them.

    Raises UserError where two trials would share a file, OSError for a full disk.
    """
    folders = folders_of(trial.trial for trial in trials)
    groups: dict[Path, list[EvaluatedTrial]] = {}
    for trial in trials:
        if trial.whole:
            groups.setdefault(base / folders[trial.id].parent, []).append(trial)
    written = []
    for folder, members in groups.items():
        named = {folders[trial.id].name: trial for trial in members}
        counts = {}
        for name, trial in named.items():
            scores = tuple(trial.answers.scores) if trial.answers else ()
            lines = [json.dumps(_sample(at, row, scores)) for at, row in enumerate(answer_rows(trial))]
            written.append(folder / f"samples_{name}.jsonl")
            write_text(written[-1], "".join(f"{line}\n" for line in lines))
            counts[name] = {"original": len(lines), "effective": len(lines)}
        written.append(folder / "results.json")
        write_text(written[-1], f"{json.dumps(_results(named, counts), indent=1)}\n")
    return written


def _results(named: Mapping[str, EvaluatedTrial], counts: Mapping[str, Mapping[str, int]]) -> Mapping[str, Any]:
    first = next(iter(named.values())).trial
    return {
        "results": {name: {"alias": name, **_scores(trial)} for name, trial in named.items()},
        "configs": {name: {"task": setting_name(trial.trial, "task")} for name, trial in named.items()},
        "versions": {name: (trial.answers.quality_version if trial.answers else "") for name, trial in named.items()},
        "n-samples": counts,
        "config": {"model": first.service, "model_args": f"pretrained={first.settings.get('model')}"},
        "date": datetime.now(UTC).timestamp(),
        "model_name": first.settings.get("model"),
    }


def _scores(trial: EvaluatedTrial) -> Mapping[str, float | str | None]:
    found: dict[str, float | str | None] = {}
    for name, score in (trial.answers.scores if trial.answers else {}).items():
        found[f"{name},{FILTER}"] = score.mean
        found[f"{name}_stderr,{FILTER}"] = "N/A" if score.standard_error is None else score.standard_error
    return found


def _sample(number: int, row: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    doc = {name: row[name] for name in ("id", "cluster", "question", "answer_prefix", "facts")}
    prompt = f"{row['context']}{row['question']}{row['answer_prefix']}"
    scores = {name: row[name] for name in names if row[name] is not None}
    return {
        "doc_id": number,
        "doc": doc,
        "target": row["answers"],
        "arguments": [[prompt, {}]],
        "resps": [[row["predicted_answer"]]],
        "filtered_resps": [row["predicted_answer"]],
        "filter": FILTER,
        "metrics": list(scores),
        "doc_hash": _sha256(json.dumps(doc, sort_keys=True)),
        "prompt_hash": _sha256(prompt),
        "target_hash": _sha256(json.dumps(row["answers"])),
        **scores,
    }


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
