"""What if a stage were faster: the clock, what a workload may say of it, and the scenario that the verb makes."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
import yaml
from click.testing import CliRunner
from test_flow import Tracks, flow_of, sent

from seamark.cli.main import cli
from seamark.errors import UserError
from seamark.model.results.comparison import Compared, ComparedSide, Comparisons, Effect
from seamark.model.sample import EventKind
from seamark.planning.study import Study
from seamark_pipelines.cli.whatif import levels_of, lines_of, scenario_of
from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.flow.virtual_clock import VirtualClock
from seamark_pipelines.model.query import Query

FOLDER = Path(__file__).parents[2] / "pipeline_configs"
SCRIPTED, RAG = str(FOLDER / "scripted.yml"), str(FOLDER / "rag.yml")


def test_time_passes_more_slowly_while_the_faster_stage_runs_and_another_run_takes_its_whole_time() -> None:
    clock = VirtualClock({1}, 0.75)
    runs, ended = Event(), Event()

    def fast(query: str) -> str:
        runs.wait()
        time.sleep(0.02)
        return query

    def other(query: str) -> None:
        runs.set()
        ended.wait()

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(clock.timed, 1, fast, "query")
        second = threads.submit(clock.timed, 2, other, "query")
        made, begin_ns, end_ns = first.result()
        ended.set()
        _, other_begin_ns, other_end_ns = second.result()
    assert made == "query"
    assert clock.inserted_ns == pytest.approx(3 * (end_ns - begin_ns), rel=1e-6)
    assert 15_000_000 < clock.late_ns <= clock.inserted_ns
    assert other_end_ns - other_begin_ns >= 20_000_000
    assert clock.now_ns() >= other_end_ns
    with pytest.raises(ZeroDivisionError):
        clock.timed(1, lambda query: 1 / 0, "query")
    paused_ns = clock.inserted_ns
    time.sleep(0.001)
    clock.now_ns()
    assert clock.inserted_ns == paused_ns


@pytest.mark.parametrize("fast", [0, 1])
def test_all_times_of_a_query_are_of_the_clock(fast: int) -> None:
    def talks(stage: Stage, query: Query) -> None:
        time.sleep(0.01)
        stage.first_token()

    clock, tracks = VirtualClock({fast}, 0.9), Tracks()
    stages = ({"outputs": (1,), "work": talks}, {"max_input_queue_depth": 1, "work": talks})
    flow = flow_of(*stages, outputs=(1,), tracks=tracks, clock=clock)
    [ticket] = sent(flow, 1)
    ended_ns = clock.now_ns()
    flow.stop()
    times = {(stage, what): (begin, end) for _, stage, what, begin, end, _ in tracks.events}
    order = [time_ns for at in sorted(times) if at[1] != EventKind.FIRST_UNIT for time_ns in times[at]]
    assert order == sorted(order)
    assert order[-1] <= ended_ns
    for stage in (0, 1):
        begin_ns, end_ns = times[stage, EventKind.RUN]
        assert begin_ns <= times[stage, EventKind.FIRST_UNIT][0] <= end_ns
        assert end_ns - begin_ns >= 10_000_000 or stage == fast
    assert ticket.first_ns == times[0, EventKind.FIRST_UNIT][0]
    assert clock.pauses["late_pause_ratio"] == 0


def planned(folder: Path, workload: dict[str, object]) -> Study:
    (folder / "try.yaml").write_text(yaml.safe_dump({"scenario": "t", "repetitions": 1, "workload": workload}))
    return Study.at(folder, scenario="try.yaml")


@pytest.mark.parametrize(
    ("keys", "path", "code"),
    [
        ({"faster": 10}, "faster", "missing"),
        ({"faster_stage": "Step"}, "faster_stage", "missing"),
        ({"faster": 10, "faster_stage": "Stepp"}, "faster_stage", "unknown_name"),
        ({"faster": [0, 100], "faster_stage": "Step"}, "faster[1]", "out_of_limits"),
        ({"faster": -1, "faster_stage": "2"}, "faster", "out_of_limits"),
        ({"faster": 10, "faster_stage": "step", "shards": 2}, "shards", "conflict"),
    ],
)
def test_a_wrong_speed_up_is_a_mistake_at_its_place(
    tmp_path: Path, keys: dict[str, object], path: str, code: str
) -> None:
    load: dict[str, object] = {"service": "pipeline", "graph": SCRIPTED, "pipeline": "Training"}
    right = planned(tmp_path, load | {"faster": [0, 10], "faster_stage": "step"}).plan
    assert {trial.settings["faster"] for trial in right.trials} == {0.0, 10.0}
    assert len({trial.id for trial in right.trials}) == len({trial.config_hash for trial in right.trials}) == 2
    with pytest.raises(UserError) as refused:
        planned(tmp_path, load | keys)
    assert [(mistake.path, mistake.code) for mistake in refused.value.mistakes] == [(f"workload.{path}", code)]


def test_a_party_and_a_scheduler_with_a_clock_of_its_own_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = {"service": "pipeline", "graph": SCRIPTED, "pipeline": "Training", "faster": 9, "faster_stage": "Step"}
    with pytest.raises(UserError) as refused:
        planned(tmp_path, {"parties": {"one": fast, "two": {"service": "null"}}})
    assert [mistake.path for mistake in refused.value.mistakes] == ["workload.parties.one.faster"]
    (tmp_path / "mine.py").write_text("class Theirs:\n    def generate(self, queue, event):\n        pass\n")
    text = Path(SCRIPTED).read_text().replace("loadgen.OfflineLoadScheduler", "mine.Theirs")
    (tmp_path / "own.yml").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refused:
        planned(tmp_path, fast | {"graph": "own.yml"})
    assert [mistake.path for mistake in refused.value.mistakes] == ["workload.faster"]


def test_the_scenario_has_the_levels_and_leaves_out_what_lacks_the_stage() -> None:
    rag = {"service": "pipeline", "graph": RAG, "pipeline": ["With documents", "Filler"], "requests": 6}
    document = {
        "scenario": "rag",
        "repetitions": 7,
        "workloads": [rag, {"service": "null"}, {"parties": {}}],
        "compare": {"family": ["pipeline"]},
    }
    made, left_out = scenario_of(document, "1", [10.0, 30.0])
    speed_up = {"pipeline": ["With documents"], "faster": [0.0, 10.0, 30.0], "faster_stage": "retriever"}
    compare = {"family": ["faster"], "metrics": ["latency_ms.p50", "latency_ms.p99", "throughput"]}
    name = "rag_faster_retriever"
    assert made == {"scenario": name, "repetitions": 7, "workloads": [rag | speed_up], "compare": compare}
    assert len(left_out) == 3
    for unknown in ("Retreiver", "9"):
        with pytest.raises(UserError) as refused:
            scenario_of(document, unknown, [10.0])
        assert refused.value.mistakes[0].path == "--stage"


@pytest.mark.parametrize("fresh", [False, True])
def test_levels_of_a_speed_up_draw_the_same_arrivals_and_other_treatments_do_not(
    fresh: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    workload = {"service": "pipeline", "graph": SCRIPTED, "pipeline": "Training", "requests": [4, 6]}
    workload["fresh_server"] = fresh
    trials = planned(tmp_path, workload | {"faster": [0, 20], "faster_stage": "Step"}).plan.trials
    seeds: dict[object, set[int]] = {}
    for trial in trials:
        seeds.setdefault((trial.settings["requests"], trial.repetition), set()).add(trial.seed)
    assert len(trials) == 2 * len(seeds) == len({trial.config_hash for trial in trials})
    assert all(len(drawn) == 1 for drawn in seeds.values())
    assert len(set().union(*seeds.values())) == len(seeds)


@pytest.mark.parametrize("wrong", ["", "0", "ten", "100", "-1", "nan", "10;30"])
def test_percentages_are_read_once_each_and_refused_outside_of_their_limits(wrong: str) -> None:
    assert levels_of("10, 30,10,0") == [10.0, 30.0]
    with pytest.raises(UserError) as refused:
        levels_of(wrong)
    assert refused.value.mistakes[0].path == "--faster"


def test_the_table_has_a_row_for_each_level() -> None:
    def effect(metric: str, percent: float, ratio: float) -> Compared:
        base, new = ComparedSide(level=0.0), ComparedSide(treatment=f"by {percent}", level=percent)
        known = Effect(value=ratio, low=ratio - 0.01, high=ratio + 0.01)
        about = {"workload": "w", "factor": "faster", "metric": metric, "base": base, "new": new}
        return Compared(**about, ratio=known, better="lower", verdict="better")  # type: ignore[arg-type]

    metrics = ("latency_ms.p50", "latency_ms.p99", "throughput.value")
    found = tuple(effect(metric, percent, 1 - percent / 200) for percent in (10.0, 30.0) for metric in metrics)
    _, *rows = lines_of(Comparisons(comparisons=found), {"by 30.0": 0.25})
    assert rows[1].split() == ["w", "30", "%", "25", "%", *3 * ["-15", "%", "(-16", "to", "-14)", "better"]]
    assert rows[0].split()[:4] == ["w", "10", "%", "–"]


def test_the_verb_shows_the_scenario_and_measures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    planned(tmp_path, {"service": "pipeline", "graph": SCRIPTED, "pipeline": "Training"})
    done = CliRunner().invoke(cli, ["whatif", "-c", "try.yaml", "--stage", "Step", "--faster", "20", "-n"])
    assert done.exit_code == 0, done.output
    assert yaml.safe_load(done.stdout)["workloads"][0]["faster"] == [0.0, 20.0]
    assert not (tmp_path / ".seamark").exists()
