"""Questions as requests, and their scores: contexts apart where a server takes them so, figures of each reply."""

import json
from pathlib import Path
from typing import Any

import pytest

from seamark.config.forms.table import LevelReader, canonical, text_of
from seamark.config.yaml_source import Item, Mistakes, yaml_tree
from seamark.drivers.openai.kept import read_kept
from seamark.errors import UserError
from seamark.load.driver import Target, TaskFailure
from seamark.model.service import Service, Setting
from seamark.planning.study import SHIPPED
from seamark_evaluate.attention.method import read_method
from seamark_evaluate.drivers import questions
from seamark_evaluate.drivers.questions import Questions, asked_of, judge

TASK = Setting(name="task", type="structure", role="workload", help="")
METHOD = Setting(name="method", type="structure", role="workload", help="")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "CACHE", tmp_path / "questions")


def level(setting: Setting, value: Any) -> list[str]:
    """Return the levels that a value of a scenario stands for."""
    service: Any = None
    reader = LevelReader(service=service, preset_folder=(SHIPPED / "config").joinpath)
    mistakes = Mistakes()
    item = Item(value=value, file="s.yaml", line=1, path=setting.name, text=str(value))
    found = reader.levels(item, setting, mistakes)
    assert not mistakes.noted, mistakes.noted
    assert found is not None
    return [str(each) for each in found]


def target(tmp_path: Path, **settings: Any) -> Target:
    [task] = level(TASK, settings.pop("task", "needles"))
    return Target(settings={"task": task, "max_requests": 6, **settings}, data=tmp_path, ports={"http": 1})


def sent(driver: Questions, number: int) -> dict[str, Any]:
    """Return the document of one request on the wire."""
    return sent_at(driver, number, 1)


def sent_at(driver: Questions, number: int, trial: int) -> dict[str, Any]:
    """Return the document of one request of a trial with that seed."""
    [*_, body] = driver.bodies(number + 1, trial)
    document: dict[str, Any] = json.loads(driver.encode(body).partition(b"\r\n\r\n")[2])
    return document


def reply(*documents: dict[str, Any], status: int = 200) -> bytes:
    """Return a streamed reply as it comes, in chunks."""
    events = [f"data: {json.dumps(each)}\n\n" for each in documents] + ["data: [DONE]\n\n"]
    chunks = "".join(f"{len(each.encode()):x}\r\n{each}\r\n" for each in events) + "0\r\n\r\n"
    return f"HTTP/1.1 {status} OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}".encode()


def piece(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish}]}


def test_a_server_with_methods_gets_context_question_and_method_apart(tmp_path: Path) -> None:
    [method] = level(METHOD, "streaming")
    driver = Questions(target(tmp_path, method=method, sparse_from="generation", model="m"))
    asked = asked_of(target(tmp_path).settings)
    document = sent(driver, 2)
    assert document["context"] == asked[2].context
    assert document["question"] == asked[2].question
    assert document["attention"] == json.loads(method)
    assert (document["sparse_from"], document["max_tokens"]) == ("generation", 1)
    assert "prompt" not in document
    assert document["context_scope"] == "1", "a context of another load is computed anew"
    assert "ignore_eos" not in document, "an answer ends where the model ends it"


@pytest.mark.parametrize(("bound", "asked"), [(None, 16), (512, 16), (5, 5)])
@pytest.mark.parametrize("apart", [True, False])
def test_a_bound_of_answers_shortens_the_length_of_a_question_and_never_raises_it(
    bound: int | None, asked: int, apart: bool, tmp_path: Path
) -> None:
    method = {"method": level(METHOD, "dense")[0]} if apart else {}
    driver = Questions(target(tmp_path, task="mock_benchmark", max_new_tokens=bound, **method))
    assert sent(driver, 0)["max_tokens"] == driver.most_units == asked


