"""Traces are replayed as they were recorded, from files in their published forms; what is wrong is named by line."""

import bz2
import gzip
import json
import lzma
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from shipped import SERVICES

from seamark.config.read import read_scenario, read_site
from seamark.errors import UserError
from seamark.patterns.patterns import Trace
from seamark.patterns.table import schedule
from seamark.patterns.trace_file import counted_from, recorded_arrivals, recorded_rows
from seamark.planning.plan import plan

ROOT = Path(__file__).parents[2]


def seeded_s(count: int = 400, rate_rps: float = 50.0, seed: int = 11) -> list[float]:
    """Return times in seconds, of which some are alike."""
    draw = random.Random(seed)
    at_s, times = 0.0, []
    for _ in range(count):
        at_s += draw.expovariate(rate_rps) * (draw.random() < 0.8)
        times.append(at_s)
    return times


def mooncake(path: Path, seed: int = 1) -> list[float]:
    """Write a trace as Mooncake publishes them: whole milliseconds, lengths, ids of cached blocks of the prompt."""
    draw = random.Random(seed)
    times_ms = [round(at_s * 1000) for at_s in seeded_s(seed=seed)]
    rows = [
        {
            "timestamp": at_ms,
            "input_length": draw.randrange(1, 120_000),
            "output_length": draw.randrange(1, 2000),
            "hash_ids": [draw.randrange(200_000) for _ in range(draw.randrange(1, 200))],
        }
        for at_ms in times_ms
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [at_ms / 1000 for at_ms in times_ms]


def azure(path: Path, seed: int = 2, zone: str = "", digits: int = 7, end: str = "\r\n") -> list[float]:
    """Write a trace as Azure publishes them: the time of day, seven digits after the point, two counts of tokens."""
    draw = random.Random(seed)
    began = datetime(2023, 11, 16, 23, 59, 58)
    ticks = [round(at_s * 10**6) for at_s in seeded_s(rate_rps=3.0, seed=seed)]
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for tick in ticks:
        time = began + timedelta(microseconds=tick)
        shown = f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond:06d}" + "0" * (digits - 6) + zone
        lines.append(f"{shown},{draw.randrange(1, 8000)},{draw.randrange(1, 1000)}")
    path.write_bytes((end.join(lines) + end).encode())
    return [(tick - ticks[0]) / 10**6 for tick in ticks]


def ours(path: Path, seed: int = 3) -> list[float]:
    """Write a trace in our own form."""
    times = seeded_s(seed=seed)
    path.write_text("".join(f'{{"at_s": {at_s!r}}}\n' for at_s in times))
    return times


def azure_of_2024(path: Path) -> list[float]:
    """The same with microseconds and a zone, as in the later traces."""
    return azure(path, seed=4, zone="+00:00", digits=6, end="\n")


FORMS = [mooncake, azure, azure_of_2024, ours]


def due_ns(path: Path, until_s: float = 1e6, **given: float) -> np.ndarray:
    blocks = list(schedule(Trace(path=str(path), **given), seed=0, until_s=until_s))
    return np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.int64)


@pytest.mark.parametrize("write", FORMS)
def test_a_trace_is_sent_as_it_was_recorded(write: Callable[[Path], list[float]], tmp_path: Path) -> None:
    times = np.array(write(tmp_path / "trace"))
    assert (np.diff(times) == 0).any()
    assert np.abs(due_ns(tmp_path / "trace") - times * 1e9).max() <= 1


@pytest.mark.parametrize("time_scale", [0.1, 3.0])
@pytest.mark.parametrize("write", FORMS)
def test_a_time_scale_stretches_or_presses_a_trace(
    write: Callable[[Path], list[float]], time_scale: float, tmp_path: Path
) -> None:
    times = np.array(write(tmp_path / "trace")) * time_scale
    assert np.abs(due_ns(tmp_path / "trace", time_scale=time_scale) - times * 1e9).max() <= 1


