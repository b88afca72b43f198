"""The decoder of streamed replies counts what a reader who parses everything counts, whatever the server and cuts."""

import json
from random import Random

import pytest
from openai_streams import CREATED_S, SERVERS, Stream, reads, stream

from seamark.drivers.openai.events import Forms, read_chunk
from seamark.drivers.openai.stream import EventStreamDecoder
from seamark.model.sample import Failure

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(**document):
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


def said(text, **more):
    return event(id="cmpl-1", created=CREATED_S, choices=[{"index": 0, "text": text, "finish_reason": None}], **more)


def usage(prompt, completion):
    counts = {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
    return event(id="cmpl-1", created=CREATED_S, choices=[], usage=counts)


def read(*events, decoder=None, head=HEAD, last=LAST):
    """Decode one reply, an event a chunk and a chunk a read."""
    decoder = decoder or EventStreamDecoder(Forms())
    decoder.reset()
    parts = [head, *map(chunk, events), last]
    ends = [decoder.feed(part) for part in parts if part]
    assert ends == [False] * (len(ends) - 1) + [bool(last)]
    return decoder


def check(decoder: EventStreamDecoder, wanted: Stream, random: Random) -> None:
    """Feed a stream in random reads; hold every count against that of a full parse."""
    decoder.reset()
    received, complete = 0, False
    for part in reads(wanted.wire, random):
        assert not complete
        complete = decoder.feed(part)
        received += len(part)
        assert decoder.events == wanted.events_after(received), wanted.wire[:received][-600:]
        assert decoder.answered == wanted.answered_after(received), wanted.wire[:received][-600:]
    assert complete != wanted.closes
    if wanted.closes:
        assert decoder.end_of_stream()
    assert decoder.keep_alive != wanted.closes
    prompt, completion = wanted.usage
    events = len(wanted.content)
    assert decoder.prompt_units == prompt
    assert (decoder.units, decoder.counted) == ((completion, True) if completion else (events, False))
    assert decoder.failure == (Failure.NONE if events else Failure.EMPTY_REPLY)


def hold_against_a_full_parse(server: str, count: int, seed: int) -> None:
    forms = Forms()
    decoders = [EventStreamDecoder(forms) for _ in range(3)]
    for number in range(count):
        random = Random(f"{server}/{seed}/{number}")
        check(random.choice(decoders), stream(server, random), random)


@pytest.mark.slow
@pytest.mark.parametrize("server", SERVERS)
def test_the_counts_of_a_stream_are_those_of_a_full_parse(server):
    hold_against_a_full_parse(server, 400, seed=0)


@pytest.mark.sweep
@pytest.mark.services
@pytest.mark.covers("E-FR20")
@pytest.mark.parametrize("server", SERVERS)
def test_the_counts_of_thousands_of_streams_are_those_of_a_full_parse(server):
    hold_against_a_full_parse(server, 2000, seed=1)


@pytest.mark.services
def test_a_decoder_that_has_learnt_one_server_reads_every_other_right():
    decoder = EventStreamDecoder(Forms())
    for number in range(1500):
        random = Random(number)
        check(decoder, stream(random.choice(list(SERVERS)), random), random)


def test_a_role_an_empty_text_and_a_usage_are_no_tokens():
    role = event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}])
    decoder = read(role, said(""), said(" a"), said(""), usage(7, 3), DONE)
    assert (decoder.events, decoder.units, decoder.counted) == (1, 3, True)
    assert (decoder.prompt_units, decoder.status, decoder.failure) == (7, 200, Failure.NONE)


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "a"},
        {"reasoning_content": "a"},
        {"reasoning": "a", "content": None},
        {"refusal": "no"},
        {"content": [{"type": "text", "text": "a"}]},
        {"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
        {"function_call": {"arguments": "{"}},
    ],
)
def test_content_reasoning_refusals_and_calls_are_tokens(delta):
    one = event(choices=[{"index": 0, "delta": delta, "finish_reason": None}])
    decoder = read(one, one, one, DONE)
    assert (decoder.events, decoder.units, decoder.counted, decoder.failure) == (3, 3, False, Failure.NONE)


