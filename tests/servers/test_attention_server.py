"""A real attention server with a random model of grouped heads: answers, contexts, methods, streams, mistakes."""

import json
import time

import pytest
from attention_server import attention_server, text_of
from prompts_of_servers import CONTEXT, OTHER, PROMPTS, QUESTIONS, inside

pytestmark = pytest.mark.services

CHUNK = 64
SINK_LOCAL = {"name": "sink_local", "maskers": [{"masker": "sink", "keys": 4}, {"masker": "local", "keys": 16}]}
SAMPLED = {"name": "sampled", "maskers": [{"masker": "local", "keys": 4}, {"masker": "random", "fraction": 0.2}]}
ALL_KEYS = {"name": "all", "maskers": [{"masker": "sink", "keys": 1}, {"masker": "local", "keys": 4096}]}
METHODS = {"dense": None, "sink_local": SINK_LOCAL, "sampled": SAMPLED}


@pytest.fixture(scope="module")
def server(models):
    options = {"served_model": "m", "dtype": "float32", "threads": 1, "prefill_chunk": CHUNK}
    with attention_server(models["whole"], **options) as running:
        yield running


def asked(server, **fields):
    """Return the text of an answer of 12 tokens that nothing ends early."""
    return text_of(server.ask(**{"max_tokens": 12, "ignore_eos": True, **fields}))


def test_it_is_healthy_once_it_has_given_a_token_and_names_its_model(server):
    assert server.get("/health") == (200, '{"status":"ok"}')
    status, text = server.get("/v1/models")
    [model] = json.loads(text)["data"]
    assert (status, model["id"], model["max_model_len"]) == (200, "m", 2048)


def test_dense_answers_are_those_of_generate_token_for_token(server, models):
    expected = models["generated"]
    whole = [server.ask(prompt=prompt, max_tokens=24) for prompt in PROMPTS]
    split = [server.ask(context=CONTEXT, question=question, max_tokens=24) for question in QUESTIONS]
    assert [[text_of(reply), reply["usage"]["completion_tokens"]] for reply in whole] == expected
    assert [text_of(reply) for reply in split] == [text for text, _ in expected[:3]]
    assert len({text for text, _ in expected}) == len(expected), "a model that always answers alike shows nothing"


def test_a_stream_has_an_event_for_each_token_and_is_the_whole_reply(server):
    fields = {"context": CONTEXT, "question": QUESTIONS[0], "attention": SINK_LOCAL, "max_tokens": 20}
    fields |= {"ignore_eos": True, "measure_error_ratio": 0.5}
    server.ask(**fields)
    whole, events = server.ask(**fields), server.stream(**fields)
    tokens, last = events[:-1], events[-1]
    assert "".join(event["choices"][0]["text"] for event in tokens) == text_of(whole)
    assert [event["choices"][0]["token_ids"] for event in tokens] == [[i] for i in whole["choices"][0]["token_ids"]]
    assert [event["choices"][0]["finish_reason"] for event in tokens] == [None] * 19 + ["length"]
    assert (last["choices"], last["usage"], last["seamark"]) == ([], whole["usage"], whole["seamark"])
    assert len({event["id"] for event in events}) == 1


@pytest.mark.parametrize("sparse_from", ["question", "generation", "prompt"])
@pytest.mark.parametrize("method", METHODS)
def test_a_kept_context_gives_the_answers_of_one_that_is_computed(server, method, sparse_from):
    fields = {"context": CONTEXT, "attention": METHODS[method], "sparse_from": sparse_from}
    computed = [asked(server, **fields, question=question, reuse_context=False) for question in QUESTIONS]
    replies = [server.ask(**fields, question=q, max_tokens=12, ignore_eos=True) for q in QUESTIONS]
    assert [text_of(reply) for reply in replies] == computed
    assert [reply["seamark"]["context_reused"] for reply in replies] == [True] * 3
    cached = {reply["usage"]["prompt_tokens_details"]["cached_tokens"] for reply in replies}
    assert cached == {replies[0]["seamark"]["context_tokens"]} != {0}
    assert len(set(computed)) == 3


def test_a_context_that_begins_like_the_last_one_is_reused_up_to_a_chunk(server):
    longer = CONTEXT + OTHER
    new = asked(server, context=longer, question="ba", reuse_context=False)
    asked(server, context=CONTEXT, question="ba")
    reply = server.ask(context=longer, question="ba", max_tokens=12, ignore_eos=True)
    cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached > 0
    assert cached % CHUNK == 0
    assert (text_of(reply), reply["seamark"]["context_reused"]) == (new, False)
    assert asked(server, context=OTHER, question="ba") == asked(
        server, context=OTHER, question="ba", reuse_context=False
    )


