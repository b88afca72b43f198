"""The reference server without sockets: its queue against theory, its lateness, its layout, its truth file."""

import re
from itertools import pairwise, product
from pathlib import Path
from random import Random
from typing import get_args

import numpy as np
import pytest
from shipped import SERVICES

from seamark.model.sample import MISSING_NS
from seamark.testservers.answers import Answers, cut, pieces_of
from seamark.testservers.behaviour import Behaviour, Fault, Queue, QueueKind, Split
from seamark.testservers.deadlines import QUANTILES, Lateness
from seamark.testservers.reference import main, parser
from seamark.testservers.request import AnswerParameters, Endpoint, InvalidRequestError, read_ask, read_head
from seamark.testservers.truth import read_truth

ROOT = Path(__file__).resolve().parents[2]
SERVICE_NS = 1_000_000
STREAM = AnswerParameters(endpoint="completions", stream=True, usage="end", max_tokens=4, prompt_tokens=3)


def sojourns(kind: QueueKind, utilisation: float, count: int, seed: int = 1, servers: int = 1) -> np.ndarray:
    """Return the times in the system of Poisson arrivals, in service times."""
    queue, draw = Queue(kind, SERVICE_NS, seed, servers), Random(f"arrivals {seed}")
    at_ns, found = 0, np.empty(count)
    for index in range(count):
        at_ns += round(draw.expovariate(servers * utilisation / SERVICE_NS))
        found[index] = (queue.leaves_ns(at_ns) - at_ns) / SERVICE_NS
    return found


@pytest.mark.slow
@pytest.mark.covers("E-FR14")
def test_an_mm1_queue_at_half_its_capacity_has_the_sojourn_times_of_theory() -> None:
    found = sojourns("mm1", 0.5, 300_000)
    assert found.mean() == pytest.approx(2.0, rel=0.03)
    assert np.percentile(found, 50) == pytest.approx(1.386, rel=0.03)
    assert np.percentile(found, 99) == pytest.approx(9.21, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("utilisation", "mean"), [(0.5, 1.5), (0.8, 3.0)])
def test_an_md1_queue_waits_as_pollaczek_and_khinchine_say(utilisation: float, mean: float) -> None:
    found = sojourns("md1", utilisation, 300_000)
    assert found.mean() == pytest.approx(mean, rel=0.03)
    assert found.min() == pytest.approx(1.0, rel=1e-6)


@pytest.mark.slow
def test_a_queue_of_several_servers_waits_as_erlang_says() -> None:
    """M/M/3 at 0.8: a request waits with probability 0.6472, and then 1 / (3 x 0.2) service times."""
    assert sojourns("mm1", 0.8, 400_000, servers=3).mean() == pytest.approx(1 + 0.6472 / 0.6, rel=0.04)


@pytest.mark.parametrize(("given", "servers"), [("", 1), ("none", 1), ("3", 3)])
def test_no_number_of_servers_means_one(given: str, servers: int) -> None:
    assert parser().parse_args(["--port=1", f"--queue-servers={given}"]).queue_servers == servers


@pytest.mark.parametrize("words", [["--queue-servers=0"], ["--queue-servers=x"], ["--queue-servers=2"]])
def test_a_wrong_number_of_servers_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--port=0", *words])
    assert "queue-servers" in capsys.readouterr().err


def test_the_seed_of_a_queue_gives_its_times_of_service() -> None:
    assert list(sojourns("mm1", 0.5, 50, seed=4)) == list(sojourns("mm1", 0.5, 50, seed=4))
    assert list(sojourns("mm1", 0.5, 50, seed=4)) != list(sojourns("mm1", 0.5, 50, seed=5))


def test_a_queue_without_a_time_of_service_is_refused() -> None:
    with pytest.raises(ValueError, match="mean time of service"):
        Queue("mm1", 0, 1)


def test_quantiles_of_lateness_are_right_within_their_bucket() -> None:
    lateness, draw = Lateness(), Random(1)
    values = sorted(round(draw.lognormvariate(10, 2)) for _ in range(20_000))
    for value in values:
        lateness.add(value)
    assert lateness.count == len(values)
    assert lateness.total_ns == sum(values)
    assert lateness.max_ns == lateness.quantile_ns(1) == values[-1]
    for share in QUANTILES:
        assert lateness.quantile_ns(share) == pytest.approx(values[round(share * len(values)) - 1], rel=0.06)


