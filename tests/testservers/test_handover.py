"""Prompts handed over from prefill to decode by the reference server, in the words of vLLM's connector NIXL."""

import asyncio
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from shipped import SERVICES

from seamark.testservers.answers import Answers
from seamark.testservers.behaviour import Behaviour
from seamark.testservers.reference import behaviour_of, parser
from seamark.testservers.request import AnswerParameters, InvalidRequestError, read_ask
from seamark.testservers.server import ReferenceServer

PROMPT = {"prompt": list(range(40)), "max_tokens": 3, "stream": True}
SENDS = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    **dict.fromkeys(("remote_engine_id", "remote_block_ids", "remote_host", "remote_port")),
}
"""What vllm-router 0.1.17 asks of a prefill server."""
RECIPE = SERVICES["prefill_decode"]
assert RECIPE.server is not None
PARTS = {part.name: part for part in RECIPE.server.parts}


def asked(document: Mapping[str, Any], endpoint: Any = "completions") -> AnswerParameters:
    return read_ask(endpoint, json.dumps(document).encode(), blocks=True)


def sent(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request as the router sends it to prefill."""
    return {**document, "max_tokens": 1, "stream": False, "kv_transfer_params": SENDS}


@pytest.fixture
def served() -> Iterator[Callable[[Behaviour], ReferenceServer]]:
    loop = asyncio.new_event_loop()
    yield lambda behaviour: ReferenceServer(behaviour, loop, None)
    loop.close()


def reply_to(document: Mapping[str, Any], behaviour: Behaviour, endpoint: Any = "completions") -> dict[str, Any]:
    """Return the reply that is not streamed."""
    script = Answers(behaviour).script(asked(document, endpoint), None, 1)
    reply: dict[str, Any] = json.loads(b"".join(script.steps).partition(b"\r\n\r\n")[2])
    return reply


def behaviour_in(pool: str, **settings: object) -> Behaviour:
    """Return the behaviour of the second replica of a pool by its command line."""
    given = {setting.name: setting.default for setting in RECIPE.settings} | settings
    words = (word.format(host="h", ports={pool: 1}, settings=given, number=2) for word in PARTS[pool].command[3:])
    arguments = vars(parser().parse_args(list(words)))
    return behaviour_of({name: arguments[name] for name in arguments if name not in ("host", "port", "truth")})


@pytest.mark.covers("D8")
@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_prefill_computes_a_prompt_and_decode_takes_it_without_computing_it(
    endpoint: str, served: Callable[[Behaviour], ReferenceServer]
) -> None:
    text = " ".join(f"w{number}" for number in range(40))
    chat = {"messages": [{"role": "user", "content": text}], "max_tokens": 3, "stream": True}
    request = chat if endpoint == "chat" else PROMPT
    prefill = Behaviour(ttft_ns=1000, prefill_ns=10, cache_tokens=1024, engine_id="prefill-1", tensor_parallel=4)
    server = served(prefill)
    assert [server.begin(asked(sent(request), endpoint), 0)[2] for _ in range(2)] == [1000 + 400, 1000 + 80]
    handed = reply_to(sent(request), prefill, endpoint)["kv_transfer_params"]
    assert (handed["do_remote_prefill"], handed["do_remote_decode"]) == (True, False)
    assert (handed["remote_engine_id"], handed["tp_size"], len(handed["remote_block_ids"])) == ("prefill-1", 4, 3)

    decode = served(Behaviour(ttft_ns=20, prefill_ns=10, cache_tokens=1024, transfer_ns=2))
    ask = asked({**request, "kv_transfer_params": handed}, endpoint)
    assert (ask.stream, ask.max_tokens) == (True, 3)
    assert [decode.begin(ask, at)[2] - at for at in (0, 50)] == [20 + 80, 20 + 80]
    assert decode.begin(asked(request, endpoint), 0)[2] == 20 + 400, "a prompt that was not handed over is computed"
    page = decode.metrics().decode()
    assert "known_kv_received_tokens_total 80" in page
    assert "known_prefix_cache_queries_total 40" in page
    assert "known_kv_received_tokens_total 0" in server.metrics().decode()


@pytest.mark.covers("D8")
def test_only_a_prefill_that_was_asked_for_and_cut_off_is_handed_over() -> None:
    assert "kv_transfer_params" in reply_to(sent(PROMPT), Behaviour())
    assert "kv_transfer_params" not in reply_to({**PROMPT, "stream": False}, Behaviour())
    assert "kv_transfer_params" not in reply_to({**sent(PROMPT), "max_tokens": 9}, Behaviour(chunks=1))


@pytest.mark.covers("D8")
@pytest.mark.parametrize(
    "wrong", [{"remote_engine_id": None}, {"remote_port": None}, {"remote_block_ids": [0]}, {"remote_block_ids": 3}]
)
def test_a_wrong_handover_is_refused(wrong: dict[str, Any]) -> None:
    handed = reply_to(sent(PROMPT), Behaviour())["kv_transfer_params"]
    assert asked({**PROMPT, "kv_transfer_params": handed}).transfer == "receives"
    for given in (handed | wrong, [1]):
        with pytest.raises(InvalidRequestError) as refused:
            asked({**PROMPT, "kv_transfer_params": given})
        assert refused.value.status == 400


@pytest.mark.covers("D8")
def test_each_pool_has_a_parallelism_of_its_own_which_divides_its_times_of_computing() -> None:
    times = {"ttft_ms": 8.0, "gap_ms": 4.0, "prefill_ms": 0.8, "transfer_ms": 0.5}
    settings = {"prefill_tensor_parallel": 4, "decode_tensor_parallel": 2, **times}
    prefill, decode = (behaviour_in(pool, **settings) for pool in ("prefill", "decode"))
    assert (prefill.tensor_parallel, decode.tensor_parallel) == (4, 2)
    assert (prefill.engine_id, decode.engine_id) == ("prefill-2", "decode-2")
    assert (prefill.ttft_ns, prefill.prefill_ns) == (2_000_000, 200_000)
    assert (decode.ttft_ns, decode.gap_ns, decode.prefill_ns) == (2_000_000, 2_000_000, 400_000)
    assert decode.transfer_ns == 500_000, "no computing"


@pytest.mark.covers("D8")
def test_the_router_starts_after_both_pools_and_is_told_the_addresses_of_each() -> None:
    server = RECIPE.server
    assert server is not None
    assert [(part.name, part.count, part.health is not None) for part in server.parts] == [
        ("prefill", "prefill", True),
        ("decode", "decode", True),
    ]
    shell, option, script, name, _, _, *words = server.command
    urls = {f"{{urls[{pool}]}}": [f"http://{pool}:{port}" for port in (1, 2)] for pool in PARTS}
    told = [part for word in words for part in urls.get(word, [re.sub(r"\{.*?\}+", "x", word)])]
    ran = subprocess.run([shell, option, script, name, "queue", "echo", *told], capture_output=True, text=True)
    line = ran.stdout.strip()
    assert line.endswith(
        "--prefill http://prefill:1 --prefill http://prefill:2 --decode http://decode:1 --decode http://decode:2"
        " --policy power_of_two"
    )
    assert "--vllm-pd-disaggregation" in line