def test_a_context_computed_by_a_method_is_not_reused_by_another(server):
    fields = {"context": CONTEXT, "question": QUESTIONS[0], "sparse_from": "prompt"}
    dense = asked(server, **fields, reuse_context=False)
    sparse = asked(server, **fields, attention=SINK_LOCAL)
    assert asked(server, **fields) == dense
    assert asked(server, **fields, attention=SINK_LOCAL) == sparse != dense


@pytest.mark.parametrize("sparse_from", ["question", "generation", "prompt"])
def test_the_gathered_kernel_answers_as_the_masked_one(server, sparse_from):
    fields = {"context": CONTEXT, "attention": SINK_LOCAL, "sparse_from": sparse_from}
    gathered = [server.ask(**fields, question=q, kernel="gathered", max_tokens=12) for q in QUESTIONS]
    masked = [server.ask(**fields, question=q, kernel="masked", max_tokens=12) for q in QUESTIONS]
    assert [text_of(reply) for reply in gathered] == [text_of(reply) for reply in masked]
    assert [reply["seamark"]["kernel"] for reply in (gathered[0], masked[0])] == ["gathered", "masked"]
    assert [reply["seamark"]["density"] for reply in gathered] == [reply["seamark"]["density"] for reply in masked]
    assert [text_of(reply) for reply in gathered] != [
        asked(server, context=CONTEXT, question=question) for question in QUESTIONS
    ]


def test_the_metrics_page_counts_keys_errors_and_bytes_as_the_replies_do(server):
    def counted():
        names = ("question_keys_kept", "question_keys_allowed", "answer_keys_kept", "answer_keys_allowed")
        names += ("kv_read_bytes", "output_errors", "output_errors_sampled")
        return {name: server.counter(f"seamark_{name}_total") for name in names}

    before = counted()
    fields = {"attention": SINK_LOCAL, "measure_error_ratio": 1.0, "max_tokens": 5, "ignore_eos": True}
    facts = [server.ask(context=CONTEXT, question=each, **fields)["seamark"] for each in QUESTIONS[:2]]
    grown = {name: value - before[name] for name, value in counted().items()}
    kept, allowed = (grown[f"question_keys_{what}"] + grown[f"answer_keys_{what}"] for what in ("kept", "allowed"))
    assert 0 < grown["answer_keys_kept"] < grown["answer_keys_allowed"]
    low, high = sorted(each["density_mean"] for each in facts)
    assert low <= kept / allowed <= high
    assert grown["kv_read_bytes"] == sum(each["kv_bytes_read"] for each in facts)
    assert grown["output_errors_sampled"] == 2
    assert grown["output_errors"] == pytest.approx(sum(each["output_error_mean"] for each in facts))


def test_density_is_kept_keys_over_keys_that_causality_allows(server):
    reply = server.ask(context=CONTEXT, question="ba", attention=SINK_LOCAL, max_tokens=3, ignore_eos=True)
    facts, prompt = reply["seamark"], reply["usage"]["prompt_tokens"]
    of_question = [position + 1 for position in range(facts["context_tokens"], prompt)]
    of_answer = [prompt + 1, prompt + 2]
    kept = 4 + 16
    assert facts["density"]["question"] == pytest.approx([kept * len(of_question) / sum(of_question)] * 2)
    assert facts["density"]["answer"] == pytest.approx([kept * 2 / sum(of_answer)] * 2)
    steps = [*of_question, *of_answer]
    assert facts["density_mean"] == pytest.approx(kept * len(steps) / sum(steps))


def test_sparseness_begins_where_it_is_asked_to(server):
    fields = {"context": CONTEXT, "question": QUESTIONS[0], "attention": SINK_LOCAL}
    facts = server.ask(**fields, sparse_from="generation", max_tokens=4, ignore_eos=True)["seamark"]
    assert facts["density"]["question"] == [1.0, 1.0]
    assert max(facts["density"]["answer"]) < 0.2
    one = {"context": CONTEXT, "question": QUESTIONS[0], "max_tokens": 1}
    assert asked(server, **one) == asked(server, **one, attention=SINK_LOCAL, sparse_from="generation")
    facts = server.ask(**one, attention=SINK_LOCAL)["seamark"]
    assert facts["density"]["answer"] == []
    assert max(facts["density"]["question"]) < 0.2


def test_a_budget_that_covers_everything_gives_the_answers_of_dense_without_error(server):
    for question in QUESTIONS:
        fields = {"context": CONTEXT, "question": question, "max_tokens": 12, "ignore_eos": True}
        reply = server.ask(**fields, attention=ALL_KEYS, measure_error_ratio=1.0)
        assert text_of(reply) == asked(server, context=CONTEXT, question=question)
        assert reply["seamark"]["density_mean"] == 1.0
        assert reply["seamark"]["output_error_mean"] == pytest.approx(0, abs=1e-5)