def test_units_grow_with_events_until_the_server_has_counted():
    decoder = read(said(" a"), said(" b"), last=b"")
    assert (decoder.events, decoder.units) == (2, 2)
    decoder.feed(chunk(usage(1, 40)) + chunk(DONE) + LAST)
    assert (decoder.events, decoder.units) == (2, 40)


def test_events_of_one_read_are_counted_apart():
    decoder = EventStreamDecoder(Forms())
    for _ in range(3):
        decoder.reset()
        assert not decoder.feed(HEAD + chunk(said(" a")) + chunk(said(" b") + said(" c")) + chunk(said(" d")))
        assert decoder.events == 4
        assert decoder.feed(chunk(DONE) + LAST)


@pytest.mark.parametrize(
    ("first", "tokens"),
    [
        ({"text": " a b", "token_ids": [5, 6]}, 2),
        ({"text": " a b c", "logprobs": {"tokens": [" a", " b", " c"]}}, 3),
        ({"delta": {"content": " a b"}, "logprobs": {"content": [{"token": " a"}, {"token": " b"}]}}, 2),
        ({"text": " a b"}, 0),
    ],
)
def test_the_tokens_of_the_first_event_are_what_it_lists(first, tokens):
    one = event(id="cmpl-1", choices=[{"index": 0, **first, "finish_reason": None}])
    decoder = EventStreamDecoder(Forms())
    for _ in range(3):
        read(one, one, DONE, decoder=decoder)
        assert (decoder.first_units, decoder.events) == (tokens, 2)


@pytest.mark.covers("E-FR09")
def test_the_answer_begins_with_the_first_token_that_is_no_reasoning():
    thought, both, answer = (
        event(choices=[{"index": 0, "delta": delta, "finish_reason": None}])
        for delta in (
            {"content": "", "reasoning_content": "so"},
            {"content": "a", "reasoning_content": "so"},
            {"content": "a"},
        )
    )
    decoder = EventStreamDecoder(Forms())
    for last in (both, answer):
        for _ in range(4):
            read(thought, thought, thought, decoder=decoder, last=b"")
            assert (decoder.events, decoder.answered) == (3, False)
            decoder.feed(chunk(last))
            assert (decoder.events, decoder.answered) == (4, True)
            decoder.feed(chunk(DONE) + LAST)


@pytest.mark.covers("E-FR09")
@pytest.mark.parametrize("written", ["7", 7.0, "7.0", " 7 "])
def test_a_count_of_tokens_may_be_a_text_or_have_a_point_in_every_stream_of_a_server(written):
    forms = Forms()
    for count in (written, written, 5, written):
        decoder = EventStreamDecoder(forms, most_units=100)
        usage = {"prompt_tokens": count, "completion_tokens": count}
        read(said(" a"), event(id="cmpl-1", created=CREATED_S, choices=[], usage=usage), DONE, decoder=decoder)
        counts = (decoder.failure, decoder.units, decoder.prompt_units, decoder.counted)
        assert counts == (Failure.NONE, int(float(count)), int(float(count)), True)


@pytest.mark.parametrize("absurd", [-5, 10**26, 1e26, 10**17, 2.5, "7 tokens", "7.5", True, [3]])
@pytest.mark.parametrize("times", [1, 3])
def test_an_absurd_count_of_tokens_is_a_wrong_reply_of_that_request_alone(absurd, times):
    counts = {"prompt_tokens": 3, "total_tokens": 3, "completion_tokens": absurd}
    decoder = EventStreamDecoder(Forms(), most_units=100)
    for _ in range(times):
        read(
            said(" a"),
            said(" b"),
            event(id="cmpl-1", created=CREATED_S, choices=[], usage=counts),
            DONE,
            decoder=decoder,
        )
        assert (decoder.failure, decoder.units, decoder.keep_alive) == (Failure.WRONG_REPLY, 2, True)
        read(said(" a"), said(" b"), usage(3, 2), DONE, decoder=decoder)
        assert (decoder.failure, decoder.units, decoder.counted) == (Failure.NONE, 2, True)


