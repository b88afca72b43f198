"""`bench fit`: which trials take part, what is written, and each wrong use in one line."""

import json

import in_process
import pytest
from planted_replicas import COST
from planted_stations import MEAN_S
from planted_study import NAME, planted_replica_study, planted_study

from seamark.model.trial import Plan
from seamark.storage.documents import read
from seamark_simulate.model.fitted_model import FittedModels
from seamark_simulate.trials.fit_inputs import fit_inputs


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    root = tmp_path_factory.mktemp("study")
    planted_study(root)
    return root


@pytest.fixture
def inside(study, monkeypatch):
    monkeypatch.chdir(study)
    return study


@pytest.mark.slow
@pytest.mark.covers("C14")
def test_a_model_names_its_trials_and_predicts_those_that_were_left_out(inside, tmp_path):
    said = in_process.said_by(["fit", "-c", NAME, "-o", str(tmp_path / "known.fit.json"), "--servers", "1"])
    found = read(tmp_path / "known.fit.json", FittedModels)
    [station] = found.stations
    assert station.parameters.mean_s == pytest.approx(MEAN_S, rel=0.05)
    assert station.loads == pytest.approx((0.2, 0.6), rel=0.1)
    assert (station.servers, len(station.sources), len(station.draws)) == (1, 6, 200)
    assert all(source.config_hash and source.trial_id for source in station.sources)
    assert station.contradictions == ()
    assert {(each.place, each.figure) for each in station.scores} >= {("inside", "mean_s"), ("beyond", "p50_s")}
    assert found.machines == ("node1",)
    assert "among the loads" in said
    assert "from 6 trials" in said


@pytest.mark.slow
def test_the_same_seed_writes_the_same_models(inside, tmp_path):
    texts = []
    for name in ("one", "two"):
        in_process.run(["fit", "-c", NAME, "-o", str(tmp_path / name), "--servers", "1"])
        document = json.loads((tmp_path / name).read_text())
        texts.append({key: value for key, value in document.items() if key != "fitted_at"})
    assert texts[0] == texts[1]


def test_trials_that_say_nothing_of_the_server_stay_out_and_are_listed(tmp_path, monkeypatch):
    folder = planted_study(tmp_path, rate_rps=[40, 80])
    monkeypatch.chdir(tmp_path)
    missing, damaged, saturated = sorted(path.parent for path in folder.root.glob("*--*/load.json"))[:3]
    for name in ("metrics.json", "samples.parquet", "load.json"):
        (missing / name).unlink()
    (damaged / "samples.parquet").write_bytes(b"no parquet")
    document = json.loads((saturated / "metrics.json").read_text())
    reason = {"code": "saturated", "severity": "suspect", "text": "t", "remedy": "r", "verdict": "SUSPECT"}
    document["reasons"] = [*document["reasons"], reason]
    (saturated / "metrics.json").write_text(json.dumps(document))
    said = in_process.said_by(["fit", "-c", NAME, "-o", "out.json"], code=2)
    for why in ("it is not measured", "samples.parquet is damaged", "saturated"):
        assert f"1 left out: {why}" in said
    assert not (tmp_path / "out.json").exists()


@pytest.mark.sweep
@pytest.mark.covers("C14")
def test_streamed_replies_are_those_of_an_llm_replica(tmp_path, monkeypatch):
    planted_replica_study(tmp_path)
    monkeypatch.chdir(tmp_path)
    said = in_process.said_by(["fit", "-c", NAME, "-o", "out.json"])
    found = read(tmp_path / "out.json", FittedModels)
    assert found.stations == ()
    [replica] = found.replicas
    for name, value in vars(COST).items():
        assert getattr(replica.parameters, name) == pytest.approx(value, rel=0.02), name
    assert (len(replica.sources), replica.max_num_seqs, replica.contradictions) == (12, 256, ())
    assert {name: (each.low, each.high) for name, each in replica.ranges.items()} == {
        "concurrency": (1, 16),
        "prompt_tokens": (64, 256),
        "reply_tokens": (16, 16),
    }
    assert {each.place for each in replica.scores} == {"inside"}
    assert "12 trials" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"prompt_len_shape": "uniform", "prompt_len_spread": 0.5}, "its prompts differ in length"),
        ({"prefix_len": 32}, "its prompts have a common prefix"),
        ({"batch": 2}, "its requests have several prompts each"),
    ],
)
def test_requests_that_cannot_be_replayed_stay_out(tmp_path, monkeypatch, settings, why):
    planted_replica_study(tmp_path, concurrency=1, prompt_len=64, **settings)
    monkeypatch.chdir(tmp_path)
    said = in_process.said_by(["fit", "-c", NAME, "-o", "out.json"], code=2)
    assert f"2 left out: {why}" in said


