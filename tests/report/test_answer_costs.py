"""Tables beside scores: device-hours for a percent of quality, pass@k and published figures, from files by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import stdev
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import a_load, a_metrics, a_trial

from seamark.model.results.answers import AnswersRecord, Score
from seamark.model.results.summary import Summary
from seamark.model.trial import Deployment, Plan
from seamark.report.page.answer_costs import answer_cost_blocks
from seamark.report.page.content import Table
from seamark.report.source import Results
from seamark.storage.documents import write
from seamark.storage.paths import ScenarioFolder, TrialFolder


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A trial by hand: its levels, the time of its load, and the scores of its items. `asked` is the number of
    its questions; None: as many."""

    method: str
    task: str
    repetition: int
    load_s: float
    scores: Sequence[float]
    temperature: float = 0.0
    published: Mapping[str, float] | None = None
    asked: int | None = None


def tables(root: Path, scored: Sequence[Scored], gpus: int = 0) -> dict[str, Table]:
    """Return the tables of some trials by their captions."""
    trials = []
    for each in scored:
        treatment = f"d--{each.method}-{each.task}"
        settings = {"method": each.method, "task": each.task, "temperature": each.temperature}
        name = f"{treatment}--r{each.repetition}"
        trial = a_trial(settings, repetition=each.repetition, id=name, deployment="d", group="w")
        trials.append(trial)
        folder = TrialFolder(root=root / trial.id)
        mean = sum(each.scores) / len(each.scores)
        error = stdev(each.scores) / len(each.scores) ** 0.5 if len(each.scores) > 1 else None
        record = AnswersRecord(
            status="ok",
            answers=len(each.scores),
            scores={"score": Score(mean=mean, standard_error=error, scored=len(each.scores))},
            published=each.published or {},
        )
        folder.root.mkdir()
        write(folder.answers_record, record)
        write(folder.load, a_load(items=each.asked or len(each.scores), duration_s=each.load_s, warmup_s=0.0))
        write(folder.metrics, a_metrics())
        ids = [f"{each.task}/{item}" for item in range(len(each.scores))]
        columns: dict[str, Any] = {"id": ids, "cluster": ids, "failure": [None] * len(ids), "score": each.scores}
        pq.write_table(pa.table(columns), folder.answers)
    served = Deployment(id="d", service="s", settings={}, nodes=1, gpus=gpus, cpus_per_task=1, mem_gb=1)
    plan = Plan(
        scenario="s",
        source="s.yaml",
        seed=0,
        repetitions=max(each.repetition for each in scored),
        max_retries=0,
        factors={},
        deployments=(served,),
        trials=tuple(trials),
    )
    results = Results(folder=ScenarioFolder(root=root), plan=plan, summary=Summary(treatments=()))
    return {str(block.caption): block for block in answer_cost_blocks(results) if isinstance(block, Table)}


def cells(table: Table) -> dict[str, list[Any]]:
    return {each.name: [cell.text for cell in each.cells] for each in table.columns}


@pytest.mark.covers("B17")
def test_device_hours_are_those_of_all_tasks_of_a_method_over_its_percent(tmp_path: Path) -> None:
    scored = [
        Scored(method="dense", task="a", repetition=1, load_s=1800, scores=[1, 1]),
        Scored(method="dense", task="b", repetition=1, load_s=1800, scores=[1, 0, 0, 1, 0, 0]),
        Scored(method="sparse", task="a", repetition=1, load_s=360, scores=[1, 0]),
        Scored(method="sparse", task="b", repetition=1, load_s=360, scores=[0, 0, 0, 1, 0, 0]),
    ]
    found = cells(tables(tmp_path, scored, gpus=2)["Device-hours for quality"])
    assert found["method"] == ["dense", "sparse"]
    assert found["score"] == ["50.0", "25.0"]
    assert found["95 % interval"] == ["13.6 – 86.4", "0.695 – 79.9"], "as of 6.9 and 4.1 answers"
    assert found["device-hours"] == ["2.00", "0.400"], "two GPUs each"
    assert found["device-hours for a percent"] == ["0.0400", "0.0160"]