def test_output_error_is_measured_for_a_seeded_sample_and_changes_no_answer(server):
    fields = {"context": CONTEXT, "question": QUESTIONS[1], "max_tokens": 12, "ignore_eos": True}
    sparse = fields | {"attention": SINK_LOCAL}
    none, some, every = (server.ask(**sparse, measure_error_ratio=ratio) for ratio in (0, 0.3, 1))
    assert text_of(none) == text_of(some) == text_of(every)
    assert none["seamark"]["output_error"] is None
    assert 0 < some["seamark"]["output_error_positions"] < every["seamark"]["output_error_positions"]
    assert all(error > 0.01 for error in every["seamark"]["output_error"])
    assert some["seamark"] == server.ask(**sparse, measure_error_ratio=0.3)["seamark"] | {"context_reused": True}
    assert server.ask(**fields, measure_error_ratio=1)["seamark"]["output_error"] is None


def test_bytes_of_keys_and_values_follow_from_shapes(server):
    reply = server.ask(context=CONTEXT, question="ba", max_tokens=2, ignore_eos=True)
    positions = reply["usage"]["prompt_tokens"]
    layers, kv_heads, head_dim, both, float32 = 2, 2, 16, 2, 4
    assert reply["seamark"]["kv_bytes_read"] == layers * kv_heads * head_dim * both * float32 * (2 * positions + 1)


