"""Who slows whom, where it is known: processor time is divided, equal arms do not differ, predicted pairs are met."""

import json
import random
import shutil
from dataclasses import replace
from math import log
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest
from study_folder import StudyFolder
from test_party_runs import ONE_CORE, RECIPE

from seamark.report.slowdown_prediction import predictions_of, with_intervals
from seamark.report.source import read_results
from seamark.stats.compare import compare_family

pytestmark = pytest.mark.e2e


def write(study: StudyFolder, parties: dict[str, Any], *, repetitions: int = 1, **rest: Any) -> None:
    compare = rest.pop("compare", None)
    document = {"scenario": "try", "repetitions": repetitions, "workload": {"parties": parties, **rest}}
    (study.root / "config/scenarios/try.yaml").write_text(
        json.dumps(document | ({"compare": compare} if compare else {}))
    )
    shutil.copy(Path(__file__).parent / "working_driver.py", study.root)
    (study.root / "one_core.py").write_text(ONE_CORE)
    (study.root / "config/services/working.yaml").write_text(RECIPE)


def figures(study: StudyFolder, path: str) -> dict[tuple[str, str], list[float]]:
    """Return a figure of each party by the set that was under load and its name, block by block."""
    results = read_results(study.results)
    found = {}
    for row in results.treatments:
        values = [view.good.figure(path) for view in results.trials_of(row) if view.good]
        found[str(row.factors["sets"]), row.workload.partition(".")[2]] = [value for value in values if value]
    return found


@pytest.mark.sweep
@pytest.mark.covers("A3")
def test_each_party_beside_each_burner_predicts_pairs_that_were_not_measured(study: StudyFolder) -> None:
    parties = {
        "short": {"service": "working", "work_ms": 2, "sleep_ms": 2},
        "long": {"service": "working", "work_ms": 6, "sleep_ms": 2},
        "cpu": {"service": "burner", "bytes": 1 << 20},
    }
    write(study, parties, sets=["alone", "burners"], placement="one_core:one_core", duration_s=0.6, warmup_s=0.1)
    study.submit(code=0)
    assert set(figures(study, "throughput.value")) == {
        *(("short", "short"), ("long", "long"), ("cpu", "cpu")),
        *(("short+cpu", "short"), ("short+cpu", "cpu"), ("long+cpu", "long"), ("long+cpu", "cpu")),
    }
    done = study.bench("colocate", "--predict", str(study.results), "--json")
    assert done.returncode == 0, done.stderr
    pairs = json.loads(done.stdout)["pairs"]
    assert [(pair["party"], pair["beside"]) for pair in pairs] == [("long", "short"), ("short", "long")]
    assert all(pair["value"] > 0.9 and pair["low"] is None and pair["measured"] is None for pair in pairs)
    assert study.bench("colocate", "--predict", "results/other").returncode == 2


@pytest.mark.serial
@pytest.mark.sweep
@pytest.mark.covers("A1", "A3")
def test_parties_divide_a_core_as_arithmetic_says(study: StudyFolder) -> None:
    """Two threads beside one, one that thinks beside a busy one, and sleepers: shares of one core's throughput."""
    parties = {
        "busy": {"service": "burner"},
        "double": {"service": "burner", "concurrency": 2},
        "thinking": {"service": "burner", "think_time_s": 0.02},
        "sleeper": {"service": "working", "sleep_ms": 10},
    }
    sets = ["alone", ["busy", "double"], ["busy", "thinking"], ["busy", "sleeper"]]
    write(study, parties, repetitions=3, sets=sets, placement="one_core:one_core", duration_s=3, warmup_s=0.3)
    study.measure(code=0)
    rates = {key: mean(values) for key, values in figures(study, "throughput.value").items()}
    whole = rates["busy", "busy"]
    for level, names in (("busy+double", ("busy", "double")), ("busy+thinking", ("busy", "thinking"))):
        assert sum(rates[level, name] for name in names) == pytest.approx(whole, rel=0.15), level
    assert rates["double", "double"] == pytest.approx(whole, rel=0.15)
    assert rates["busy+double", "busy"] / whole == pytest.approx(1 / 3, rel=0.25)
    work_s, think_s = 1 / whole, 0.02
    least = (work_s + think_s) / (2 * work_s + think_s)
    assert least * 0.85 < rates["busy+thinking", "thinking"] / rates["thinking", "thinking"] < 1.05
    assert rates["busy+sleeper", "sleeper"] / rates["sleeper", "sleeper"] == pytest.approx(1, rel=0.1)
    assert rates["busy+sleeper", "busy"] / whole == pytest.approx(1, rel=0.1)