@pytest.mark.covers("B13")
def test_repetitions_that_are_drawn_give_pass_at_k_and_others_do_not(tmp_path: Path) -> None:
    drawn = [
        Scored(method="m", task="aime", repetition=number, load_s=1, scores=scores, temperature=0.6)
        for number, scores in enumerate([[1, 0], [0, 0], [1, 0], [0, 1]], 1)
    ]
    found = cells(tables(tmp_path, drawn)["pass@k"])
    assert found["samples"] == ["4"]
    assert found["pass@1"] == ["0.375"], "2 of 4 and 1 of 4"
    assert found["pass@2"] == ["0.667"], "1 - 1/6 and 1 - 3/6"
    assert found["pass@4"] == ["1.000"]
    again = tmp_path / "again"
    again.mkdir()
    greedy = [Scored(method="m", task="t", repetition=number, load_s=1, scores=[1, 0]) for number in (1, 2)]
    assert "pass@k" not in tables(again, greedy)


def test_repetitions_of_the_same_questions_do_not_narrow_the_interval_of_a_score(tmp_path: Path) -> None:
    found = []
    for repetitions in (1, 9):
        root = tmp_path / str(repetitions)
        root.mkdir()
        scored = [
            Scored(method="m", task="t", repetition=number, load_s=1, scores=[1, 0, 0, 0, 0])
            for number in range(repetitions)
        ]
        found.append(cells(tables(root, scored)["Device-hours for quality"])["95 % interval"])
    assert found[0] == found[1]


def test_published_figures_have_a_row_each(tmp_path: Path) -> None:
    scored = [Scored(method="m", task="e", repetition=1, load_s=1, scores=[1], published={"0-4k": 0.5, "8k+": 0.25})]
    found = cells(tables(tmp_path, scored)["Figures as published"])
    assert (found["figure"], found["value"]) == (["0-4k", "8k+"], ["0.500", "0.250"])


def test_a_trial_with_unanswered_questions_is_in_no_table(tmp_path: Path) -> None:
    """Ten questions each: dense has 6 right of all, sparse 4 right of the only 4 that it answered."""
    right = [1] * 6 + [0] * 4
    scored = [
        Scored(method="dense", task="a", repetition=1, load_s=3600, scores=right, published={"masks": 0.6}),
        Scored(
            method="sparse", task="a", repetition=1, load_s=3600, scores=[1] * 4, asked=10, published={"masks": 1}
        ),
    ]
    found = tables(tmp_path, scored)
    hours = found["Device-hours for quality"]
    assert cells(hours)["score"] == ["60.0"]
    assert "1 more lack scores of a task, or answers to some of its questions." in hours.footnotes
    assert cells(found["Figures as published"])["value"] == ["0.600"]


def test_a_repetition_with_unanswered_questions_leaves_the_device_hours_to_the_others(tmp_path: Path) -> None:
    scored = [
        Scored(method="m", task="a", repetition=1, load_s=7200, scores=[1], asked=2),
        Scored(method="m", task="b", repetition=1, load_s=7200, scores=[1, 1]),
        Scored(method="m", task="a", repetition=2, load_s=1800, scores=[1, 0]),
        Scored(method="m", task="b", repetition=2, load_s=1800, scores=[0, 1]),
    ]
    found = tables(tmp_path, scored)["Device-hours for quality"]
    assert (cells(found)["score"], cells(found)["device-hours"]) == (["50.0"], ["1.00"])
    assert "1 repetition left out: without whole answers to all tasks." in found.footnotes


def test_samples_of_which_a_question_had_no_answer_count_for_no_pass_at_k(tmp_path: Path) -> None:
    """The second question, never right, fails in two of four repetitions, or in all."""

    def drawn(failing: int) -> list[Scored]:
        return [
            Scored(
                method="m",
                task="aime",
                repetition=number,
                load_s=1,
                scores=[1] if number <= failing else [1, 0],
                asked=2,
                temperature=0.6,
            )
            for number in range(1, 5)
        ]

    (tmp_path / "some").mkdir()
    (tmp_path / "all").mkdir()
    found = cells(tables(tmp_path / "some", drawn(2))["pass@k"])
    assert (found["samples"], found["pass@1"]) == (["2"], ["0.500"])
    assert tables(tmp_path / "all", drawn(4)) == {}