@pytest.mark.slow
def test_replies_in_one_piece_stay_out(tmp_path, monkeypatch):
    planted_replica_study(tmp_path, whole=True, concurrency=[1, 4], prompt_len=64)
    monkeypatch.chdir(tmp_path)
    said = in_process.said_by(["fit", "-c", NAME, "-o", "out.json"], code=2)
    assert "4 left out: its replies came in one piece" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "severity", "stays"),
    [
        ("shard_lost", "suspect", False),
        ("loop_lag", "suspect", False),
        ("clock_offset", "suspect", False),
        ("clock_offset", "note", True),
        ("tokens_not_counted", "suspect", False),
        ("tokens_not_counted", "note", True),
        ("busy_elsewhere", "suspect", True),
    ],
)
def test_a_trial_whose_times_are_not_those_of_its_server_stays_out(tmp_path, code, severity, stays):
    folder = planted_study(tmp_path, rate_rps=[40, 80])
    named = next(folder.root.glob("*--*/metrics.json"))
    document = json.loads(named.read_text())
    reason = {"code": code, "severity": severity, "text": "t", "remedy": "r"}
    document["reasons"] = [reason]
    named.write_text(json.dumps(document))
    found = fit_inputs([(read(folder.plan, Plan), folder)])
    assert [each.trial for each in found.left_out] == ([] if stays else [named.parent.name])


def doubted(folder, verdict="SUSPECT", code="busy_elsewhere"):
    """Give every trial of a study a verdict with one reason."""
    for path in folder.root.glob("*--*/metrics.json"):
        document = json.loads(path.read_text())
        severity = verdict.lower()
        document |= {
            "verdict": verdict,
            "reasons": [{"code": code, "severity": severity, "text": "t", "remedy": "r"}],
        }
        path.write_text(json.dumps(document))


@pytest.mark.slow
@pytest.mark.covers("C14")
def test_suspect_trials_enter_fit_score_and_plan_by_the_name_of_their_reason(tmp_path, monkeypatch):
    doubted(planted_study(tmp_path))
    monkeypatch.chdir(tmp_path)
    said = in_process.said_by(["fit", "-c", NAME, "-o", "out.json"])
    [model] = read(tmp_path / "out.json", FittedModels).stations
    assert {source.suspect for source in model.sources} == {("busy_elsewhere",)}
    told = f"{len(model.sources)} of {len(model.sources)} trials SUSPECT: busy_elsewhere {len(model.sources)}"
    assert told in said
    asked = ["--fit", "out.json", "--rate", "50", "--slo", "latency_mean_s <= 0.5", "--duration-s", "20"]
    said = in_process.run(["capacity", *asked, "--trials", "20"])[1]
    first = said.splitlines()[0]
    assert not first.startswith("SUSPECT"), said
    assert "SUSPECT: busy_elsewhere." in first
    assert told in said
    said = in_process.run(["capacity", *asked, "--trials", "20", "--format", "json"])[1]
    assert json.loads(said)["layouts"][0]["sources_suspect"] == ["busy_elsewhere"]


def test_an_invalid_trial_enters_no_fit_whatever_its_reason(tmp_path):
    folder = planted_study(tmp_path, rate_rps=[40, 80])
    doubted(folder, "INVALID", "high_error_rate")
    found = fit_inputs([(read(folder.plan, Plan), folder)])
    assert found.stations == []
    assert {each.why for each in found.left_out} == {"INVALID: high_error_rate"}