def test_more_tokens_than_were_asked_for_are_believed_only_where_their_bytes_came():
    decoder = EventStreamDecoder(Forms(), most_units=100)
    assert read(*[said(" a")] * 9, usage(3, 900), DONE, decoder=decoder).failure == Failure.NONE
    assert read(*[said(" a")] * 9, usage(3, 90_000), DONE, decoder=decoder).failure == Failure.WRONG_REPLY
    assert read(said(" a"), usage(3, 0), DONE, decoder=decoder).counted is False, "a server that does not count"


def test_a_usage_in_the_first_event_says_how_many_tokens_came_with_it():
    decoder = read(said(" a b c", usage={"prompt_tokens": 2, "completion_tokens": 3}), usage(2, 4), DONE)
    assert (decoder.first_units, decoder.units) == (3, 4)


def test_a_token_without_text_counts_where_the_server_lists_its_ids():
    one = event(choices=[{"index": 0, "text": "", "token_ids": [7], "finish_reason": None}])
    assert read(one, one, DONE).events == 2


def test_choices_are_one_event_where_they_come_in_one():
    both = event(choices=[{"index": 0, "text": " a"}, {"index": 1, "text": " b"}])
    decoder = read(both, both, usage(1, 4), DONE)
    assert (decoder.events, decoder.units) == (2, 4)


def test_usages_of_several_choices_are_summed_where_there_is_no_total():
    counts = {"prompt_tokens": 5, "completion_tokens": 2}
    ends = [
        event(
            choices=[{"index": at, "text": " b", "finish_reason": "length"}], usage=counts, object="text_completion"
        )
        for at in range(3)
    ]
    decoder = read(said(" a"), *ends, DONE)
    assert (decoder.units, decoder.prompt_units, decoder.counted) == (6, 15, True)


def test_a_usage_that_only_the_last_event_has_is_found_behind_a_tail_like_all_others():
    decoder = EventStreamDecoder(Forms())
    choice = {"index": 0, "text": " a", "finish_reason": None}
    plain = event(id="1", choices=[choice], usage=None, object="text_completion")
    counts = {"prompt_tokens": 5, "completion_tokens": 9}
    last = event(id="1", choices=[choice], usage=counts, object="text_completion")
    for _ in range(2):
        read(plain, plain, last, DONE, decoder=decoder)
        assert (decoder.events, decoder.units, decoder.prompt_units) == (3, 9, 5)


def test_a_reply_without_a_token_is_empty():
    role = event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}])
    for events in ([role, usage(5, 0), DONE], [DONE], []):
        decoder = read(*events)
        assert (decoder.failure, decoder.units) == (Failure.EMPTY_REPLY, 0)
        assert decoder.keep_alive