@pytest.mark.parametrize("write", FORMS)
def test_what_comes_after_the_load_is_cut_and_a_short_trace_ends_early(
    write: Callable[[Path], list[float]], tmp_path: Path
) -> None:
    times = np.array(write(tmp_path / "trace"))
    middle_s = float(times[200])
    assert due_ns(tmp_path / "trace", until_s=middle_s).size == np.count_nonzero(times < middle_s)
    assert due_ns(tmp_path / "trace", until_s=1e9).size == 400


def test_rows_that_do_not_begin_with_their_time_are_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(
        '\ufeff{"input_length": 3, "timestamp": 500}\n\n'
        '  { "timestamp" : 500.25 , "note": "\\"timestamp\\": 9" }\r\n'
        '{"nested": {"timestamp": 1}, "timestamp": 1e3}\n'
        '{"timestamp": 2000, "cut": [1, 2]}'
    )
    assert list(recorded_arrivals(str(path))) == [0.5, 0.50025, 1.0, 2.0]


@pytest.mark.parametrize(
    "text",
    [
        '{"timestamp": 1767225600000}\n{"timestamp": 1767225600200}\n{"x": 1, "timestamp": 1767225600400}\n',
        '{"at_s": 1767225600}\n{"at_s": 1767225600.2}\n{"at_s": 1767225600.4}\n',
        "Timestamp,Model,Request tokens,Response tokens\n5,GPT-4,472,18\n5.2,GPT-4,1,2\n5.4,GPT-4,3,0\n",
    ],
)
def test_times_that_are_dates_or_burstgpts_seconds_count_from_the_first_row(text: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    assert list(recorded_arrivals(str(path))) == pytest.approx([0, 0.2, 0.4], abs=1e-6)
    lengths = [(row.prompt_tokens, row.output_tokens) for row in recorded_rows(str(path))]
    assert lengths in ([(None, None)] * 3, [(472, 18), (1, 2), (3, 1)])


AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.1,10,5\n2024-05-10 00:00:00.3,20,6\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Log Type\n5,GPT-4,10,5,Log\n5.2,GPT-4,20,6,Log\n"
ROWS = '{"timestamp": 0, "input_length": 10, "output_length": 5, "hash_ids": null}\n' + (
    '{"timestamp": 200, "input_length": 20.0, "output_length": 6.0}\n'
)
SIBLINGS = {
    "lower case": AZURE.lower(),
    "words with underscores": AZURE.replace("ContextTokens", "Context_Tokens"),
    "another separator": AZURE.replace(",", ";"),
    "tabs": BURST.replace(",", "\t"),
    "a quoted separator": BURST.replace("5,GPT-4", '5,"GPT,4"'),
    "numbers with a point": BURST.replace("10,", "10.0,"),
    "seconds since 1970": BURST.replace("\n5", "\n176722560"),
    "no ids": ROWS,
    "bytes before it": "\ufeff" + BURST,
}


@pytest.mark.parametrize("name", SIBLINGS)
def test_a_trace_is_read_however_it_was_saved(name: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(SIBLINGS[name])
    rows = list(recorded_rows(str(path)))
    assert [row.at_s for row in rows] == pytest.approx([0, 0.2], abs=1e-6)
    assert [(row.prompt_tokens, row.output_tokens) for row in rows] == [(10, 5), (20, 6)]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("text", [AZURE, BURST, ROWS])
def test_a_packed_trace_is_read_and_one_that_is_cut_is_named(
    text: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "trace"
    path.write_bytes(pack(text.encode()))
    assert len(list(recorded_arrivals(str(path)))) == 2
    path.write_bytes(pack(text.encode())[:-9])
    with pytest.raises(ValueError, match="cannot unpack it"):
        list(recorded_arrivals(str(path)))


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"PK\x03\x04....", "zip"), (b"\x28\xb5\x2f\xfd....", "zstd"), (AZURE.encode("utf-16"), "UTF-16")],
)
def test_what_is_not_read_of_packings_and_encodings_is_named(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"trace.*: is .*{says}"):
        list(recorded_arrivals(str(path)))