@pytest.mark.serial
@pytest.mark.sweep
@pytest.mark.covers("A1")
def test_equal_arms_are_called_worse_no_more_often_than_the_nominal_rate(study: StudyFolder) -> None:
    """Parties that sleep do not slow each other: five matrices for real, and fifty drawn from their trials."""
    parties = {name: {"service": "working", "sleep_ms": 5} for name in "abc"}
    pool: dict[str, list[float]] = {name: [] for name in parties}
    wrong = 0
    for number in range(5):
        write(
            study,
            {name: settings | {"duration_s": 0.5 + number / 100} for name, settings in parties.items()},
            repetitions=6,
            sets=["alone", "pairs"],
            warmup_s=0.1,
            compare={"family": ["sets"], "metrics": ["latency_ms.mean"]},
        )
        study.submit(code=0)
        cells = json.loads((study.root / "reports/try/interference.json").read_text())["slowdowns"]
        judged = [cell for cell in cells if cell["verdict"]]
        assert len(judged) == 6
        wrong += any(cell["verdict"] == "worse" for cell in judged)
        for (_, name), values in figures(study, "latency_ms.mean").items():
            pool[name] += values
    assert wrong <= 2, "a family calls one worse with a probability of 0.025: three of five in 0.02 % of such tests"
    drawn = random.Random(1)
    called = 0
    for _ in range(50):
        cells = {}
        for cell in range(6):
            values = drawn.sample(pool[drawn.choice("abc")], 12)
            cells[cell] = (dict(enumerate(values[:6])), dict(enumerate(values[6:])))
        called += any(found.verdict == "worse" for found in compare_family(cells, better="lower").values())
    assert called <= 6, "seven of 50 in 0.03 % of such tests"


@pytest.mark.serial
@pytest.mark.sweep
@pytest.mark.covers("A3")
def test_predicted_pairs_lie_in_their_intervals_as_often_as_these_say(study: StudyFolder) -> None:
    """210 directed pairs of 15 parties that work and sleep on one core; half of them calibrate, many times over."""
    times = [(work, sleep) for work in (1, 2, 4, 6, 9) for sleep in (1, 4, 12)]
    parties: dict[str, Any] = {
        f"p{number}": {"service": "working", "work_ms": work, "sleep_ms": sleep}
        for number, (work, sleep) in enumerate(times)
    }
    parties["cpu"] = {"service": "burner", "bytes": 1 << 20, "think_time_s": [0.0, 0.002, 0.008]}
    sets = ["alone", "burners", "pairs"]
    write(study, parties, sets=sets, placement="one_core:one_core", duration_s=0.8, warmup_s=0.1)
    study.bench("submit", "-c", "config/scenarios/try.yaml", code=0, timeout=1200)
    pairs = [pair for pair in predictions_of(read_results(study.results)).pairs if pair.measured and pair.value]
    assert len(pairs) >= 200
    errors = [abs(log((pair.measured or 1) / (pair.value or 1))) for pair in pairs]
    assert median(errors) < 0.5 * median(abs(log(pair.measured or 1)) for pair in pairs), "better than 'no slowdown'"
    drawn, inside = random.Random(2), []
    for _ in range(200):
        drawn.shuffle(pairs)
        unseen = [replace(pair, measured=None) for pair in pairs[100:]]
        shown = with_intervals([*pairs[:100], *unseen]).pairs[100:]
        hits = [
            (pair.low or 0) <= (known.measured or 0) <= (pair.high or 0)
            for pair, known in zip(shown, pairs[100:], strict=True)
        ]
        inside.append(mean(hits))
    assert 0.85 <= mean(inside) <= 0.95