@pytest.mark.parametrize(
    "error",
    [
        event(error={"message": "out of memory", "code": 500}),
        event(error="Request failed during generation", error_type="generation"),
        event(object="error", message="no", code=400),
        event(error={"code": 502}, choices=[{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]),
        event(detail="no"),
        event(code=500, message="no", type="server_error"),
        event(choices=[{"index": 0, "delta": {}, "finish_reason": "error"}]),
        event(choices=[{"index": 0, "delta": {}, "finish_reason": None, "error": {"code": 502}}]),
        b'error: {"code":500,"message":"no"}\n\n',
        b'event: error\ndata: {"message":"no"}\n\n',
    ],
)
@pytest.mark.covers("E-FR09")
def test_an_error_inside_a_stream_is_the_servers(error):
    decoder = EventStreamDecoder(Forms())
    for _ in range(2):
        read(said(" a"), said(" b"), error, DONE, decoder=decoder)
        assert (decoder.failure, decoder.events) == (Failure.SERVER_ERROR, 2)
        assert decoder.error == f"200 server_error: {error.decode().splitlines()[-2].removeprefix('data: ')}"
    read(said(" a"), DONE, decoder=decoder)
    assert decoder.failure == Failure.NONE


@pytest.mark.parametrize("head", [HEAD, HEAD.replace(b"200 OK", b"429 X")])
@pytest.mark.parametrize("cut", [b"", b"\n"])
def test_a_document_in_place_of_a_stream_is_what_the_server_says(head, cut):
    code, failure = ("200 wrong_reply", Failure.WRONG_REPLY)
    if head != HEAD:
        code, failure = ("429 Too Many Requests", Failure.CLIENT_ERROR)
    decoder = EventStreamDecoder(Forms())
    for _ in range(2):
        read(b'{"detail": "slow', b' down"}' + cut, decoder=decoder, head=head)
        assert decoder.failure == failure
        assert decoder.error.rstrip() == f'{code}: {{"detail": "slow down"}}'


@pytest.mark.parametrize("nothing", [None, False, "", {}, {"message": None, "code": 0}])
def test_a_field_for_errors_that_holds_none_is_no_error(nothing):
    decoder = EventStreamDecoder(Forms())
    for _ in range(3):
        read(said(" a", error=nothing), said(" b", error=nothing), usage(1, 2), DONE, decoder=decoder)
        assert (decoder.failure, decoder.events, decoder.units) == (Failure.NONE, 2, 2)


@pytest.mark.parametrize(
    "broken",
    [
        b"data: {\n\n",
        b"data: [1, 2]\n\n",
        b"data: what\n\n",
        b"data: " + b"[" * 100_000 + b"\n\n",
        said(" ab")[:-10] + b"\n\n",
        b'data: {"choices":[{"text":"\xff"}]}\n\n',
    ],
)
def test_an_event_that_is_no_object_is_a_wrong_reply(broken):
    decoder = EventStreamDecoder(Forms())
    for _ in range(2):
        read(said(" a"), said(" b"), broken, DONE, decoder=decoder)
        assert decoder.failure == Failure.WRONG_REPLY
        assert decoder.keep_alive


def test_an_event_cut_short_by_its_server_is_seen_by_its_end():
    decoder = read(said(" a"), said(" b"), said(" c")[:-5] + b"}\n\n", DONE)
    assert (decoder.failure, decoder.events) == (Failure.WRONG_REPLY, 2)


def test_a_stream_that_stops_without_an_end_is_wrong():
    decoder = read(said(" a"), said(" b"))
    assert (decoder.failure, decoder.units) == (Failure.WRONG_REPLY, 2)
    finish = event(choices=[{"index": 0, "text": "", "finish_reason": "length"}])
    for end in (DONE, usage(1, 2), finish):
        assert read(said(" a"), said(" b"), end).failure == Failure.NONE


def test_a_reply_that_is_no_stream_is_wrong():
    decoder = EventStreamDecoder(Forms())
    body = json.dumps({"choices": [{"message": {"content": "all at once"}}]}).encode()
    assert decoder.feed(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    assert decoder.failure == Failure.WRONG_REPLY


@pytest.mark.parametrize(("status", "failure"), [(400, Failure.CLIENT_ERROR), (503, Failure.SERVER_ERROR)])
def test_a_status_that_is_not_good_is_a_category(status, failure):
    decoder = EventStreamDecoder(Forms())
    assert decoder.feed(b'HTTP/1.1 %d X\r\nContent-Length: 12\r\n\r\n{"error":{}}' % status)
    assert (decoder.status, decoder.failure, decoder.units, decoder.keep_alive) == (status, failure, 0, True)


def test_a_head_is_known_again_and_another_is_not_taken_for_it():
    decoder = EventStreamDecoder(Forms())
    refused = HEAD.replace(b"200 OK", b"503 No")
    closing = HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    for _ in range(3):
        for head, status, failure, keep_alive in (
            (HEAD, 200, Failure.NONE, True),
            (refused, 503, Failure.SERVER_ERROR, True),
            (closing, 200, Failure.NONE, False),
        ):
            read(said(" a"), DONE, decoder=decoder, head=head)
            assert (decoder.status, decoder.failure, decoder.keep_alive) == (status, failure, keep_alive)


def test_lines_of_one_event_in_several_chunks_are_one_event():
    decoder = EventStreamDecoder(Forms())
    for _ in range(2):
        read(
            said(" a"),
            b"data:\n",
            said(" b"),
            said(" c"),
            b"data: {",
            b"\nd",
            b'ata: "choices":[]}\n\n',
            DONE,
            decoder=decoder,
        )
        assert (decoder.events, decoder.failure) == (3, Failure.NONE)


def test_a_chunk_that_goes_on_with_an_event_is_no_event_by_itself():
    for rest, events in ((said(" b"), 1), (usage(3, 9), 1)):
        decoder = read(said(" a"), b"data: what\n", rest, DONE)
        assert (decoder.failure, decoder.events, decoder.units) == (Failure.WRONG_REPLY, events, 1)


def test_an_event_counts_when_it_has_ended_and_not_before():
    decoder = read(last=b"")
    assert not decoder.feed(chunk(said(" a")[:-1] + b"i"))
    assert decoder.events == 0
    assert not decoder.feed(chunk(b"d: 1\n\n"))
    assert decoder.events == 1


def test_a_last_event_without_its_empty_line_is_read():
    decoder = read(said(" a"), usage(3, 2), DONE)
    for end in (b"", b"\n"):
        read(said(" a"), usage(3, 2)[:-2] + end, decoder=decoder)
        assert (decoder.units, decoder.prompt_units, decoder.failure) == (2, 3, Failure.NONE)


def test_comments_and_other_fields_are_no_events():
    ping = b": ping\r\n\r\nretry: 10\nid: 4\nevent: ping\n\n"
    decoder = read(ping, said(" a"), ping, b"\n\n", said(" b"), b"data\n\n", b"data:\n\n", DONE)
    assert (decoder.events, decoder.failure) == (2, Failure.NONE)


def test_carriage_returns_alone_end_lines_too():
    decoder = read(said(" a").replace(b"\n", b"\r"), said(" b").replace(b"\n", b"\r"), DONE.replace(b"\n", b"\r"))
    assert (decoder.events, decoder.failure) == (2, Failure.NONE)


@pytest.mark.parametrize("ending", [b"\r", b"\r\n", b"\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("chunked", [True, False])
def test_an_event_counts_with_the_read_that_ends_it_however_its_lines_end(ending, mark, chunked):
    events = [event.replace(b"\n", ending) for event in (said(" a"), said(" b"), said(" c"), usage(3, 3), DONE)]
    events[0] = mark + events[0]
    head = HEAD if chunked else b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
    for size in (1, 2, 7, 1 << 20):
        decoder = EventStreamDecoder(Forms())
        decoder.feed(head)
        for number, event in enumerate(events, 1):
            for start in range(0, len(event), size):
                assert decoder.events <= min(number, 3)
                part = event[start : start + size]
                decoder.feed(chunk(part) if chunked else part)
            if ending == b"\r\n" and size == 1:
                continue  # the last byte but one has ended it
            assert decoder.events == min(number, 3), (size, number)
        assert decoder.feed(LAST) if chunked else decoder.end_of_stream()
        assert (decoder.events, decoder.units, decoder.failure) == (3, 3, Failure.NONE)


def test_a_line_feed_that_belongs_to_a_carriage_return_ends_no_event():
    decoder = EventStreamDecoder(Forms())
    decoder.feed(HEAD)
    two_lines = b'data: {"choices":[{"index":0,\r\ndata: "text":" a"}]}\r\n\r\n'
    for place in range(len(two_lines)):
        decoder.feed(chunk(two_lines[place : place + 1]))
    assert (decoder.events, decoder.failure) == (1, Failure.NONE)


@pytest.mark.parametrize("tokens", [0, 1, 7])
def test_a_reply_without_a_token_is_empty_whatever_its_usage_says(tokens):
    role = event(id="cmpl-1", created=CREATED_S, choices=[{"index": 0, "text": "", "finish_reason": "stop"}])
    assert read(role, usage(3, tokens), DONE).failure == Failure.EMPTY_REPLY


@pytest.mark.parametrize("piece", [b"x" * (1 << 18), b"data: x\n" * (1 << 15)], ids=["line", "lines"])
def test_an_endless_event_is_a_reply_too_large_that_ends_with_its_connection(piece):
    decoder = read(said(" a"), last=b"")
    fed = [decoder.feed(chunk(piece)) for _ in range(5)]
    assert fed == [False, False, False, False, True]
    assert (decoder.failure, decoder.keep_alive) == (Failure.REPLY_TOO_LARGE, False)


def test_chunked_transfer_that_is_broken_ends_the_connection():
    decoder = read(said(" a"), said(" b"), last=b"")
    assert decoder.feed(b"what\r\n")
    assert (decoder.failure, decoder.keep_alive, decoder.units) == (Failure.PROTOCOL, False, 2)


def test_noise_anywhere_in_a_stream_never_raises():
    random = Random(3)
    decoder = EventStreamDecoder(Forms())
    for _ in range(300):
        wire = stream(random.choice(list(SERVERS)), random).wire
        at = random.randrange(len(wire))
        decoder.reset()
        for part in reads(wire[:at] + random.randbytes(random.randrange(1, 40)) + wire[at:], random):
            if decoder.feed(part):
                break
        decoder.end_of_stream()


def test_what_is_learnt_of_a_server_is_bounded():
    forms = Forms()
    decoder = EventStreamDecoder(forms)
    for number in range(200):
        read(event(**{f"field{number}": 1}, choices=[{"text": " a"}]), event(note=number), DONE, decoder=decoder)
        assert decoder.events == 1
    assert len(forms.known) + len(forms.silent) <= 32


def test_many_choices_are_of_few_forms():
    forms = Forms()
    decoder = EventStreamDecoder(forms)
    for number in range(2):
        base = {"id": f"cmpl-{number}", "created": CREATED_S + number}
        roles = [event(**base, choices=[{"index": at, "text": "", "finish_reason": None}]) for at in range(100)]
        texts = [event(**base, choices=[{"index": at, "text": " a", "finish_reason": None}]) for at in range(100)]
        ends = [event(**base, choices=[{"index": at, "text": "", "finish_reason": "stop"}]) for at in range(100)]
        read(*roles, *texts, *texts, *ends, usage(1, 200), DONE, decoder=decoder)
        assert (decoder.events, decoder.units, decoder.failure) == (200, 200, Failure.NONE)
    assert (len(forms.known), len(forms.silent)) == (1, 3)


@pytest.mark.parametrize("how_many", [1, 3])
def test_an_event_that_begins_as_the_others_and_ends_otherwise_is_read(how_many):
    """An error behind the text, in mid-stream: the event alone in its read, and among others."""
    ill = said(" c", error={"message": "out of memory"})
    decoder = EventStreamDecoder(Forms())
    for _ in range(2):
        decoder.reset()
        decoder.feed(HEAD)
        for events in ((said(" a"), said(" b")), (ill, *[said(" d")] * (how_many - 1)), (said(" e"),)):
            decoder.feed(b"".join(map(chunk, events)))
        assert decoder.feed(chunk(DONE) + LAST)
        assert decoder.failure == Failure.SERVER_ERROR


def test_what_goes_on_in_the_next_chunk_is_one_event_however_whole_that_chunk_looks():
    decoder = EventStreamDecoder(Forms())
    read(said(" a"), said(" b"), DONE, decoder=decoder)
    assert (decoder.events, decoder.failure) == (2, Failure.NONE)
    decoder = read(said(" a"), said(" b"), b"data: [", said(" c"), DONE, decoder=decoder)
    assert (decoder.events, decoder.failure) == (2, Failure.WRONG_REPLY)


def test_a_reply_of_more_choices_than_any_server_gives_is_wrong_and_is_not_looked_at_one_by_one():
    with pytest.raises(ValueError, match="5000 choices"):
        read_chunk(b'{"choices":[' + b",".join([b"{}"] * 5000) + b"]}")