@pytest.mark.covers("C14")
def test_a_load_that_ran_out_of_requests_counts_until_its_last_one(tmp_path):
    folder = planted_study(tmp_path, requests=400)
    [group] = fit_inputs([(read(folder.plan, Plan), folder)]).stations
    assert len(group.trials) == 6
    for trial, served in zip(group.trials, group.served, strict=True):
        assert trial.rate_rps == pytest.approx(float(served.trial.settings["rate_rps"]), rel=0.2)
        assert trial.until_s == pytest.approx(float(trial.arrival_s[-1]), abs=0.001)
        metrics = json.loads(folder.trial(served.trial.id).metrics.read_text())
        assert trial.figures["throughput_rps"] == pytest.approx(metrics["requests_per_s"], rel=0.02)


@pytest.mark.slow
def test_the_same_load_of_another_scenario_is_left_out_with_it(tmp_path):
    folders = [planted_study(tmp_path / str(length_s), duration_s=length_s) for length_s in (12, 11)]
    [group] = fit_inputs([(read(folder.plan, Plan), folder) for folder in folders]).stations
    assert len({each.trial.treatment for each in group.served}) == 6
    assert len({trial.treatment for trial in group.trials}) == 3


@pytest.mark.slow
def test_models_of_servers_that_differ_in_a_fixed_setting_have_names_that_tell_them_apart(tmp_path):
    folders = [planted_study(tmp_path / str(ms), ttft_ms=ms, rate_rps=[40, 80]) for ms in (5.0, 20.0)]
    found = fit_inputs([(read(folder.plan, Plan), folder) for folder in folders])
    assert [group.name for group in found.stations] == ["known ttft_ms=5.0", "known ttft_ms=20.0"]


def test_closed_loops_stay_out(tmp_path, monkeypatch):
    planted_study(tmp_path, pattern="closed", concurrency=[1, 2], rate_rps=None)
    monkeypatch.chdir(tmp_path)
    said = in_process.said_by(["fit", "-c", NAME, "-o", "out.json"], code=2)
    assert "4 left out: a closed loop: its rate follows from the server" in said


@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-c", "plnted", "-o", "x.json"), "Did you mean 'planted'?"),
        (("-c", "quickstart", "-o", "x.json"), "no trial of it is measured yet"),
        (("-c", "results", "-o", "x.json"), "name one, such as results/planted"),
        (("-c", "config", "-o", "x.json"), "no results of a scenario"),
        (("-c", NAME, "-o", "nowhere/x.json"), "no file can be written in nowhere"),
        (("-c", NAME, "-o", "results"), "results: a folder"),
        (("-c", NAME, "-o", f"results/{NAME}/plan.json"), "plan.json: is a file that this command reads"),
        (("-c", NAME, "-o", f"config/scenarios/{NAME}.yaml"), "is the file of --config"),
        (("-c", NAME), "Missing option '-o'"),
        (("-o", "x.json"), "--config: name a scenario"),
        (("-c", NAME, "-o", "x.json", "--servers", "0"), "--servers"),
        (("-c", NAME, "-o", "x.json", "--servers", "two"), "--servers"),
        (("-c", NAME, "-o", "x.json", "--seed", "-1"), "--seed"),
        (("-c", NAME, "-o", "x.json", "--site", "nowhere"), "site 'nowhere'"),
        (("-c", NAME, "-o", "x.json", "--server", "2"), "--servers"),
    ],
)
def test_a_wrong_use_is_said_with_exit_code_2_and_writes_nothing(inside, words, said):
    before = sorted(path for path in inside.rglob("*") if ".seamark" not in path.parts)
    text = in_process.said_by(["fit", *words], code=2)
    assert said in text, text
    assert "Traceback" not in text
    assert sorted(path for path in inside.rglob("*") if ".seamark" not in path.parts) == before