def test_the_seed_of_requests_is_that_of_the_trial_and_the_setting(tmp_path: Path) -> None:
    [method] = level(METHOD, "dense")

    def seeds(trial: int, **settings: Any) -> list[int]:
        driver = Questions(target(tmp_path, **{"sampling_seed": 0, "method": method, **settings}))
        return [sent_at(driver, number, trial)["seed"] for number in (0, 1)]

    assert seeds(1) == seeds(1)
    assert seeds(1)[0] == seeds(1)[1], "the server mixes the prompt in, so that questions share a context"
    assert len({seeds(1)[0], seeds(2)[0], seeds(1, sampling_seed=1)[0]}) == 3
    other = Questions(
        Target(settings={"task": level(TASK, "needles")[0], "sampling_seed": 0}, data=tmp_path, ports={"http": 1})
    )
    of_questions = [sent_at(other, number, 1)["seed"] for number in (0, 1)]
    assert len(set(of_questions)) == 2, "any other server has the seed alone"
    assert max(of_questions) < 1 << 31
    assert "seed" not in sent(Questions(target(tmp_path, method=method)), 0)


def test_the_server_itself_ends_an_answer_before_its_request_times_out(tmp_path: Path) -> None:
    [method] = level(METHOD, "dense")
    assert sent(Questions(target(tmp_path, method=method, timeout_s=7200.0)), 0)["limit_s"] == 6480
    assert "limit_s" not in sent(Questions(target(tmp_path, timeout_s=7200.0)), 0), "no field of the OpenAI API"


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_any_other_server_gets_the_whole_prompt(endpoint: str, tmp_path: Path) -> None:
    driver = Questions(target(tmp_path, endpoint=endpoint))
    asked = asked_of(target(tmp_path).settings)
    document = sent(driver, 0)
    prompt = document["prompt"] if endpoint == "completions" else document["messages"][0]["content"]
    assert prompt == asked[0].prompt


def test_the_beginning_of_an_answer_is_no_part_of_what_a_user_says_in_a_chat(tmp_path: Path) -> None:
    task = {"task": "ruler/niah_single_1", "length_words": 200, "max_requests": 1}
    [question] = asked_of(target(tmp_path, **task).settings)
    assert question.answer_prefix.strip()
    chat = sent(Questions(target(tmp_path, endpoint="chat", **task)), 0)
    assert chat["messages"] == [{"role": "user", "content": question.context + question.question}]
    assert sent(Questions(target(tmp_path, **task)), 0)["prompt"].endswith(question.answer_prefix)


@pytest.mark.parametrize(("subset", "wanted"), [("qasper", True), ("trec", False)])
def test_a_chat_template_is_left_out_where_the_benchmark_leaves_it_out(
    subset: str, wanted: bool, tmp_path: Path
) -> None:
    row = {"_id": "1", "input": "Which?", "context": "Text.", "answers": ["a"], "all_classes": ["a", "b"]}
    row |= {"length": 1, "language": "en", "dataset": subset}
    (tmp_path / f"{subset}.jsonl").write_text(json.dumps(row) + "\n")
    document = json.loads(level(TASK, f"longbench/{subset}")[0])
    document["source"] |= {"hub": None, "revision": None, "files": None, "folder": str(tmp_path)}
    settings = {"task": json.dumps(document), "method": level(METHOD, "dense")[0], "chat_template": True}

    def asked(**more: Any) -> dict[str, Any]:
        return sent(Questions(Target(settings={**settings, **more}, data=tmp_path, ports={"http": 1})), 0)

    assert asked()["chat_template"] is wanted
    assert asked(chat_template=False)["chat_template"] is False


def test_questions_on_one_context_are_a_group_and_the_seed_of_the_trial_changes_none(tmp_path: Path) -> None:
    driver = Questions(target(tmp_path, task="mock_benchmark"))
    asked = asked_of(target(tmp_path, task="mock_benchmark").settings)
    assert driver.work_count == len(asked) == 5
    assert len(set(driver.work_groups or ())) == len({each.context for each in asked}) == 3
    assert [body.content for body in driver.bodies(5, 1)] == [body.content for body in driver.bodies(5, 2)]