def test_a_drawn_answer_depends_on_its_seed_alone(server):
    fields = {"question": QUESTIONS[0], "temperature": 1.5}
    first, again, other = (asked(server, **fields, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert asked(server, **fields, seed=1) != asked(server, question=QUESTIONS[0])


def test_prompts_of_one_seed_share_no_drawn_tokens(server):
    fields = {"temperature": 100, "max_tokens": 40, "ignore_eos": True, "seed": 1}  # all tokens are about as likely
    one, other = (server.ask(**fields, context=CONTEXT, question=question) for question in QUESTIONS[:2])
    whole = server.ask(**fields, prompt=CONTEXT + QUESTIONS[0])
    tokens = [reply["choices"][0]["token_ids"] for reply in (one, other, whole)]
    assert sum(a == b for a, b in zip(tokens[0], tokens[1], strict=True)) < 8
    assert tokens[0] == tokens[2], "the tokens count, not how they are divided"


def test_an_answer_ends_before_its_stop_string_streamed_or_whole(server):
    full = asked(server, question=QUESTIONS[2], max_tokens=24)
    stop = full[9:13]
    fields = {"question": QUESTIONS[2], "max_tokens": 24, "ignore_eos": True, "stop": [stop, "never"]}
    reply, events = server.ask(**fields), server.stream(**fields)
    assert text_of(reply) == full[: full.find(stop)]
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert reply["usage"]["completion_tokens"] < 24
    assert "".join(event["choices"][0]["text"] for event in events[:-1]) == text_of(reply)


def test_a_long_context_loses_its_middle_or_its_end_and_the_reply_says_how_many_tokens(server, models):
    context, question, limit = CONTEXT.rstrip(), " ba", 40
    ids, of_question = inside("encoded", folder=models["whole"], texts=[context, question])
    ids = [0, *ids]  # the first token of every text
    for how, kept in {"middle": ids[:20] + ids[-20:], "end": ids[:limit]}.items():
        fields = {"context": context, "question": question, "max_context_tokens": limit, "truncate": how}
        reply = server.ask(**fields, max_tokens=12, ignore_eos=True)
        facts = reply["seamark"]
        assert (facts["context_tokens"], facts["context_tokens_cut"]) == (limit, len(ids) - limit)
        assert text_of(reply) == asked(server, prompt=kept + of_question)
    assert asked(server, context=context, question=question) == asked(server, prompt=ids + of_question)


def test_a_chat_template_is_split_between_context_and_question(server):
    chat = {"chat_template": True, "context": CONTEXT, "question": QUESTIONS[0]}
    by_hand = f"user: {CONTEXT.strip()} {QUESTIONS[0].strip()} end\nanswer: ka"
    assert asked(server, **chat, answer_prefix="ka") == asked(server, question=by_hand)
    facts = server.ask(**chat)["seamark"]
    assert facts["context_tokens"] > server.ask(context=CONTEXT, question="ba")["seamark"]["context_tokens"]


WRONG = [
    ("{", 400, "the body is no JSON"),
    ("[]", 400, "the body is no JSON object"),
    ({"promt": "ba"}, 400, "promt: unknown field. Did you mean 'prompt'?"),
    ({}, 400, "question: missing"),
    ({"context": "ba"}, 400, "question: missing"),
    ({"prompt": "ba", "question": "ba"}, 400, "prompt: given beside 'question'"),
    ({"prompt": ""}, 200, ""),
    ({"prompt": []}, 400, "question: it has no tokens"),
    ({"prompt": [5, 400]}, 400, "token ids 0 to 399"),
    ({"prompt": [[5], [6]]}, 400, "prompt: not one text or one list of token ids"),
    ({"prompt": 5}, 400, "prompt: not one text"),
    ({"question": 5}, 400, "question: 5 is not a text"),
    ({"prompt": "ba", "model": "n"}, 404, "model: 'n' is not served here, 'm' is"),
    ({"prompt": "ba", "max_tokens": 0}, 400, "max_tokens: 0 is not a whole number from 1"),
    ({"prompt": "ba", "max_tokens": True}, 400, "max_tokens: True"),
    ({"prompt": "ba", "max_tokens": 4096}, 400, "exceed the model's 2048"),
    ({"prompt": "ba", "temperature": -1}, 400, "temperature: -1 is not a number from 0 to 100"),
    ({"prompt": "ba", "kernel": "gatherd"}, 400, "Did you mean 'gathered'?"),
    ({"prompt": "ba", "sparse_from": "start"}, 400, "question, generation, prompt"),
    ({"prompt": "ba", "truncate": "begin"}, 400, "middle, end, error"),
    ({"context": CONTEXT, "question": "ba", "truncate": "error", "max_context_tokens": 9}, 400, "of which 9 fit"),
    ({"prompt": "ba", "stop": [""]}, 400, "stop: not a text"),
    ({"prompt": "ba", "n": 2}, 400, "n: this server takes 1 alone"),
    ({"prompt": "ba", "stream": "yes"}, 400, "stream: 'yes' is not true or false"),
    ({"prompt": "ba", "stream_options": 1}, 400, "stream_options: not a mapping"),
    ({"prompt": [5], "chat_template": True}, 400, "token ids have no answer_prefix"),
    ({"prompt": "ba", "attention": "dense"}, 400, "attention: not a mapping"),
    ({"prompt": "ba", "attention": {"name": "a", "maskers": [{"masker": "snik"}]}}, 400, "Did you mean 'sink'?"),
    ({"prompt": "ba", "attention": {"name": "a", "maskers": [{"masker": "sink", "keys": 0}]}}, 400, "keys"),
]


@pytest.mark.parametrize(("body", "status", "says"), WRONG, ids=[str(body)[:40] for body, _, _ in WRONG])
def test_a_wrong_request_gets_one_clear_line(server, body, status, says):
    got, reply = server.post(body)
    assert got == status, reply
    if status != 200:
        message = reply["error"]["message"]
        assert says in message
        assert "\n" not in message
        assert reply["error"]["code"] in (
            "wrong_request",
            "model_not_found",
            "context_too_long",
            "method_not_supported",
        )


def test_other_paths_and_methods_are_refused(server):
    assert server.get("/v1/complete")[0] == 404
    assert "/v1/completions" in server.get("/v1/completion")[1]
    assert server.get("/v1/completions")[0] == 405


def test_a_time_limit_ends_an_answer_as_a_failure(server):
    status, reply = server.post({"prompt": CONTEXT, "max_tokens": 900, "limit_s": 0.05, "ignore_eos": True})
    assert (status, reply["error"]["code"]) == (504, "generation_timeout")
    assert server.get("/health")[0] == 200


def test_a_client_that_goes_ends_the_work_on_its_request(server):
    gone = 'seamark_requests_total{outcome="cancelled"}'
    before, tokens = server.counter(gone), server.counter("seamark_generation_tokens_total")
    body = {"model": "m", "prompt": "ba", "max_tokens": 2000, "ignore_eos": True, "stream": True}
    connection = server.connection()
    connection.request("POST", "/v1/completions", json.dumps(body))
    assert connection.getresponse().read(10) == b'data: {"id'
    connection.close()
    deadline_s = time.monotonic() + 20
    while server.counter(gone) == before and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert server.counter(gone) == before + 1
    assert server.counter("seamark_generation_tokens_total") == tokens
    assert server.counter("seamark_requests_running") == server.counter("seamark_requests_waiting") == 0


def test_requests_of_many_clients_wait_for_their_turn_and_all_are_answered(server):
    alone = [asked(server, question=question) for question in QUESTIONS]
    connections = [server.connection() for _ in range(9)]
    for at, connection in enumerate(connections):
        body = {"model": "m", "question": QUESTIONS[at % 3], "max_tokens": 12, "ignore_eos": True}
        connection.request("POST", "/v1/completions", json.dumps(body))
    answers = [text_of(json.loads(connection.getresponse().read())) for connection in connections]
    assert answers == alone * 3


def test_a_connection_serves_several_requests(server):
    connection = server.connection()
    for _ in range(3):
        connection.request("POST", "/v1/completions", json.dumps({"model": "m", "prompt": "ba", "max_tokens": 2}))
        assert connection.getresponse().read()
        connection.request("GET", "/v1/nothing")
        assert connection.getresponse().read()