def test_no_lateness_is_none_and_not_zero() -> None:
    assert {Lateness().quantile_ns(share) for share in (*QUANTILES, 1)} == {None}


@pytest.mark.parametrize(
    ("told", "max_tokens", "counts"),
    [
        ({}, None, [1] * 16),
        ({}, 3, [1, 1, 1]),
        ({"chunk_tokens": 4}, 10, [4, 4, 2]),
        ({"chunk_tokens": 2, "first_tokens": 5}, 10, [5, 2, 2, 1]),
        ({"first_tokens": 5}, 3, [3]),
        ({"chunks": 3, "chunk_tokens": 4}, None, [4, 4, 4]),
        ({"chunks": 3, "chunk_tokens": 4}, 100, [4, 4, 4]),
        ({"chunks": 3, "chunk_tokens": 4}, 9, [4, 4, 1]),
    ],
)
def test_tokens_are_laid_out_in_chunks_as_told(told: dict[str, int], max_tokens: int, counts: list[int]) -> None:
    assert Behaviour(**told).token_counts(max_tokens) == counts


def test_deadlines_of_chunks_are_from_the_first_token_and_add_up_to_nothing() -> None:
    script = Answers(Behaviour(ttft_ns=5, gap_ns=7, tail_ns=3)).script(STREAM, None, 1)
    assert script.early == 1
    assert script.offsets_ns == (0, 0, 7, 14, 21, 24)
    assert script.chunks_after == (0, 1, 2, 3, 4, 4)
    assert (script.first, script.last) == (1, 4)


def test_a_reply_of_one_token_at_once_is_one_write() -> None:
    ask = AnswerParameters(endpoint="chat", stream=True, max_tokens=1)
    assert len(Answers(Behaviour()).script(ask, None, 1).steps) == 1


def test_pieces_of_an_event_come_before_its_time_and_the_last_one_in_time() -> None:
    told = Behaviour(ttft_ns=100_000_000, gap_ns=50_000_000, split="writes", piece_ns=500_000)
    for number in range(1, 30):
        script = Answers(told).script(STREAM, None, number)
        ends = [at for at, (a, b) in enumerate(pairwise([0, *script.chunks_after])) if b > a]
        assert [script.offsets_ns[at] for at in ends] == [0, 50_000_000, 100_000_000, 150_000_000]
        assert list(script.offsets_ns[script.early :]) == sorted(script.offsets_ns[script.early :])


@pytest.mark.parametrize("fault", ["reset", "error", "empty", "silent", None])
@pytest.mark.parametrize("endpoint", ["completions", "chat", "plain"])
def test_every_mixture_of_faults_and_forms_has_a_script(fault: Fault | None, endpoint: Endpoint) -> None:
    for split, stream, early, ttft_ns in product(get_args(Split), (True, False), (True, False), (0, 1000)):
        told = Behaviour(ttft_ns=ttft_ns, role_chunk=early, early_head=early, split=split)
        script = Answers(told).script(AnswerParameters(endpoint=endpoint, stream=stream, max_tokens=1), fault, 1)
        lengths = {len(script.steps), len(script.offsets_ns), len(script.chunks_after), len(script.tokens_after)}
        assert len(lengths) == 1
        assert script.outcome == (fault or "good")
        assert bool(script.steps) == (fault != "silent")
        assert (script.first >= 0) == (fault is None)
        assert (script.steps[-1:] == (b"",)) == (fault == "reset")


@pytest.mark.parametrize("split", ["writes", "chunks", "utf8"])
def test_what_is_cut_has_the_same_body_as_what_is_whole(split) -> None:
    payloads = [f"data: {number} høy\n\n".encode() for number in range(3)]
    for seed in range(50):
        pieces = pieces_of(b"HEAD", payloads, b"0\r\n\r\n", split, Random(seed))
        assert len(pieces) > 1
        assert all(pieces)
        body = re.sub(rb"[0-9a-f]+\r\n(.*?)\r\n", rb"\1", b"".join(pieces).removeprefix(b"HEAD"), flags=re.DOTALL)
        assert body == b"".join(payloads)