def test_an_answer_is_scored_with_the_figures_of_its_reply_and_the_facts_of_its_question(tmp_path: Path) -> None:
    asked = asked_of(target(tmp_path).settings)
    layers = {"question": [0.5, 0.2], "answer": [0.3, 0.4]}
    measured = {"density_mean": 0.25, "density": layers}
    right = reply(piece(asked[1].references[0], "length"), {"choices": [], "seamark": measured})
    wrong = reply(piece("no"), piece("thing", "stop"), {"choices": [], "seamark": {"density_mean": 0.75}})
    damaged = reply({"error": {"message": "gone"}})
    judged = judge(target(tmp_path), [1, 4, 0], [right, wrong, damaged])
    assert list(judged.scores["score"]) == [1.0, 0.0, None]
    assert list(judged.scores["density"]) == [0.25, 0.75, None]
    assert judged.answers == [asked[1].references[0], "nothing", None]
    assert judged.finish == ["length", "stop", None]
    assert judged.ids is not None
    assert [each.split()[0] for each in judged.ids] == [f"needles/{asked[item].id}" for item in (1, 4, 0)]
    longer = judge(target(tmp_path, length_words=300), [1], [right])
    assert longer.ids != judged.ids[:1], "another text is another item"
    assert judged.clusters == [asked[item].cluster for item in (1, 4, 0)]
    assert judged.facts is not None
    assert judged.facts["depth_ratio"] == [asked[item].facts["depth_ratio"] for item in (1, 4, 0)]
    assert judged.facts["least_layer_density"] == [0.2, None, None]


def test_answers_whose_context_lost_tokens_are_counted(tmp_path: Path) -> None:
    cuts = [{"context_tokens_cut": cut} for cut in (0, 900, 3)]
    replies = [reply(piece("x"), {"choices": [], "seamark": facts}) for facts in cuts]
    judged = judge(target(tmp_path), [0, 1, 2, 3], [*replies, reply(piece("x"))])
    assert list(judged.scores["context_was_cut"]) == [0.0, 1.0, 1.0, None]
    assert "context_was_cut" not in judge(target(tmp_path), [0], [reply(piece("x"))]).scores


@pytest.mark.parametrize(("chunks", "marked"), [((512, 512), None), ((512, 128), [0.0, 1.0])])
def test_a_trial_with_halved_chunks_of_prompts_says_so(
    chunks: tuple[int, int], marked: list[float] | None, tmp_path: Path
) -> None:
    replies = [reply(piece("x"), {"choices": [], "seamark": {"prefill_chunk": chunk}}) for chunk in chunks]
    judged = judge(target(tmp_path, prefill_chunk=512), [0, 1], replies)
    assert judged.scores.get("prefill_chunk_halved") == marked


@pytest.mark.parametrize(
    ("kernel", "method", "marked"),
    [("masked", "streaming", True), ("masked", "dense", False), ("gathered", "streaming", False)],
)
def test_times_of_a_masked_method_are_marked(kernel: str, method: str, marked: bool, tmp_path: Path) -> None:
    [text] = level(METHOD, method)
    judged = judge(target(tmp_path, method=text, kernel=kernel), [0], [reply(piece("x"))])
    assert ("speed_not_of_method" in judged.scores) == marked


@pytest.mark.parametrize(
    ("received", "text"),
    [
        (reply(piece("a b"), piece(" c", "stop")), "a b c"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\n{"choices": [{"text": "whole"}]}'[:-1], None),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 32\r\n\r\n{"choices": [{"text": "whole"}]}', "whole"),
        (reply({"choices": [{"delta": {"reasoning": "hm", "content": "yes"}}]}), "yes"),
        (reply(piece("a"), {"choices": [{"index": 1, "text": "other"}]}), "a"),
        (reply(piece("a"), status=500), None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{", None),
        (b"", None),
        (b"nonsense", None),
    ],
)
def test_a_kept_reply_has_the_text_of_its_first_choice_and_none_where_it_is_not_good(
    received: bytes, text: str | None
) -> None:
    assert read_kept(received).text == text


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"message": "full", "type": "server_error", "code": "gpu_out_of_memory"}, "gpu_out_of_memory"),
        ({"message": "too long", "type": "BadRequestError", "param": None, "code": 400}, "BadRequestError"),
        ({"message": "no", "type": None, "code": "404"}, None),
        ("full", None),
    ],
)
def test_the_error_of_a_reply_is_the_code_that_the_server_gave_or_else_its_type(
    error: object, code: str | None
) -> None:
    assert read_kept(reply({"error": error}, status=500)).error == code
    assert read_kept(reply(piece("a"), {"error": error})).error == code


