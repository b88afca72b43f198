"""A trace's requests have the lengths, the shared beginnings and the classes that it recorded, each row once."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shipped import SERVICES

from seamark.config.read import read_scenario, read_site
from seamark.drivers.null import Null
from seamark.drivers.openai import OpenAi
from seamark.errors import UserError
from seamark.load.coordinator.coordinator import LoadError
from seamark.load.driver import Target
from seamark.load.engine import event_loop
from seamark.load.engine.connection import Outgoing
from seamark.load.engine.event_loop import NOT_OURS, encode_all
from seamark.load.engine.mix import mixed
from seamark.load.engine.schedule_share import ran_out
from seamark.load.workers.assignment import LoadJob, WorkerAssignment
from seamark.load.workers.trace_bodies import RowBodies, row_bodies
from seamark.model.sample import Failure
from seamark.model.trial import Plan
from seamark.patterns.trace_file import TraceRow, recorded_arrivals, recorded_rows
from seamark.planning.plan import plan
from seamark.services.ephemeral_server import ephemeral_server

ROOT = Path(__file__).parents[2]
SITE = read_site(ROOT / "config" / "sites" / "local.yaml")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(rows: Iterable[dict[str, Any]], name: str = "rows.jsonl") -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return name


def mooncake(count: int = 12) -> str:
    """Write requests of three conversations: each begins with blocks of the one before it in its conversation."""
    rows = []
    for number in range(count):
        length = 300 + 700 * (number // 3 + 1)
        blocks = [1000 * (number % 3) + at for at in range(length // 512)] + [7_000_000 + number]
        rows.append(
            {"timestamp": 20 * number, "input_length": length, "output_length": 2 + number, "hash_ids": blocks}
        )
    return written(rows)


def target(**settings: Any) -> Target:
    settings = {"pattern": "trace", "gen_tokens": 5, "prompt_len": 9, "duration_s": 1e9, **settings}
    return Target(settings=settings, data=Path(), ports={"main": 80})


def made(trace: str, driver: Any = OpenAi, **given: Any) -> tuple[Any, RowBodies]:
    """Return a driver and the bodies of a trace's rows; `given` are settings, or the worker that sends them."""
    worker = {name: given.pop(name) for name in ("worker", "workers") if name in given}
    aim = target(trace=trace, **given)
    one = mixed(driver, aim) if "mix" in given else driver(aim)
    bodies = row_bodies(one, aim.load, seed=3, **worker)
    assert bodies is not None
    return one, bodies


def asked(requests: list[Outgoing]) -> list[dict[str, Any]]:
    """Return the documents on the wire, after a look at their lengths."""
    documents = []
    for request in requests:
        head, _, body = b"".join(request.data).partition(b"\r\n\r\n")
        assert f"Content-Length: {len(body)}".encode() in head.split(b"\r\n")
        documents.append(json.loads(body))
    return documents