def test_a_cut_at_places_loses_nothing() -> None:
    assert cut(b"abcdef", [1, 4]) == [b"a", b"bcd", b"ef"]
    assert cut(b"abc", []) == [b"abc"]


@pytest.mark.parametrize(
    ("body", "prompt_tokens", "choices"),
    [
        (b'{"prompt": "one two  three"}', 3, 1),
        (b'{"prompt": [5, 6, 7, 8]}', 4, 1),
        (b'{"prompt": ["one two", "three"], "n": 2}', 3, 4),
        (b'{"prompt": [[5, 6], [7]]}', 3, 2),
    ],
)
def test_prompts_are_counted_in_token_ids_or_words(body: bytes, prompt_tokens: int, choices: int) -> None:
    ask = read_ask("completions", body)
    assert (ask.prompt_tokens, ask.choices) == (prompt_tokens, choices)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "prompt is a text"),
        (b'{"prompt": "a", "max_tokens": 0}', "max_tokens is 0"),
        (b'{"prompt": "a", "max_tokens": true}', "max_tokens is True"),
        (b'{"prompt": "a", "stream_options": 3}', "stream_options"),
    ],
)
def test_a_wrong_body_is_refused_with_what_is_wrong(body: bytes, says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says) as refused:
        read_ask("completions", body)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /v1/complete HTTP/1.1", 404),
        (b"GET", 400),
        (b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked", 411),
        (b"POST /v1/completions HTTP/1.1\r\nContent-Length: x", 400),
    ],
)
def test_a_wrong_head_is_refused_with_its_status(head: bytes, status: int) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        read_head(head)
    assert refused.value.status == status


def test_a_truth_file_is_read_while_it_is_still_written(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    line = '{{"id": {}, "number": {}, "read_ns": 5, "due_ns": 6, "first_ns": {}, "answer_ns": null, '
    line += '"last_ns": 8, "chunks": 1, "tokens": 4, "outcome": "good"}}\n'
    path.write_text(line.format(2, 2, "null") + line.format('"a"', 1, 7) + '{"id": 3, "num')
    truth = read_truth(path)
    assert truth.ids.tolist() == ["a", "2"]
    assert truth.number.tolist() == [1, 2]
    assert truth.first_ns.tolist() == [7, MISSING_NS]
    assert truth.of_outcome("good").tolist() == [True, True]
    path.write_text('{"number": 1}\n')
    with pytest.raises(ValueError, match="not a truth file of the reference server"):
        read_truth(path)
    path.write_text("")
    assert read_truth(path).read_ns.size == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--queue=mm1"], "needs --ttft-ms"),
        (["--split=utf8", "--events-per-write=2"], "use one of both"),
        (["--chunk-tokens=0"], "0 is less than 1"),
        (["--gap-ms=-1"], "not a number from 0"),
        (["--role-chunk=perhaps"], "neither on nor off"),
        (["--truth=/nowhere/at/all"], "/nowhere/at/all"),
        (["--usage=maybe"], "invalid choice"),
    ],
)
def test_a_wrong_option_is_said_and_nothing_starts(arguments: list[str], says: str, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--port=0", *arguments])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.covers("E-SVR05")
def test_the_recipe_states_every_option_of_the_server_with_its_own_default() -> None:
    recipe = SERVICES["known"]
    assert recipe.server is not None
    defaults = {setting.name: setting.default for setting in recipe.settings if setting.role == "deployment"}
    given = [part.format(host="h", ports={"main": 1}, settings=defaults) for part in recipe.server.command[3:]]
    options = parser()
    told, untold = vars(options.parse_args(given)), vars(options.parse_args(["--host=h", "--port=1"]))
    assert told == untold
    assert set(untold) - {"host", "port"} == set(defaults)
    assert all(f"--{name.replace('_', '-')}={{settings[{name}]}}" in recipe.server.command for name in defaults)