@pytest.mark.covers("B12")
def test_questions_that_cannot_be_kept_fail_their_trial_with_a_category(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(questions, "CACHE", tmp_path / "file" / "questions")
    with pytest.raises(TaskFailure) as caught:
        Questions(target(tmp_path, task_seed=73))
    assert caught.value.category == "filesystem_error"
    assert "Not a directory" in str(caught.value)


def test_a_benchmark_without_a_subset_stands_for_all_of_its_subsets() -> None:
    names = [json.loads(each)["name"] for each in level(TASK, "longbench")]
    assert len(names) == len(set(names)) >= 21
    assert "longbench/narrativeqa" in names
    assert [json.loads(each)["name"] for each in level(TASK, "mock_benchmark")] == ["mock_benchmark"]
    [one] = level(TASK, "longbench/qasper")
    assert canonical(json.loads(one)) == one


def test_methods_in_place_name_the_line_of_each_mistake() -> None:
    keys = Item(value=0, file="s.yaml", line=9, path="method.maskers[0].keys", text="0")
    name = Item(value="sink", file="s.yaml", line=9, path="method.maskers[0].masker", text="sink")
    masker = Item(value={"masker": name, "keys": keys}, file="s.yaml", line=9, path="method.maskers[0]")
    maskers = Item(value=[masker], file="s.yaml", line=8, path="method.maskers")
    label = Item(value="mine", file="s.yaml", line=7, path="method.name", text="mine")
    item = Item(value={"name": label, "maskers": maskers}, file="s.yaml", line=7, path="method")
    mistakes = Mistakes()
    service: Service | None = None
    reader = LevelReader(service=service, preset_folder=Path)  # type: ignore[arg-type]
    assert reader.levels(item, METHOD, mistakes) is None
    [line] = mistakes.noted
    assert (line.line, line.path) == (9, "method.maskers[0].keys")


def method_in_place(document: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the levels of a method that is written in place, and the mistakes in it."""
    mistakes = Mistakes()
    item = yaml_tree(json.dumps(document), Path("s.yaml"), mistakes)
    assert item is not None
    service: Any = None
    reader = LevelReader(service=service, preset_folder=(SHIPPED / "config").joinpath)
    return [str(each) for each in reader.levels(item, METHOD, mistakes) or ()], [str(each) for each in mistakes.noted]


HASHED = {"name": "trained", "maskers": [{"masker": "hash_top_k", "keys": 2, "bits": 8, "weights": "w.safetensors"}]}


def test_weights_of_a_method_are_a_file_of_the_study_and_another_file_is_another_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [line] = method_in_place(HASHED)[1]
    assert "w.safetensors: No such file or directory. Name a file of trained projections" in line
    levels = []
    for content in (b"one", b"two"):
        Path("w.safetensors").write_bytes(content)
        found, mistakes = method_in_place(HASHED)
        assert mistakes == []
        levels += found
    assert len(set(levels)) == 2
    [masker] = json.loads(levels[1])["maskers"]
    assert masker["weights"] == "w.safetensors", "a study may move"
    asked = sent(Questions(target(tmp_path, method=levels[1])), 0)["attention"]["maskers"]
    assert asked == [{**masker, "weights": str(tmp_path / "w.safetensors")}]
    assert "weights=w.safetensors" in text_of("method", levels[1])
    pinned = {**HASHED, "maskers": [{**HASHED["maskers"][0], "weights_sha256": "0" * 64}]}  # type: ignore[dict-item]
    [line] = method_in_place(pinned)[1]
    assert "not the weights_sha256 that is written" in line


def test_results_say_that_projections_are_random(tmp_path: Path) -> None:
    [level_of_preset] = level(METHOD, "hash_attention")
    assert "weights=random" in text_of("method", level_of_preset)
    [note] = read_method(json.loads(level_of_preset), "method").notes
    assert note == "hash_top_k: random projections of seed 0, not trained ones"


@pytest.mark.parametrize("text", ["revision=main", "[1]", "3"])
def test_options_that_are_no_object_are_found_before_a_server_starts(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model_options: .* is no JSON object"):
        Questions(target(tmp_path, model_options=text))
    Questions(target(tmp_path, model_options='{"revision": "main"}', tokenizer_options=""))
