"""The turns of a session: each prompt is all that was said before it, and a new part; lengths hold."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from seamark.drivers.openai.driver import OpenAi, quality
from seamark.errors import UserError
from seamark.load.driver import Target
from seamark.load.engine.connection import Outgoing
from seamark.load.engine.event_loop import encode_all, whole_sessions
from seamark.load.engine.mix import mixed
from seamark.services.ephemeral_server import ephemeral_server


def driver(**settings: Any) -> OpenAi:
    settings = {"model": "m", "prompt_len": 20, "gen_tokens": 9, "turns": 3, **settings}
    return OpenAi(Target(settings=settings, data=Path(), ports={"http": 8000}))


def documents(made: Any, count: int = 6, seed: int = 1) -> list[dict[str, Any]]:
    requests = encode_all(made, made.bodies(count, seed))
    return [json.loads(b"".join(request.data).partition(b"\r\n\r\n")[2]) for request in requests]


@pytest.mark.covers("E-FR14")
def test_a_turn_tells_all_that_was_said_before_and_a_new_part():
    first, second, third, *others = (x["prompt"] for x in documents(driver()))
    assert [len(first), len(second), len(third)] == [20, 20 + 9 + 20, 2 * (20 + 9) + 20]
    assert second[:20] == first
    assert third[:49] == second
    assert [len(prompt) for prompt in others] == [20, 49, 78]
    assert others[0] != first
    assert others[2][:49] == others[1]
    assert [x["prompt"] for x in documents(driver())] == [first, second, third, *others]


def test_in_a_chat_user_and_model_speak_in_turn():
    third = documents(driver(endpoint="chat"))[2]
    assert [message["role"] for message in third["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert [len(message["content"].split()) for message in third["messages"]] == [20, 9, 20, 9, 20]
    second = documents(driver(endpoint="chat"))[1]
    assert third["messages"][:3] == second["messages"]


def test_a_text_is_all_that_was_said():
    first, second, third = (x["prompt"] for x in documents(driver(prompt_form="text"))[:3])
    assert second.startswith(first + " ")
    assert third.startswith(second + " ")
    assert [len(text.split()) for text in (first, second, third)] == [20, 49, 78]


def test_lengths_that_are_drawn_add_up_and_replies_have_the_length_that_was_asked_for():
    made = driver(
        prompt_len_shape="uniform", prompt_len_spread=0.5, gen_tokens_shape="uniform", gen_tokens_spread=0.5
    )
    bodies = made.bodies(300, 4)
    assert len({body.content.gen_tokens for body in bodies}) > 5
    for at in range(0, 300, 3):
        session = [body.content for body in bodies[at : at + 3]]
        assert [len(ask.prompts[0]) for ask in session] == [ask.prompt_units for ask in session]
        for before, ask in pairwise(session):
            new = ask.prompt_units - before.prompt_units - before.gen_tokens
            assert 10 <= new <= 30


def test_a_shared_prefix_is_that_of_the_first_turn():
    first, second, _, other, *_ = (x["prompt"] for x in documents(driver(prefix_len=15)))
    assert first[:15] == other[:15] == second[:15]
    assert first[15:] != other[15:]


def test_each_turn_is_a_kind_and_bodies_are_whole_sessions():
    made = driver()
    assert made.kinds == ["turn-1", "turn-2", "turn-3"]
    assert made.body_count % 3 == 0
    assert [body.kind for body in made.bodies(8, 1)] == [0, 1, 2, 0, 1, 2]
    assert [body.kind for body in made.bodies(1, 1)] == [0, 1, 2]
    assert list(driver(turns=1).kinds) == list(driver(turns=None).kinds) == ["completions"]
    long = driver(prompt_len=4000, gen_tokens=4000, turns=10)
    assert long.body_count == pytest.approx((64 << 20) / (6 * 40_000), rel=0.1)


@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"max_model_len": 86},
            "turns: the 3 turns of a session come to 87 tokens, prompts and replies together, and",
        ),
        ({"batch": 2}, "batch: 2 prompts in one request have no turns. Set batch or turns to 1"),
    ],
)
def test_sessions_that_no_model_can_have_are_said_so(settings: dict[str, Any], says: str):
    with pytest.raises(UserError) as caught:
        driver(**settings).bodies(3, 1)
    assert says in str(caught.value)
    assert driver(max_model_len=87).bodies(3, 1)


def test_sessions_that_were_cut_for_their_size_are_cut_whole():
    requests = [Outgoing((b"x",), 1, 0)] * 8
    assert len(whole_sessions(requests, 3)) == 6
    assert len(whole_sessions(requests, 1)) == 8
    with pytest.raises(UserError, match="turns: the 9 requests of one session take more than 256 MiB"):
        whole_sessions(requests, 9)


def test_a_session_is_of_one_class_of_the_mix():
    mix = {"chat": {"prompt_len": 5, "weight": 3}, "search": {"prompt_len": 40, "weight": 1}}
    settings = {"mix": json.dumps(mix), "gen_tokens": 2, "turns": 2}
    made = mixed(OpenAi, Target(settings=settings, data=Path(), ports={"http": 8000}))
    assert made.kinds == ["chat/turn-1", "chat/turn-2", "search/turn-1", "search/turn-2"]
    bodies = made.bodies(4000, 1)
    kinds = [body.kind for body in bodies]
    assert kinds.count(0) == kinds.count(1) == 1500
    assert kinds.count(2) == kinds.count(3) == 500
    told = documents(made, 4000)
    for at in range(0, 4000, 2):
        assert kinds[at + 1] == kinds[at] + 1
        before, after = told[at]["prompt"], told[at + 1]["prompt"]
        assert after[: len(before)] == before
        assert len(after) == 2 * len(before) + 2


@pytest.mark.services
def test_the_server_counts_the_prompts_of_sessions_as_they_were_made(tmp_path: Path):
    with ephemeral_server("seamark.testservers.reference") as port:
        for endpoint in ("completions", "chat"):
            settings = {"prompt_len": 20, "gen_tokens": 9, "turns": 3, "endpoint": endpoint}
            found = quality(Target(settings=settings, data=tmp_path, ports={"http": port}), 1)
            assert found["prompt_tokens_ratio"] >= 1
            if endpoint == "completions":
                assert found == {"prompt_tokens_ratio": 1.0, "prompt_tokens_right_ratio": 1.0}
