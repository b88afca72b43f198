"""Parts of the attention server in its environment: prefill, text, failures of a start, categories of errors."""

import pytest
from prompts_of_servers import inside

pytestmark = pytest.mark.services


@pytest.mark.parametrize("on_cpu", [False, True])
def test_chunks_are_halved_when_memory_runs_out_and_the_answer_is_that_of_a_whole_prompt(models, on_cpu):
    seen = inside("prefilled", folder=models["whole"], tokens=300, chunk=128, fits=40, on_cpu=on_cpu)
    assert seen["chunked"] < 1e-4
    assert seen["halved"] < 1e-4
    assert seen["keys"] < 1e-4
    assert seen["positions"] == [300, 300]
    assert seen["chunks_began"] == [0, 128, 256]
    assert seen["began"] == [*range(0, 300, 32)]
    assert seen["halvings"] == 2
    assert seen["refused"] == ("host_out_of_memory" if on_cpu else "gpu_out_of_memory")


def test_chunks_stay_halved_within_a_load_and_another_load_begins_with_whole_ones(models):
    scopes = ["one", "one", "other"]
    seen = inside("halved_in_loads", folder=models["whole"], tokens=300, chunk=128, fits=40, scopes=scopes)
    assert seen["chunks"] == [32, 32, 128]
    assert seen["halvings"] == [2, 2, 2]


def test_what_a_chunk_without_memory_has_counted_before_it_failed_is_not_counted(models):
    dense, dense_halved, sparse, sparse_halved = inside(
        "halved_in_a_question", folder=models["whole"], tokens=200, chunk=128, fits=32
    )
    assert dense["prefill_chunk"] == dense_halved["prefill_chunk"] == 32
    assert dense_halved == dense
    assert sparse_halved == sparse
    assert sparse["output_error_positions"] > 0


def test_a_request_that_ends_in_its_context_leaves_the_chunks_that_are_done_to_the_next_one(models):
    seen = inside("ended_in_its_context", folder=models["whole"], tokens=300, chunk=32, passes=[1, 4])
    assert seen["ended"] == [True, True]
    assert seen["cached"] == (1 + 4) * 32
    assert seen["tokens"] == seen["anew"]


def test_a_model_that_cannot_be_served_is_refused_with_its_category_and_one_line(models, tmp_path):
    wanted = [
        ([str(tmp_path / "nothing")], "model_not_found", "there is no such folder"),
        ([str(tmp_path)], "model_not_found", "there is no config.json in this folder"),
        ([models["config"]], "model_load_error", "unheard_of"),
        ([models["json"]], "model_load_error", "not a valid JSON file"),
        ([models["tokenizer"]], "tokenizer_error", "tokenizer"),
        ([models["weight"]], "model_load_error", "lack 1 weights: model.layers.1.self_attn.k_proj.weight"),
        ([models["weight"], "--validate=none"], "", ""),
        ([models["whole"], "--max-model-len=4096"], "model_load_error", "positions for 2048 tokens"),
        ([models["whole"], "--device=cuba"], "gpu_error", "--device cuba: it cannot be used"),
    ]
    found = inside("failures_of_starts", starts=[start for start, _, _ in wanted])
    for (start, code, text), (seen, line) in zip(wanted, found, strict=True):
        assert (seen, text in line, "\n" in line) == (code, True, False), (start, line)


def test_options_of_a_model_reach_its_configuration_and_its_tokenizer(models, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    name = inside("write_revisions", folder=models["whole"], cache=str(tmp_path / "hub"))
    own = inside("write_own_code", folder=models["whole"], own=str(tmp_path / "own"))
    revision, trust = '--model-options={"revision": "v1"}', '--model-options={"trust_remote_code": true}'
    starts = [[name, revision], [own, trust], [name], [own]]
    found = inside("failures_of_starts", starts=starts)
    assert found[:2] == [["", ""], ["", ""]]
    assert [code for code, _ in found[2:]] == ["model_load_error"] * 2
    assert "trust_remote_code" in found[3][1]


def test_categories_follow_from_types_and_codes_not_from_words():
    assert inside("categories") == {
        "torch on the CPU": "host_out_of_memory",
        "no memory for a file": "host_out_of_memory",
        "torch out of memory": "gpu_out_of_memory",
        "cuda 2": "gpu_out_of_memory",
        "cuda 700": "gpu_error",
        "host": "host_out_of_memory",
        "time": "generation_timeout",
        "no permission": "filesystem_error",
        "input or output": "filesystem_error",
        "no file": "generation_failed",
        "words alone": "generation_failed",
    }


def test_text_comes_in_whole_characters_and_stops_across_tokens(models):
    text = "kaba é鲸 dune"
    cases = [(text, 0, []), (text, 0, ["zz", "鲸 d"]), (text, 0, ["dunes"]), ("kaba é鲸", 1, []), ("kaba", 0, ["k"])]
    all_of_it, stopped, nearly, cut, nothing = inside("texts", folder=models["whole"], cases=cases)
    assert "".join(all_of_it["pieces"]) == text
    assert not any("\ufffd" in piece for piece in all_of_it["pieces"])
    assert sum(map(bool, all_of_it["pieces"])) > 4
    assert ("".join(stopped["pieces"]), stopped["stopped"]) == ("kaba é", True)
    assert ("".join(nearly["pieces"]), nearly["stopped"]) == (text, False)
    assert "".join(cut["pieces"]) == cut["whole"] != "kaba é鲸"
    assert ("".join(nothing["pieces"]), nothing["stopped"]) == ("", True)
