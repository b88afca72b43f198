"""The load of a trial of the service `fitted`: its rate in the measured window, and whether its arrivals run out."""

import json
from pathlib import Path

import pytest

from seamark_simulate.config.fitted_load import FittedLoad

MODELS = Path(__file__).parents[2] / "config" / "models" / "example.yaml"


def load(duration_s: float | None, **settings: object) -> FittedLoad:
    unset = ("model", "replicas", "router", "kv_blocks", "max_num_seqs", "max_num_batched_tokens", "prompt_tokens")
    of = dict.fromkeys((*unset, "reply_tokens", "cached_tokens")) | {"model_file": str(MODELS), "model": "mm1"}
    return FittedLoad(settings=of | {"warmup_s": 1.0, "duration_s": duration_s} | settings)


def recorded(path: Path, begin_s: float = 0.0) -> dict[str, object]:
    """A thousand requests in 10 s."""
    rows = (json.dumps({"at_s": begin_s + number / 100}) + "\n" for number in range(1_000))
    path.write_text("".join(rows), encoding="utf-8")
    return {"pattern": "recorded", "requests_file": str(path)}


def rate_rps(of: FittedLoad) -> float:
    return of.rate_rps(of.requests(0).arrival_s)


@pytest.mark.covers("C14")
@pytest.mark.parametrize(
    ("duration_s", "ran_out"), [(None, True), (4.0, False), (8.99, False), (9.0, True), (99.0, True)]
)
def test_a_file_that_is_shorter_than_the_load_has_the_rate_until_its_last_request(tmp_path, duration_s, ran_out):
    of = load(duration_s, **recorded(tmp_path / "asked.jsonl"))
    assert (of.ran_out, rate_rps(of)) == (ran_out, pytest.approx(100.0, rel=0.01))


def test_steps_that_end_with_a_rate_of_0_have_the_rate_until_their_last_request():
    ended = load(99.0, pattern="steps", step_rates="100:10,0:90")
    assert (ended.ran_out, rate_rps(ended)) == (True, pytest.approx(100.0, rel=0.01))
    goes_on = load(99.0, pattern="steps", step_rates="100:10,0:80,100:10")
    assert (goes_on.ran_out, rate_rps(goes_on)) == (False, pytest.approx(1900 / 99))
    assert not load(8.0, pattern="steps", step_rates="100:10,0:90").ran_out, "there would be more"


def test_a_file_that_begins_late_has_the_rate_from_its_first_request_on(tmp_path):
    settings = recorded(tmp_path / "asked.jsonl", begin_s=3600.0)
    for duration_s in (None, 3_609.0, 5_000.0):
        assert rate_rps(load(duration_s, **settings)) == pytest.approx(100.0, rel=0.01)


def test_a_pattern_without_an_end_never_runs_out():
    assert not load(10.0, pattern="poisson", rate_rps=5.0).ran_out
