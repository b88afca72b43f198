"""Mixed request classes: exact shares, one sequence for all workers, and each class's own times."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seamark.drivers.null import Null
from seamark.drivers.openai import OpenAi
from seamark.errors import UserError
from seamark.load.driver import Body, Target
from seamark.load.engine.event_loop import encode_all
from seamark.load.engine.mix import classes_of, drawn, mixed, mixed_quality
from seamark.model.sample import Failure
from seamark.services.ephemeral_server import ephemeral_server

MS = 1_000_000
CHAT = {"prompt_len": 8, "gen_tokens": 2, "weight": 3}
SEARCH = {"prompt_len": 64, "gen_tokens": 8, "weight": 1}


def target(mix: dict[str, Any], **settings: Any) -> Target:
    return Target(settings={"mix": json.dumps(mix), **settings}, data=Path(), ports={"main": 80})


class GetPut(Null):
    """The null driver with two kinds of request."""

    kinds = ("get", "put")
    body_count = 10

    def bodies(self, count: int, seed: int) -> list[Body]:
        return [Body(content=b"", kind=at % 2) for at in range(count)]


def run_lengths(values: np.ndarray) -> float:
    return len(values) / (1 + np.count_nonzero(np.diff(values)))


@pytest.mark.parametrize(
    ("weights", "counts"),
    [((3, 1), (6144, 2048)), ((1, 2), (2730, 5460)), ((0.7, 0.2, 0.1), (5733, 1638, 819)), ((1,), (8192,))],
)
def test_each_class_has_exactly_its_share_in_an_order_of_chance(
    weights: tuple[float, ...], counts: tuple[int, ...]
) -> None:
    sequence = drawn(weights, 8192, seed=5)
    assert tuple(np.bincount(sequence).tolist()) == counts
    assert (drawn(weights, 8192, seed=5) == sequence).all()
    if len(weights) > 1:
        assert (drawn(weights, 8192, seed=6) != sequence).any()
        shares = np.array(counts) / len(sequence)
        assert run_lengths(sequence) == pytest.approx(1 / (1 - (shares**2).sum()), rel=0.05)
        for part in np.split(sequence[: len(sequence) // 8 * 8], 8):
            assert np.bincount(part, minlength=len(weights)) / len(part) == pytest.approx(shares, abs=0.06)


def test_a_rare_class_comes_all_the_same() -> None:
    counts = np.bincount(drawn((12345.678, 1.0), 8192, seed=1))
    assert counts[1] == 1
    assert abs(counts.sum() - 8192) <= 1


@pytest.mark.slow
@pytest.mark.covers("E-FR14")
def test_bodies_of_a_mix_are_those_of_its_classes_own_drivers() -> None:
    made = mixed(OpenAi, target({"chat": CHAT, "search": SEARCH}, model="m"))
    assert list(made.kinds) == ["chat", "search"]
    bodies = made.bodies(8192, 1)
    requests = encode_all(made, bodies)
    asked = [json.loads(b"".join(request.data).partition(b"\r\n\r\n")[2]) for request in requests]
    assert {
        (request.kind, len(each["prompt"]), each["max_tokens"]) for request, each in zip(requests, asked, strict=True)
    } == {
        (0, 8, 2),
        (1, 64, 8),
    }
    assert [request.kind for request in requests].count(0) == 6144
    assert len({request.data for request in requests if request.kind}) > 1000
    again = mixed(OpenAi, target({"chat": CHAT, "search": SEARCH}, model="m")).bodies(8192, 1)
    assert [(made.encode(body),) for body in again] == [request.data for request in requests]


@pytest.mark.slow
def test_large_prompts_of_several_classes_share_the_memory_that_one_has() -> None:
    large = {"prompt_len": 400_000, "gen_tokens": 1, "weight": 1}
    made = mixed(OpenAi, target({"a": large, "b": {**large, "gen_tokens": 2}, "c": CHAT}))
    requests = encode_all(made, made.bodies(8192, 1))
    assert len(requests) == 8190, "none is left out for its size: the shares would not be what they are"
    assert sum({id(piece): len(piece) for request in requests for piece in request.data}.values()) < 256 << 20


@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize(
    ("mix", "says"),
    [
        ({"a": {"stream": True}, "b": {"stream": False}}, "replies of its classes are read in different ways"),
        ({"a": {"weight": 0}}, "is no mix"),
        ({}, "is no mix"),
        ({"a": 3}, "is no mix"),
    ],
)
def test_classes_that_cannot_go_together_stop_the_load_before_its_clock(mix: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        mixed(OpenAi, target(mix))


def test_a_class_of_several_kinds_names_them_after_itself() -> None:
    made = mixed(GetPut, target({"some": {}, "more": {"weight": 2}}))
    assert list(made.kinds) == ["some/get", "some/put", "more/get", "more/put"]
    assert set(np.bincount([body.kind for body in made.bodies(3000, 1)]).tolist()) == {500, 1000}


def test_the_quality_of_a_mix_is_the_mean_by_weight() -> None:
    classes = classes_of(json.dumps({"a": {"k": 1, "weight": 3}, "b": {"k": 5, "weight": 1}, "name": "x"}))
    found = mixed_quality(classes, {"k": 0, "n": 2}, lambda each: {"recall": each["k"] * each["n"]})
    assert found == {"recall": (3 * 2 + 10) / 4}
    once = mixed_quality(classes, {}, lambda each: {"right_ratio": 1.0} if each["k"] == 1 else {})
    assert once == {"right_ratio": 1.0}


@pytest.mark.serial
@pytest.mark.services
@pytest.mark.covers("E-FR25")
def test_one_worker_or_four_send_the_same_classes_and_each_has_its_own_times(load: Callable) -> None:
    """On the reference server a reply of n tokens takes 20 ms + (n - 1) 10 ms."""
    mix = json.dumps({"chat": CHAT, "search": SEARCH})
    settings = {"driver": "seamark.drivers.openai:OpenAi", "mix": mix, "pattern": "poisson", "rate_rps": 100.0}
    with ephemeral_server("seamark.testservers.reference", "--ttft-ms", 20, "--gap-ms", 10) as port:
        settings |= {"port": port, "concurrency": 32, "duration_s": 1.0}
        single, sharded = load(**settings), load(**settings, shards=4)
    assert single.outcome.kinds == sharded.outcome.kinds == ("chat", "search")
    kinds = single.samples["kind"].tolist()
    assert kinds == sharded.samples["kind"].tolist()
    assert single.samples["bytes_sent"].tolist() == sharded.samples["bytes_sent"].tolist()
    assert 0.6 < kinds.count(0) / len(kinds) < 0.9
    for measured in (single, sharded):
        assert measured.failures() == {Failure.NONE: len(kinds)}
        samples = measured.samples
        for kind, tokens in ((0, 2), (1, 8)):
            mine = samples[samples["kind"] == kind]
            assert set(mine["units"].tolist()) == {tokens}
            truth_ms = 20 + 10 * (tokens - 1)
            took_ms = np.median(mine["last_ns"] - mine["sent_ns"]) / MS
            assert truth_ms <= took_ms < truth_ms + 8
            assert 20 <= np.median(mine["first_ns"] - mine["sent_ns"]) / MS < 28


@pytest.mark.services
def test_classes_of_a_call_driver_have_sessions_of_their_own(load: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    mix = json.dumps({"slow": {"sleep_s": 0.03, "weight": 1}, "quick": {"sleep_s": 0.001, "weight": 1}})
    measured = load("counted_driver:Counted", workers="threads", mix=mix, requests=40, duration_s=20.0)
    samples = measured.samples
    assert measured.outcome.kinds == ("slow", "quick")
    took_ms = (samples["last_ns"] - samples["sent_ns"]) / MS
    assert (took_ms[samples["kind"] == 0] >= 30).all()
    assert np.median(took_ms[samples["kind"] == 1]) < 20
    assert measured.failures() == {Failure.NONE: 40}