def test_milliseconds_since_1970_lose_no_digit(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text('{"timestamp": 1767225600000}\n{"timestamp": 1767225600200}\n{"timestamp": 1767225600400}\n')
    assert list(recorded_arrivals(str(path))) == [0.0, 0.2, 0.4]


@pytest.mark.parametrize(
    ("length", "blocks", "fits"), [(20, 1, True), (512, 1, True), (513, 2, True), (20, 2, False), (2000, 1, False)]
)
def test_a_row_whose_blocks_do_not_fit_its_length_is_named(
    length: int, blocks: int, fits: bool, tmp_path: Path
) -> None:
    path = tmp_path / "trace"
    rows = [
        {"timestamp": 0, "input_length": n, "output_length": 1, "hash_ids": [7] * ids}
        for n, ids in ((9, 1), (length, blocks))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if fits:
        assert len(list(recorded_rows(str(path)))) == 2
        return
    with pytest.raises(ValueError) as refused:
        list(recorded_rows(str(path)))
    assert str(refused.value).startswith(f"{path}:2: has {blocks} ids for {length} tokens")


MOONCAKE = '{"timestamp": 1767225600000, "input_length": 33, "output_length": 4, "hash_ids": [1, 2, 3]}\n'


def test_the_size_of_a_block_is_what_the_trace_has(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(MOONCAKE)
    [row] = recorded_rows(str(path), 16)
    assert (row.blocks, row.block_tokens) == ((1, 2, 3), 16)
    with pytest.raises(
        ValueError, match=r":1: has 3 ids for 33 tokens, which are 1 blocks of 512.*trace_block_tokens"
    ):
        list(recorded_rows(str(path)))


@pytest.mark.parametrize(
    ("text", "began"),
    [
        (MOONCAKE, "2026-01-01 00:00:00 UTC"),
        ("Timestamp,Model\n5,a\n45,b\n", "5 s"),
        ("TIMESTAMP\n2024-05-10 00:00:00.2\n", "2024-05-10 00:00:00 UTC"),
        ('{"at_s": 3}\n', None),
    ],
)
def test_what_times_are_counted_from_is_known(text: str, began: str | None, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    assert counted_from(str(path)) == began


def test_a_column_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens\n2024-05-10T00:00:59.5Z,3\n")
    with pytest.raises(
        ValueError, match=":2: has no column 'GeneratedTokens'; the header is TIMESTAMP, ContextTokens"
    ):
        list(recorded_rows(str(path)))


def test_columns_may_stand_in_another_order_and_further_ones_beside(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("GeneratedTokens,TIMESTAMP,Kind\n1,2024-05-10T00:00:59.5Z,a\n2,2024-05-10T00:01:00Z,b\n")
    assert list(recorded_arrivals(str(path))) == [0.0, 0.5]


HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
BAD = {
    "text": ('{"at_s": 1}\nnonsense\n', ":2: is not JSON; expected an object per line"),
    "a cut line": ('{"at_s": 1, "x": 2}\n\n{"at_s": 2, "x"', ":3: is not JSON"),
    "a list": ('{"at_s": 1}\n[2]\n', ":2: is not a JSON object"),
    "another key": ('{"at_s": 1}\n{"timestamp": 2000}\n', ":2: has no 'at_s'"),
    "a text": ('{"timestamp": 1}\n{"timestamp": "2"}\n', """:2: 'timestamp' is "2", not a time"""),
    "true": ('{"at_s": 1}\n{"at_s": true}\n', ":2: 'at_s' is true, not a time"),
    "nothing": ('{"at_s": 1}\n{"at_s": null}\n', ":2: 'at_s' is null, not a time"),
    "no number": ('{"at_s": 1}\n{"at_s": NaN}\n', ":2: lies at nan s"),
    "infinite": ('{"at_s": 1}\n{"at_s": 1e999}\n', ":2: lies at inf s"),
    "large": (f'{{"at_s": 1}}\n{{"x": 0, "at_s": 1{"0" * 400}}}\n', ":2: 'at_s' is 1000"),
    "deep": ('{"at_s": 1}\n' + "[" * 100_000, ":2: is not JSON"),
    "before the start": ('{"at_s": -0.5}\n', ":1: lies at -0.5 s; expected a time from the start of load on"),
    "back in time": ('{"at_s": 3}\n{"at_s": 2}\n', ":2: lies at 2 s, before the row above it (3 s). Sort the file"),
    "no key known": ('{"time": 3}\n', ":1: has neither 'at_s' nor 'timestamp', but 'time'"),
    "no header": ("2023-11-16 18:15:46.6805900,374,44\n", ":1: has no column TIMESTAMP, but 2023"),
    "bytes": ("\x00\x01\x02", ":1: has no column TIMESTAMP"),
    "a list of all rows": ('[{"at_s": 1}]\n', ":1: is not a JSON object"),
    "milliseconds": ("Timestamp,Model\n1767225600000,a\n", ":2: 'Timestamp' is 1767225600000, as milliseconds since"),
    "a date among seconds": ("Timestamp,Model\n5,a\n2023-11-16 18:15:46,b\n", ":3: Timestamp is '2023-11-16"),
    "few cells": (HEADER + "2023-11-16 18:15:47.0\n", ":3: has 1 cells where the header has 3"),
    "no time": (HEADER + "yesterday,1,2\n", ":3: TIMESTAMP is 'yesterday'; expected a time such as 2023-11-16"),
    "no hour": (HEADER + "2023-11-16 25:15:47.0,1,2\n", ":3: hour must be in 0..23"),
    "back in the day": (
        HEADER + "2023-11-16 18:15:46.0,1,2\n",
        ":3: lies at -0.68059 s, before the row above it (0 s). Sort the file",
    ),
    "back in seconds": ("Timestamp,Model\n5,a\n4,a\n", ":3: lies at -1 s, before the row above it"),
    "a date in another unit": ('{"timestamp": 1767225600}\n', ":1: 'timestamp' is 1767225600, as seconds since 1970"),
    "nanoseconds": ('{"at_s": 1767225600000000000}\n', ":1: 'at_s' is 1767225600000000000, as nanoseconds since"),
    "empty": ("\n\n", ": holds no arrival."),
}


@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_one_line_with_its_number_when_the_scenario_is_planned(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text, says = BAD[name]
    Path("rows").write_text(text)
    with pytest.raises(UserError) as caught:
        planned("trace: rows")
    [mistake] = caught.value.lines
    assert mistake.startswith("scenario.yaml:5: workload.trace: rows" + says)
    assert mistake.isprintable()


@pytest.mark.parametrize("name", [name for name in BAD if name != "empty"])
def test_a_bad_row_that_no_plan_has_seen_ends_the_schedule_with_its_number(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_text(BAD[name][0])
    with pytest.raises(ValueError, match=r"rows:\d+: "):
        due_ns(path)


def planned(*lines: str) -> int:
    """Plan a scenario of these lines in the working folder; return how many trials it has."""
    text = "\n".join(
        ["scenario: replay", "workload:", '  service: "null"', "  pattern: trace", *("  " + x for x in lines)]
    )
    Path("scenario.yaml").write_text(text + "\n")
    site = read_site(ROOT / "config" / "sites" / "local.yaml")
    return len(plan(read_scenario(Path("scenario.yaml"), SERVICES), SERVICES, site).trials)


def test_a_plan_reads_no_further_than_the_load_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows").write_text('{"at_s": 1}\n{"at_s": 20}\nnonsense\n')
    assert planned("trace: rows", "duration_s: 10", "warmup_s: 5") == 3
    for line in ("duration_s: [5, 30]", "time_scale: [1, 0.5]", "include: [{time_scale: 0.5}]"):
        with pytest.raises(UserError, match="rows:3: is not JSON"):
            planned("trace: rows", line)


def test_a_trace_that_begins_after_the_load_is_no_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows").write_text('{"timestamp": 3000000}\n')
    with pytest.raises(UserError, match=r"its first arrival lies at 3000 s, after the load \(11 s"):
        planned("trace: rows")
    assert planned("trace: rows", "time_scale: 0.001") == 3


def test_a_path_may_name_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    times = ours(tmp_path / "rows")
    monkeypatch.setenv("TRACES", str(tmp_path))
    assert due_ns(Path("$TRACES/rows")).size == len(times)
    assert planned("trace: $TRACES/rows") == 3
    monkeypatch.delenv("TRACES")
    assert planned("trace: $TRACES/rows") == 3, "what only the machine of the load can know is left to it"
