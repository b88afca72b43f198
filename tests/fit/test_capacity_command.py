"""`bench capacity`: its answer, what it refuses, the scenario that checks it, and each wrong use in one line."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import in_process
import pytest
import yaml
from fitted_models import KNOWN, constant_draws, fit_file, llama, on, station
from model_folders import LLAMA_8B, LLAMA_8B_PARAMETERS, LLAMA_70B, LLAMA_70B_PARAMETERS, write_model
from planted_study import planted_results

from seamark.config.read import Recipes
from seamark.model.results.comparison import PredictionScore
from seamark.planning.study import Study
from seamark.storage.codec import decode, encode, parse
from seamark_simulate.model.capacity_plan import BreaksFirst, CapacityPlan
from seamark_simulate.model.fitted_model import FittedServer, InputRange
from seamark_simulate.report.capacity import plan_lines
from seamark_simulate.trials.capacity_layouts import choices_of
from seamark_simulate.trials.capacity_load import CapacityAsked

ROOT = Path(__file__).parents[2]
QUICK = ("--duration-s", "20", "--warmup-s", "2", "--trials", "40")
ASKED = ("--fit", "known.fit.json", "--rate", "150", "--slo", "latency_mean_s <= 0.03", *QUICK)
OF_LLAMA = (
    "--fit",
    "llama.fit.json",
    "--rate",
    "30",
    "--slo",
    "ttft_p99_s <= 0.5",
    "--duration-s",
    "45",
    "--trials",
    "20",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("study")
    shutil.copytree(ROOT / "config", root / "config")
    fit_file(root / "known.fit.json", station())
    fit_file(root / "llama.fit.json", llama(), on("h100-80"))
    contradicted = ("t1: service times are not exponential", "t2: one request was served for 900 ms")
    fit_file(root / "contradicted.fit.json", station(contradictions=contradicted))
    fit_file(root / "several.fit.json", station(), station(name="other", service="null"))
    fit_file(
        root / "lengths.fit.json", llama(ranges={**llama().ranges, "prompt_tokens": InputRange(low=64, high=512)})
    )
    fit_file(root / "empty.fit.json")
    fit_file(root / "eight.fit.json", station(name="postgres", service="postgres", servers=8))
    fit_file(root / "twice.fit.json", station(), station(servers=2))
    fit_file(root / "older.fit.json", station(server=FittedServer()))
    (root / "damaged.fit.json").write_text('{"schema_version": 1, "seed": "one"')
    (root / "hand.yaml").write_text("stations: [{name: q, parameters: {mean_s: 0.01}}]")
    write_model(root / "llama-3.1-8b", LLAMA_8B, LLAMA_8B_PARAMETERS)
    write_model(root / "llama-3.1-70b", LLAMA_70B, LLAMA_70B_PARAMETERS)
    (root / "price.yaml").write_text("currency: EUR\ngpu_hour: {a100-80: 2, h100-80: 5}\nserver_hour: 0.5\n")
    (root / "no_price.yaml").write_text("currency: EUR\n")
    (root / "typo.yaml").write_text("gpu_hours: {a100-80: 2}\n")
    (root / "minus.yaml").write_text("gpu_hour: {a100-80: -2}\n")
    (root / "other.yaml").write_text("gpu_hour: {a100-40: 2}\n")
    return root


@pytest.fixture
def study(made, monkeypatch):
    monkeypatch.chdir(made)
    return made


def run(*words):
    return in_process.run(["capacity", *words])


def plan_of(*words):
    """Run `bench capacity --format json`; return its code and document, which must be the whole output."""
    code, said = run(*words, "--format", "json")
    return code, parse(said, CapacityPlan)


@pytest.mark.slow
@pytest.mark.covers("C14", "D8")
def test_the_first_sentence_is_the_fewest_servers_with_their_probability(study):
    code, said = run(*ASKED)
    assert code == 0, said
    first = said.splitlines()[0]
    assert first.startswith("2 servers of known meet latency_mean_s <= 0.03 at 150 requests/s with probability 1.00")
    assert "over 40 simulated trials" in first
    assert "Breaks first: queue. At " in said
    assert "Simulated, not measured: Poisson arrivals, 20 s a trial" in said


@pytest.mark.covers("C14")
@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("stations: [{name: q, family: constant, parameters: {mean_s: 0.01}}]", ()),
        ('{"stations": [{"name": "q", "parameters": {"mean_s": 0.01}}]}', ()),
        (
            "replicas: [{name: r, kv_blocks: 99, parameters: {base_s: 0.01, prompt_token_s: 0, sequence_s: 0}}]",
            ("--prompt-tokens", "10", "--reply-tokens", "2"),
        ),
    ],
)
def test_a_model_by_hand_is_planned_for(study, tmp_path, model, asked):
    (tmp_path / "hand.fit").write_text(model)
    code, plan = plan_of(
        *("--fit", str(tmp_path / "hand.fit"), "--rate", "20", "--slo", "latency_mean_s <= 0.2"),
        *("--trials", "20", "--duration-s", "10", *asked),
    )
    assert (code, plan.layouts[plan.answer].replicas) == (0, 1)
    assert not plan.layouts[plan.answer].chosen.outside


@pytest.mark.slow
def test_the_document_has_the_answer_the_question_and_every_number_that_was_judged(study):
    code, plan = plan_of(*ASKED, "--price", "price.yaml", "--confidence", "0.9")
    less = BreaksFirst(
        part="queue", replicas=1, rate_rps=150.0, objective="latency_mean_s <= 0.03", value_s=0.2, without_s=0.005
    )
    assert any("With one server less, 1, at 150" in line for line in plan_lines(replace(plan, breaks_first=less)))
    earlier = {name: value for name, value in encode(less).items() if name != "replicas"}
    assert decode(earlier, BreaksFirst).replicas is None
    assert any(
        " queue. At 150" in line for line in plan_lines(replace(plan, breaks_first=replace(less, replicas=None)))
    )
    assert code == 0
    [layout] = plan.layouts
    assert (plan.origin, plan.answer, layout.status, layout.replicas, layout.gpus) == (
        "simulated",
        0,
        "meets",
        2,
        None,
    )
    assert layout.cost_per_hour == 1.0
    assert "for EUR 1.00 an hour" in plan.sentence
    assert plan.question.slos == ("latency_mean_s <= 0.03",)
    assert [each.replicas for each in layout.judged] == [2]
    assert layout.chosen is not None
    assert layout.chosen.met / layout.chosen.trials == layout.chosen.probability
    assert layout.chosen.probability_low < layout.chosen.probability <= layout.chosen.probability_high
    value, low, high = layout.figures["latency_mean_s <= 0.03"]
    assert low <= value <= high
    assert value == pytest.approx(0.0229, rel=0.1)  # M/M/2 at 0.75
    assert plan.largest_load is not None
    assert plan.largest_load.suspect is None


@pytest.mark.slow
def test_equal_seeds_give_equal_plans_and_other_seeds_others(study):
    plans = [plan_of(*ASKED, "--seed", seed)[1].layouts for seed in ("1", "1", "2")]
    assert plans[0] == plans[1] != plans[2]


@pytest.mark.covers("C14")
def test_a_load_outside_of_the_fit_is_refused_and_suspect_everywhere_with_extrapolate(study):
    low = ("--fit", "known.fit.json", "--rate", "4", "--slo", "latency_mean_s <= 0.03", *QUICK)
    code, said = run(*low)
    assert code == 2
    assert "its load lies outside of the fit with any number up to 16" in said
    assert "with 1, utilisation 0.04 (0.20 to 0.90); with 16, utilisation 0.00 (0.20 to 0.90)" in said
    assert "--extrapolate plans all the same, marked SUSPECT" in said
    code, said = run(*low, "--extrapolate")
    assert code == 0
    assert said.startswith("1 server of known meets")
    assert said.splitlines()[0].endswith("SUSPECT: extrapolated.")
    assert "the answer; SUSPECT extrapolated: utilisation 0.04 (0.20 to 0.90)" in said
    _, plan = plan_of(*low, "--extrapolate")
    assert plan.layouts[0].suspect == "extrapolated"
    assert plan.largest_load is not None
    assert plan.largest_load.suspect == "extrapolated"


def test_fewer_servers_outside_of_the_fit_are_a_note_and_not_judged(study):
    code, plan = plan_of("--fit", "known.fit.json", "--rate", "185", "--slo", "latency_mean_s <= 1", *QUICK)
    assert code == 0
    assert plan.layouts[0].replicas == 3
    assert plan.notes[0] == (
        "Fewer may do, and were not judged, as they lie outside of the fit: 2: utilisation 0.93 (0.20 to 0.90)."
    )
    assert [each.replicas for each in plan.layouts[0].judged] == [3]


@pytest.mark.covers("C14")
def test_a_fit_that_its_trials_contradict_is_refused_with_what_they_say(study):
    code, said = run("--fit", "contradicted.fit.json", *ASKED[2:])
    assert code == 2
    assert "known is unfit for plans: its own trials contradict it: t1: service times are not" in said
    assert "(and 1 more)" in said
    assert "fit again" in said


@pytest.mark.slow
def test_without_an_answer_it_names_the_trial_that_would_tell_most(study, tmp_path):
    spread = station(between=0.6, loads=(0.05, 0.9))
    fit_file(tmp_path / "spread.json", spread)
    asked = ("--rate", "60", "--slo", "latency_mean_s <= 0.011", *QUICK)
    code, said = run("--fit", str(tmp_path / "spread.json"), *asked)
    assert code == 1
    assert said.startswith(
        "No layout is known to meet latency_mean_s <= 0.011 at 60 requests/s with probability 0.95"
    )
    assert "What repeats differ by is the largest uncertainty" in said.splitlines()[0]
    drawn = station(family="gamma", loads=(0.05, 0.9), draws=constant_draws(0.005, 0.02))
    fit_file(tmp_path / "drawn.json", drawn)
    code, said = run("--fit", str(tmp_path / "drawn.json"), *asked)
    assert code == 1
    assert "The parameters of the model are the largest uncertainty" in said.splitlines()[0]
    few = station(loads=(0.6, 0.9))
    fit_file(tmp_path / "few.json", few)
    code, said = run("--fit", str(tmp_path / "few.json"), "--rate", "150", "--slo", "latency_mean_s <= 0.02", *QUICK)
    assert code == 1
    assert "3 or more lie outside of the fit, and may do" in said.splitlines()[0]
    assert "has 50 requests/s on one server of known" in said.splitlines()[0]
    code, said = run("--fit", "known.fit.json", "--rate", "60", "--slo", "latency_mean_s <= 0.001", *QUICK)
    assert code == 1
    assert "No number of replicas helps" in said.splitlines()[0]
    assert "a replica more" not in said
    assert "Allow more GPUs" not in said
    assert "Breaks first: service time. With 1 server, at 60.0 requests/s " in said


@pytest.mark.slow
@pytest.mark.covers("C14")
def test_a_server_that_serves_several_requests_at_once_is_one_server(study):
    """Eight workers of 10 ms behind one queue: at 600 requests a second their mean response is 11 ms, by Erlang."""
    asked = ("--fit", "eight.fit.json", "--rate", "600", "--slo", "latency_mean_s <= 0.03", *QUICK)
    code, plan = plan_of(*asked, "--price", "price.yaml")
    assert code == 0
    assert plan.sentence.startswith("1 server of postgres meets")
    assert (plan.layouts[0].cost_per_hour, plan.layouts[0].workers_per_replica) == (0.5, 8)
    assert plan.layouts[0].figures["latency_mean_s <= 0.03"][0] == pytest.approx(0.0117, abs=0.001)
    assert "A server of postgres serves 8 requests at once, as its fit says." in plan.notes
    assert run(*asked, "--verify", "eight.yaml")[0] == 0
    document = yaml.safe_load((study / "eight.yaml").read_text())
    assert document["workload"]["rate_rps"] == [480.0, 600.0, 720.0]
    _, twice = plan_of("--fit", "eight.fit.json", "--rate", "1200", *asked[4:])
    assert twice.sentence.startswith("2 servers of postgres meet")
    assert any(note.endswith("All servers are planned with one common queue, the best case.") for note in twice.notes)
    (study / "eight.yaml").unlink()
    code, said = run(*asked, "--router", "random")
    assert code == 2
    assert "a server of postgres has 8 workers behind a queue of its own" in said


def test_workers_that_a_setting_started_are_servers_of_a_plan(tmp_path):
    recipes = Recipes(ROOT / "config" / "services")
    four = station(servers=4, server=replace(station().server, settings=KNOWN | {"queue_servers": 4}))
    for model, workers in ((station(), 1), (station(servers=4), 4), (four, 1), (station(servers=3, service=""), 3)):
        [choice] = choices_of([model], CapacityAsked(rate_rps=1.0, slos=(), most_gpus=1), None, recipes)
        assert choice.layout.workers_per_replica == workers


@pytest.mark.slow
@pytest.mark.covers("D8")
def test_kinds_of_gpu_without_a_fit_are_listed_and_not_guessed(study):
    code, plan = plan_of("--model", "llama-3.1-8b", *OF_LLAMA, "--gpus", "a100-80,v100-32", "--most-gpus", "4")
    assert code == 0
    known = {(each.gpu, each.tensor_parallel, each.pipeline_parallel): each for each in plan.layouts}
    assert plan.layouts[plan.answer] is known["a100-80", 1, 1]
    assert known["a100-80", 2, 1].why == "no trials of this layout on this GPU"
    assert known["v100-32", 1, 1].why == "no fitted model of this GPU"
    assert all(each.chosen is None for each in plan.layouts if each.gpu == "v100-32")
    assert known["a100-80", 1, 1].kv_blocks_from == "computed from the memory of the GPU"
    room_bytes = (72 - 14.96 - 4.8 - 0.15) * 2**30
    assert known["a100-80", 1, 1].kv_blocks == pytest.approx(room_bytes / 131_072 / 16, rel=1e-3)


@pytest.mark.covers("D8")
def test_70b_on_small_gpus_is_refused_by_memory_with_class_and_remedy(study):
    code, said = run("--model", "llama-3.1-70b", *OF_LLAMA, "--gpus", "a100-40", "--most-gpus", "1")
    assert code == 2
    assert said.startswith("llama-3.1-70b: a100-40: weights_do_not_fit: weights 131.42")
    assert said.rstrip().endswith("Use --most-gpus 8.")
    assert len(said.splitlines()) == 1


def test_costs_of_another_models_steps_are_not_used(study):
    code, said = run("--model", "llama-3.1-70b", *OF_LLAMA, "--gpus", "a100-80", "--most-gpus", "8")
    assert code == 2
    assert "was fitted to trials of 'llama-3.1-8b', and steps of another model take other times" in said


@pytest.mark.slow
@pytest.mark.covers("C14")
def test_the_cheapest_kind_is_the_answer_and_without_prices_the_fewest_gpus(study, tmp_path):
    """The faster kind needs one GPU and costs more than the two of the slower."""
    fast = on("h100-80", parameters=replace(llama().parameters, base_s=0.002, prompt_token_s=1e-5, sequence_s=1e-4))
    fast = replace(fast, ranges={**fast.ranges, "rate_rps": InputRange(low=1.0, high=100.0)})
    fit_file(tmp_path / "two.json", llama(), fast)
    words = ("--fit", str(tmp_path / "two.json"), *OF_LLAMA[2:])
    _, plan = plan_of(*words)
    assert plan.sentence.startswith("1 h100-80 (1 replica) (the fewest) meets")
    assert "Which kind of GPU is cheaper depends on prices, which --price gives." in plan.notes
    _, plan = plan_of(*words, "--price", "price.yaml")
    assert plan.sentence.startswith("2 a100-80 (2 replicas) (the cheapest) meet")
    assert [each.cost_per_hour for each in plan.layouts] == [4.0, 5.0]


@pytest.mark.slow
@pytest.mark.covers("C14")
def test_the_verifying_scenario_measures_below_at_and_above_the_load_and_its_trials_do_not_depend_on_the_prediction(
    study,
):
    code, said = run(*ASKED, "--verify", "verify.yaml")
    assert code == 0, said
    document = yaml.safe_load((study / "verify.yaml").read_text())
    workload = document["workload"]
    assert {name: workload[name] for name in KNOWN} == KNOWN | {"concurrency": 256}
    assert (workload["queue_servers"], workload["rate_rps"]) == (2, [120.0, 150.0, 180.0])
    assert workload["slos"] == ["latency_mean_s <= 0.03"]
    assert [load["rate_rps"] for load in document["prediction"]["loads"]] == [120.0, 150.0, 180.0]
    mets = [load["met"] for load in document["prediction"]["loads"]]
    assert mets[0] >= mets[1] > mets[2]
    planned = Study.at(study, scenario="verify.yaml").plan
    (study / "bare.yaml").write_text(yaml.safe_dump({key: document[key] for key in document if key != "prediction"}))
    assert Study.at(study, scenario="bare.yaml").plan.trials == planned.trials
    (study / "verify.yaml").unlink()


@pytest.mark.slow
@pytest.mark.covers("C14")
def test_a_score_counts_measured_figures_in_their_intervals_and_right_verdicts(study):
    run(*ASKED, "--verify", "scored.yaml")
    planted_results(study, study / "scored.yaml", servers=2, mean_s=0.01)
    code, said = run("--score", "scored.yaml", "--format", "json")
    assert code == 0, said
    score = parse(said, PredictionScore)
    assert [load.rate_rps for load in score.loads] == [120, 150, 180]
    assert score.compared == sum(len(each.measured) for load in score.loads for each in load.figures) > 30
    assert score.inside / score.compared > 0.7
    counted = sum(
        each.low <= value <= each.high for load in score.loads for each in load.figures for value in each.measured
    )
    assert counted == score.inside
    assert score.loads[0].right
    code, said = run("--score", "scored.yaml")
    assert said.startswith(f"{score.inside} of {score.compared} measured figures lie in their 90 % intervals")
    assert f"right at {score.right} of {score.judged} loads" in said
    assert parse(run("--score", "results/scored", "--format", "json")[1], PredictionScore).inside == score.inside
    for number, path in enumerate(sorted((study / "results" / "scored").glob("*--*/metrics.json"))):
        document = json.loads(path.read_text())
        verdict = "SUSPECT" if number else "INVALID"
        reason = {"code": "busy_elsewhere", "severity": verdict.lower(), "text": "t", "remedy": "r"}
        path.write_text(json.dumps(document | {"verdict": verdict, "reasons": [reason]}))
    said = run("--score", "scored.yaml")[1]
    assert "8 trials SUSPECT: busy_elsewhere" in said.splitlines()[0]
    assert "1 trial left out: INVALID" in said
    planted_results(study, study / "scored.yaml", servers=2, mean_s=0.013)
    slower = parse(run("--score", "scored.yaml", "--format", "json")[1], PredictionScore)
    assert slower.inside < 0.5 * slower.compared
    assert not slower.loads[1].right


@pytest.mark.slow
def test_a_service_without_a_setting_of_replicas_has_one_measured_with_its_share(study):
    code, said = run("--model", "llama-3.1-8b", *OF_LLAMA, "--gpus", "a100-80", "--verify", "share.yaml")
    assert code == 0, said
    document = yaml.safe_load((study / "share.yaml").read_text())
    assert (document["site"], document["partition"], document["account"]) == ("meluxina", "gpu", "p200000")
    assert document["resources"]["gpus"] == 1
    assert document["workload"]["rate_rps"] == [12.0, 15.0, 18.0]
    assert (document["workload"]["prompt_len"], document["workload"]["gen_tokens"]) == (128, 16)
    assert "one is measured with its share" in " ".join(document["prediction"]["notes"].split())
    (study / "share.yaml").unlink()


@pytest.mark.slow
@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--fit, --rate, --slo missing"),
        (ASKED[2:], "--fit missing"),
        (("--fit", "none.json", *ASKED[2:]), "--fit none.json: no such file. `bench fit"),
        (("--fit", "damaged.fit.json", *ASKED[2:]), "`bench fit -c SCENARIO -o FILE` writes it again."),
        (("--fit", "price.yaml", *ASKED[2:]), "price.yaml:1: currency: unknown key. Allowed: stations, replicas."),
        (("--fit", "config", *ASKED[2:]), "config: is a folder"),
        (("--fit", "hand.yaml", *ASKED[2:], "--verify", "x.yaml"), "Fit measured trials with `bench fit`"),
        (("--fit", "empty.fit.json", *ASKED[2:]), "no model in it"),
        (("--fit", "twice.fit.json", *ASKED[2:]), "several models of one name. Run `bench fit` again"),
        (("--fit", "several.fit.json", *ASKED[2:]), "Name those to choose from: --server NAME"),
        ((*ASKED, "--server", "knwon"), "Did you mean 'known'?"),
        (("--fit", "known.fit.json", "--rate", "0", *ASKED[4:]), "--rate"),
        (("--fit", "known.fit.json", "--rate", "fast", *ASKED[4:]), "--rate"),
        (("--fit", "known.fit.json", "--rate", "1e6", *ASKED[4:]), "are more than 2,000,000"),
        ((*ASKED[:4], "--slo", "latency_mean_s < 0.03"), "Use <= or >="),
        ((*ASKED[:4], "--slo", "fast"), "is not of the form"),
        ((*ASKED[:4], "--slo", "ttft_p99_s <= 0.5"), "'ttft_p99_s <= 0.5' cannot be planned for"),
        ((*ASKED[:4], "--slo", "latency_p99_s >= 0.5"), "cannot be planned for"),
        ((*ASKED, "--slo", "latency_mean_s <= 0.04"), "latency_mean_s has a limit already"),
        ((*ASKED[:4], "--slo", "latency_p99_s <= 1", "--duration-s", "2"), "needs 1,000 requests in a trial"),
        ((*OF_LLAMA, "--reply-tokens", "1", "--slo", "tpot_p50_s <= 1"), "a reply of one token has no time per"),
        ((*ASKED, "--confidence", "95"), "--confidence"),
        ((*ASKED, "--trials", "3"), "--trials"),
        ((*ASKED, "--seed", "-1"), "--seed"),
        ((*ASKED, "--most-gpus", "0"), "--most-gpus"),
        ((*ASKED, "--router", "random-robin"), "--router"),
        ((*ASKED, "--warmup-s", "-1"), "--warmup-s"),
        ((*ASKED, "--format", "yaml"), "--format"),
        ((*ASKED, "--prompt-tokens", "128"), "a station knows no tokens"),
        ((*ASKED, "--reply-tokens", "0"), "--reply-tokens"),
        ((*ASKED, "--max-model-len", "0"), "--max-model-len"),
        ((*ASKED, "--gpus", "a100-4O"), "Did you mean 'a100-40'?"),
        ((*ASKED, "--gpus", ""), "no known kind of GPU"),
        ((*ASKED, "--model", "nowhere"), "config.json"),
        ((*ASKED, "--model", "llama-3.1-8b"), "is fitted as a station, which knows no steps"),
        (("--fit", "lengths.fit.json", *OF_LLAMA[2:]), "--prompt-tokens: missing"),
        ((*ASKED, "--price", "none.yaml"), "none.yaml: no such file"),
        ((*ASKED, "--price", "no_price.yaml"), "no_price.yaml:1: has no price"),
        ((*ASKED, "--price", "typo.yaml"), "Did you mean 'gpu_hour'?"),
        ((*ASKED, "--price", "minus.yaml"), "minus.yaml:1: gpu_hour.a100-80: "),
        ((*ASKED, "--price", "other.yaml"), "it has no 'server_hour'"),
        ((*OF_LLAMA, "--price", "other.yaml"), "no price of a100-80. Did you mean 'a100-40'?"),
        ((*ASKED, "--verify", "verify.json"), "no name of a scenario's file"),
        ((*ASKED, "--verify", "a--b.yaml"), "no name of a scenario's file"),
        ((*ASKED, "--verify", "price.yaml"), "it exists already"),
        ((*ASKED, "--verify", "nowhere/x.yaml"), "no folder nowhere"),
        (("--fit", "older.fit.json", *ASKED[2:], "--verify", "x.yaml"), "does not say how known was started"),
        ((*ASKED, "--site", "local"), "--site: is for --score"),
        (("--score", "quickstart", "--rate", "5"), "--score: cannot be used with --rate"),
        (("--score", "quickstart"), "no trial of it is measured yet"),
        (("--score", "nowhere.yaml"), "nowhere.yaml: no such file"),
        ((*ASKED, "--replica", "2"), "--replica"),
    ],
)
def test_a_wrong_use_is_one_line_with_exit_code_2_and_writes_nothing(study, words, said):
    before = sorted(path for path in study.rglob("*") if ".seamark" not in path.parts)
    code, text = run(*words)
    assert code == 2, text
    assert said in text, text
    assert "Traceback" not in text
    assert sorted(path for path in study.rglob("*") if ".seamark" not in path.parts) == before


@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"loads": []}, "prediction.loads: has no load"),
        ({"interval": 1.5}, "prediction.interval: 1.5 is not between 0 and 1"),
        ({"loads": [{"rate_rps": 7.0, "met": 1, "figures": {}}]}, "7 is no rate_rps of a workload. Rates: 5."),
        ({"loads": [{"rate_rps": 5.0, "met": 2, "figures": {}}]}, "2 is outside of 0 to 1"),
        ({"loads": [{"rate_rps": 5.0, "met": 1, "figures": {"latency_mean_s": [1, 2]}}]}, "needs three numbers"),
        ({"loads": [{"rate_rps": 5.0, "met": 1, "figures": {"latency_mean_s": [1, 2, 3]}}]}, "needs three numbers"),
        ({"load": []}, "Did you mean 'loads'?"),
        ({"loads": "many"}, "expected a list"),
    ],
)
def test_a_wrong_prediction_in_a_scenario_is_one_line_with_its_place(study, tmp_path, changes, said):
    good = {"loads": [{"rate_rps": 5.0, "met": 1.0, "figures": {"latency_mean_s": [2, 1, 3]}}], "interval": 0.9}
    workload = {"service": "known", "queue": "mm1", "ttft_ms": 10, "pattern": "poisson", "rate_rps": 5}
    path = tmp_path / "wrong.yaml"
    path.write_text(yaml.safe_dump({"scenario": "wrong", "workload": workload, "prediction": good | changes}))
    text = in_process.said_by(["plan", "-c", str(path)], code=2)
    assert said in text
    assert "wrong.yaml:" in text


@pytest.mark.slow
def test_a_score_of_a_scenario_without_measured_trials_says_how_to_measure(study):
    run(*ASKED, "--verify", "unmeasured.yaml")
    code, said = run("--score", "unmeasured.yaml")
    assert code == 2
    assert "unmeasured.yaml: no trial of it is measured yet. `bench submit` measures them" in said
    (study / "unmeasured.yaml").unlink()


@pytest.mark.slow
def test_a_document_of_a_plan_is_json_alone_with_what_is_written_said_beside_it(study):
    code, said = run(*ASKED, "--verify", "json.yaml", "--format", "json")
    (study / "json.yaml").unlink()
    assert code == 0
    document, _ = json.JSONDecoder().raw_decode(said)
    assert document["schema_version"] == 1
    assert set(document) >= {"sentence", "answer", "question", "layouts", "largest_load", "breaks_first", "notes"}
    assert said.rstrip().endswith("Verifying scenario: json.yaml")