def test_all_known_forms_say_how_long_requests_are() -> None:
    written([{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": list(range(14))}], "mooncake")
    assert list(recorded_rows("mooncake")) == [
        TraceRow(at_s=0, prompt_tokens=6758, output_tokens=500, blocks=tuple(range(14)))
    ]
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
    Path("azure").write_text(f"\ufeff{head}2023-11-16 18:15:47.6805900,,0\n", encoding="utf-8")
    assert list(recorded_rows("azure")) == [
        TraceRow(at_s=0, prompt_tokens=374, output_tokens=44),
        TraceRow(at_s=1, prompt_tokens=None, output_tokens=1),
    ]
    written([{"at_s": 1, "prompt_tokens": 3, "output_tokens": 4, "class": "a"}, {"at_s": 2.5}], "ours")
    assert list(recorded_rows("ours")) == [
        TraceRow(at_s=1, prompt_tokens=3, output_tokens=4, request_class="a"),
        TraceRow(at_s=2.5),
    ]


@pytest.mark.covers("E-FR14")
def test_request_i_has_the_lengths_of_row_i() -> None:
    rows = list(recorded_rows(mooncake()))
    for settings in ({}, {"prompt_form": "text"}):
        driver, bodies = made("rows.jsonl", **settings)
        documents = asked(encode_all(driver, bodies))
        lengths = [len(x["prompt"].split() if settings else x["prompt"]) for x in documents]
        assert lengths == [row.prompt_tokens for row in rows]
        assert [each["max_tokens"] for each in documents] == [row.output_tokens for row in rows]
    [message] = asked(encode_all(*made("rows.jsonl", endpoint="chat")))[5]["messages"]
    assert len(message["content"].split()) == rows[5].prompt_tokens


@pytest.mark.parametrize("form", ["ids", "text"])
def test_blocks_of_the_same_name_are_the_same_tokens_and_others_are_not(form: str) -> None:
    rows = list(recorded_rows(mooncake()))
    documents = asked(encode_all(*made("rows.jsonl", prompt_form=form)))
    prompts = [x["prompt"].split() if form == "text" else x["prompt"] for x in documents]
    content: dict[int, list[Any]] = {}
    for row, prompt in zip(rows, prompts, strict=True):
        for at, name in enumerate(row.blocks):
            block = prompt[512 * at : 512 * (at + 1)]
            known = content.setdefault(name, block)
            assert known[: len(block)] == block[: len(known)]
    heads = [tuple(block[:50]) for block in content.values()]
    assert len(set(heads)) == len(heads)
    assert len(content) < sum(len(row.blocks) for row in rows)


def test_small_blocks_are_shared_as_large_ones_are() -> None:
    rows = [{"timestamp": at, "input_length": 33, "output_length": 1, "hash_ids": [1, 2, 3 + at]} for at in (0, 1)]
    one, bodies = made(written(rows), trace_block_tokens=16)
    requests = [one.encode(body) for body in bodies if body is not None]
    first, second = (json.loads(b"".join(each).partition(b"\r\n\r\n")[2])["prompt"] for each in requests)
    assert first[:32] == second[:32]
    assert first[32:] != second[32:]
    assert requests[0][1] is requests[1][1]


def test_what_requests_share_takes_memory_once() -> None:
    blocks = list(range(40))
    shared = [{"at_s": 0, "prompt_tokens": 20_480 + n, "hash_ids": [*blocks, 100 + n]} for n in range(1, 60)]
    requests = encode_all(*made(written(shared)))
    pieces = {id(piece): len(piece) for request in requests for piece in request.data}
    assert sum(pieces.values()) < 0.1 * sum(sum(map(len, request.data)) for request in requests)


def test_rows_without_blocks_differ_and_begin_alike_where_that_is_asked_for() -> None:
    rows = [{"at_s": 0, "prompt_tokens": 30, "output_tokens": 1} for _ in range(50)]
    prompts = [x["prompt"] for x in asked(encode_all(*made(written(rows), prefix_len=10)))]
    assert len({tuple(prompt[:10]) for prompt in prompts}) == 1
    assert len({tuple(prompt[10:]) for prompt in prompts}) == 50


def test_a_length_that_a_row_does_not_say_is_that_of_the_settings() -> None:
    documents = asked(encode_all(*made(written([{"at_s": 0, "prompt_tokens": 3}, {"at_s": 1, "output_tokens": 2}]))))
    assert [(len(x["prompt"]), x["max_tokens"]) for x in documents] == [(3, 5), (9, 2)]


def test_workers_make_their_own_rows_alone_and_the_same_ones() -> None:
    trace = mooncake()
    whole = encode_all(*made(trace))
    parts = [encode_all(*made(trace, worker=worker, workers=3)) for worker in range(3)]
    for index, request in enumerate(whole):
        for worker in range(3):
            other = parts[worker][index]
            assert (other is NOT_OURS) == (index % 3 != worker)
            assert other is NOT_OURS or b"".join(other.data) == b"".join(request.data)


def test_no_more_rows_are_made_than_the_load_sends() -> None:
    trace = mooncake()
    assert len(encode_all(*made(trace, warmup_s=0.0, duration_s=0.1))) == 5
    assert len(encode_all(*made(trace, warmup_s=0.0, duration_s=0.1, time_scale=0.5))) == 10
    assert len(encode_all(*made(trace, requests=4))) == 4


@pytest.mark.covers("E-VAL")
def test_rows_that_do_not_fit_into_memory_are_an_error_and_are_not_sent_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_loop, "LARGEST_BYTES", 50_000)
    with pytest.raises(UserError, match=r"the requests of its first 8 rows take more than .* Raise shards, shorten"):
        encode_all(*made(mooncake()))
    assert len(encode_all(*made(mooncake(), worker=0, workers=4))) == 12


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"max_model_len": 3000}, "request 10 has a prompt of 3100 tokens and a reply of 11; max_model_len is 3000"),
        ({"batch": 2}, "batch: a row of a trace is one prompt. Set batch to 1, or trace_lengths to false"),
        ({"turns": 2}, "turns: a row of a trace is one prompt"),
    ],
)
def test_a_row_that_cannot_be_asked_is_said_so(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        encode_all(*made(mooncake(), **settings))


def test_a_first_row_without_lengths_takes_none_from_the_others() -> None:
    path = written([{"at_s": 0}, {"at_s": 1, "prompt_tokens": 100, "output_tokens": 50}], "late")
    bodies = row_bodies(OpenAi(target()), target(trace=path).load, seed=1)
    assert bodies is not None
    assert [(body.content.prompt_units, body.content.gen_tokens) for body in bodies.whole()] == [(9, 5), (100, 50)]


def test_a_trace_of_arrivals_alone_and_a_driver_without_lengths_go_by_their_settings() -> None:
    plain, long = written([{"at_s": 0}, {"at_s": 1}], "plain"), mooncake()
    assert row_bodies(OpenAi(target()), target(trace=plain).load, seed=1) is None
    assert row_bodies(Null(target()), target(trace=long).load, seed=1) is None
    for other in ({}, {"pattern": "poisson", "rate_rps": 1.0}):
        no_lengths = target(trace=long, trace_lengths=False, **other).load
        assert row_bodies(OpenAi(target()), no_lengths, seed=1) is None


def test_a_row_may_say_of_which_class_of_the_mix_it_is() -> None:
    mix = json.dumps({"chat": {"gen_tokens": 3, "weight": 1}, "search": {"gen_tokens": 7, "weight": 1}})
    rows: list[dict[str, Any]] = [{"at_s": 0, "class": "search"}, {"at_s": 0, "class": "chat", "prompt_tokens": 2}]
    driver, bodies = made(written(rows * 20), mix=mix)
    requests = encode_all(driver, bodies)
    documents = asked(requests)
    assert [request.kind for request in requests] == [1, 0] * 20
    assert [(len(x["prompt"]), x["max_tokens"]) for x in documents[:2]] == [(9, 7), (2, 3)]
    driver, bodies = made(written([{"at_s": 0, "prompt_tokens": 4}] * 200), mix=mix)
    kinds = [request.kind for request in encode_all(driver, bodies)]
    assert 60 < kinds.count(1) < 140
    with pytest.raises(UserError, match="trace: its class 'x' is none of the mix: chat, search"):
        encode_all(*made(written([{"at_s": 0, "class": "x"}]), mix=mix))


@pytest.mark.services
@pytest.mark.covers("E-FR25")
def test_a_server_is_asked_for_what_the_trace_recorded_whatever_the_shards(load: Callable) -> None:
    trace = str(Path(mooncake(30)).resolve())
    with ephemeral_server("seamark.testservers.reference") as port:
        settings = {"driver": "seamark.drivers.openai:OpenAi", "port": port, "pattern": "trace", "trace": trace}
        settings |= {"concurrency": 8, "duration_s": 2.0}
        single, sharded = load(**settings), load(**settings, shards=3)
    for measured in (single, sharded):
        assert measured.failures() == {Failure.NONE: 30}
        assert measured.samples["units"].tolist() == [2 + number for number in range(30)]
        assert all(report.ran_out for report in measured.outcome.reports)
    assert single.samples["bytes_sent"].tolist() == sharded.samples["bytes_sent"].tolist()
    assert (np.diff(single.samples["bytes_sent"][::3]) > 0).all()


@pytest.mark.services
def test_a_row_that_cannot_be_sent_stops_the_load_before_its_clock(load: Callable) -> None:
    trace = str(Path(mooncake()).resolve())
    with (
        ephemeral_server("seamark.testservers.reference") as port,
        pytest.raises(LoadError, match="request 10 has a prompt of 3100 tokens"),
    ):
        load("seamark.drivers.openai:OpenAi", port=port, pattern="trace", trace=trace, max_model_len=3000)


def planned(*lines: str, service: str = "known") -> Plan:
    text = ["scenario: replay", "workload:", f"  service: {service}", "  pattern: trace", *(f"  {x}" for x in lines)]
    Path("scenario.yaml").write_text("\n".join(text) + "\n", encoding="utf-8")
    return plan(read_scenario(Path("scenario.yaml"), SERVICES), SERVICES, SITE)


@pytest.mark.covers("E-FR14")
def test_another_content_of_a_trace_is_another_measurement_of_the_same_trial() -> None:
    mooncake(5)
    before = planned("trace: rows.jsonl").trials
    assert [trial.config_hash for trial in planned("trace: rows.jsonl").trials] == [x.config_hash for x in before]
    mooncake(6)
    after = planned("trace: rows.jsonl").trials
    assert [trial.id for trial in after] == [trial.id for trial in before]
    assert not {trial.config_hash for trial in after} & {trial.config_hash for trial in before}


def test_other_treatments_do_not_depend_on_what_a_trace_holds() -> None:
    mooncake(5)
    lines = ("include: [{pattern: poisson, rate_rps: 5}]", "trace: rows.jsonl", "time_scale: [1, 0.5]")
    first = {trial.id: trial.config_hash for trial in planned(*lines).trials}
    mooncake(6)
    second = {trial.id: trial.config_hash for trial in planned(*lines).trials}
    changed = {name for name in first if first[name] != second[name]}
    assert len(changed) == 6
    assert len(first) == 9


ROWS = [{"at_s": 0, "prompt_tokens": 3, "output_tokens": 4}, {"at_s": 1, "prompt_tokens": 5, "output_tokens": 6}]


@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize(
    ("row", "lines", "says"),
    [
        (
            {"prompt_tokens": 0},
            (),
            "5: workload.trace: rows.jsonl:3: 'prompt_tokens' is 0; expected 1 to 10000000 tokens",
        ),
        ({"output_tokens": "4"}, (), """rows.jsonl:3: 'output_tokens' is "4"; expected 0 to"""),
        ({"hash_ids": [1, "x"]}, (), "rows.jsonl:3: 'hash_ids' is not a list of whole numbers"),
        ({"class": 3}, (), "rows.jsonl:3: 'class' is 3, not text"),
        (
            {"class": "chats"},
            ("mix: {chat: {}}",),
            "its class 'chats' (at 2 s) is none of the mix. Did you mean 'chat'?",
        ),
        (
            {},
            ("prompt_len: 9",),
            "workload.prompt_len: has no effect: the trace says every length. Remove it, or set",
        ),
        ({}, ("gen_tokens_spread: 0.1",), "workload.gen_tokens_spread: has no effect: the trace says every length"),
        ({}, ("batch: 2",), "workload.batch: is one for each row of a trace. Set it to 1"),
    ],
)
def test_what_is_wrong_with_a_row_or_the_settings_beside_it_is_one_line(
    row: dict[str, Any], lines: tuple[str, ...], says: str
) -> None:
    written([*ROWS, {"at_s": 2, **row}])
    with pytest.raises(UserError) as caught:
        planned("trace: rows.jsonl", *lines)
    [line] = caught.value.lines
    assert says in line
    if not row:
        assert len(planned("trace: rows.jsonl", *lines, "trace_lengths: false").trials) == 3


def test_lengths_matter_only_to_a_service_that_has_them() -> None:
    written([*ROWS, {"at_s": 2, "prompt_tokens": "many"}])
    assert len(planned("trace: rows.jsonl", service='"null"').trials) == 3
    assert list(recorded_arrivals("rows.jsonl")) == [0, 1, 2]


@pytest.mark.parametrize(
    ("settings", "ends"),
    [
        ({"pattern": "trace", "trace": "rows.jsonl", "duration_s": 3.0}, True),
        ({"pattern": "trace", "trace": "rows.jsonl", "duration_s": 1.0}, False),
        ({"pattern": "trace", "trace": "rows.jsonl", "duration_s": 1.0, "time_scale": 0.5}, True),
        ({"pattern": "trace", "trace": "rows.jsonl", "duration_s": 3.0, "requests": 2}, False),
        ({"pattern": "trace", "trace": "gone.jsonl"}, False),
        ({"pattern": "steps", "step_rates": "9:1,0:2", "duration_s": 3.0}, True),
        ({"pattern": "steps", "step_rates": "9:1,1:2", "duration_s": 3.0}, False),
        ({"pattern": "poisson", "rate_rps": 5.0}, False),
        ({}, False),
    ],
)
def test_a_schedule_says_whether_it_ran_out_before_the_load_did(settings: dict[str, Any], ends: bool) -> None:
    written(ROWS)
    job = LoadJob(driver="x:y", workers="wire", settings={"warmup_s": 0.0, **settings}, seed=1, data=Path(), ports={})
    share = WorkerAssignment(job=job, worker=0, workers=1, segment=Path("s"))
    assert ran_out(share) is ends
