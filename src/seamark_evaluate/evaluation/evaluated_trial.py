"""A trial of an evaluation as its files have it: what was asked, what was answered, scores and figures."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow.parquet as pq

from seamark.analysis.answers import TIMED_BY, score_columns, times_by_item_s
from seamark.analysis.trial_view import TrialView
from seamark.config.forms.table import label_of
from seamark.drivers.openai.kept import read_kept
from seamark.errors import UserError
from seamark.model.failure_categories import TIMEOUT
from seamark.model.trial import Trial
from seamark.storage.codec import encode
from seamark_evaluate.drivers.questions import asked_of
from seamark_evaluate.tasks.benchmark import item_id

ATTENTION_FIELDS = (
    "density",
    "density_mean",
    "output_error",
    "output_error_mean",
    "kv_bytes_read",
    "kernel",
    "device",
)
"""Fields of a reply's document that `micro_metrics.jsonl` has, one line for each answer."""

UNFINISHED = "not_finished"
"""Category of a trial that a run left without a result."""


class EvaluatedTrial(TrialView):
    """One trial of an evaluation: what its records say of its questions."""

    @property
    def whole(self) -> bool:
        """Whether the trial is done: the figures are there, and every question is answered and scored."""
        return self.ok and self.unscored == 0 and not self.unanswered

    @property
    def failed(self) -> bool:
        """Whether the trial was tried in vain, so that only another measurement can make it whole."""
        if self.load is None or not self.load.ok:
            return self.load is not None
        return self.unanswered > 0

    @property
    def unscored(self) -> int | None:
        """Number of questions without a score; None where nothing was scored."""
        score = None if self.answers is None else self.answers.scores.get("score")
        if score is None or self.load is None or self.load.items is None:
            return None
        return self.load.items - score.scored

    @property
    def took_s(self) -> float:
        """Length of its load in seconds, 0 without one; of a failed one, whose `duration_s` may be its limit, the
        time from its beginning to its end."""
        if self.load is None or self.load.ok:
            return 0.0 if self.load is None else self.load.duration_s or 0.0
        began_s, ended_s = self.load.span_s or (0.0, 0.0)
        return round(ended_s - began_s, 6)

    @property
    def failure(self) -> tuple[str, str]:
        """Category and reason of a trial without a whole result: its load failed, its answers were not scored, or
        some are missing."""
        load, answers = self.load, self.answers
        if load is None:
            return UNFINISHED, "the run ended before this stub"
        if not load.ok:
            stated = None if answers is None else answers.category
            reason = load.reason or "no reason is known"
            last = [line for line in load.log_tail[-1:] if line not in reason and reason not in line]
            return stated or load.category or "failed", " ".join([reason, *last])
        if answers is None or answers.status != "ok":
            return "not_scored", (answers.reason if answers else None) or "its answers were not scored"
        left = load.items if self.unscored is None else self.unscored
        category = answers.commonest_error or (TIMEOUT if load.worst_failure == TIMEOUT else "unanswered")
        return category, f"{left} of {load.items} questions have no scored answer"

    def document(self) -> Mapping[str, Any]:
        """Return `metrics.json` of the result tree: scores with standard errors, and times of the same answers."""
        metrics, answers = self.metrics, self.answers
        assert metrics is not None
        assert answers is not None
        figures = (
            "latency_ms",
            "ttft_ms",
            "tpot_ms",
            "throughput",
            "counts",
            "verdict",
            "reasons",
            "quality_version",
        )
        return {
            "schema_version": 1,
            "trial_id": self.trial.trial_id,
            "questions": answers.answers,
            "contexts": answers.clusters,
            "scores": {name: encode(score) for name, score in answers.scores.items()},
            **({"published": dict(answers.published)} if answers.published else {}),
            **{name: encode(value) for name in figures if (value := getattr(metrics, name)) is not None},
        }


def answer_rows(trial: EvaluatedTrial) -> Iterator[Mapping[str, Any]]:
    """Yield the answers of a trial in the order of its questions: the question, what was answered, its scores and
    times in seconds. Raises OSError or ValueError where the files cannot be read, and UserError where a question has
    changed since it was asked."""
    asked, task = asked_of(trial.trial.settings), setting_name(trial.trial, "task")
    times = times_by_item_s(pq.read_table(trial.folder.samples, columns=TIMED_BY))
    table = pq.read_table(trial.folder.answers)
    scores = score_columns(table.column_names)
    for row in table.to_pylist():
        item = row["item"]
        if item >= len(asked) or item_id(task, asked[item]) != row["id"]:
            raise UserError(
                f"{trial.id}: question {item} of {task} has changed since it was answered: the data, or what makes"
                f" them, are others. Put these back, or ask the new questions: `bench retry {trial.id}`."
            )
        question = asked[item]
        ttft_s, latency_s = times.get(item, (None, None))
        yield {
            "id": question.id,
            "cluster": question.cluster,
            "question": question.question,
            "answer_prefix": question.answer_prefix,
            "answers": list(question.references),
            "predicted_answer": row["answer"],
            **{name: row[name] for name in scores},
            "output_tokens": row["units"],
            "finish_reason": row["finish"],
            "ttft_s": ttft_s,
            "latency_s": latency_s,
            "failure": row["failure"],
            "facts": dict(question.facts),
            "context": question.context,
            "reply": row["reply"],
        }


def micro_metrics(rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield what the server says of attention in each answer: density and output error by layer."""
    for row in rows:
        facts = read_kept(row["reply"]).facts if row["reply"] is not None else {}
        if found := {name: facts[name] for name in ATTENTION_FIELDS if name in facts}:
            yield {"id": row["id"], **found}


def setting_name(trial: Trial, name: str) -> str:
    """Return the name of the structure in a setting: of a method or a task."""
    return label_of(name, str(trial.settings[name]))
