"""Parts of the attention server in its environment: prefill, text, failures of a start, categories of errors."""

import pytest
from attention_server import in_evaluation

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return in_evaluation("inside_attention", "write_models", folder=str(tmp_path_factory.mktemp("models")))


def test_chunks_are_halved_when_memory_runs_out_and_the_answer_is_that_of_a_whole_prompt(models):
    seen = in_evaluation("inside_attention", "prefilled", folder=models["whole"], tokens=300, chunk=128, fits=40)
    assert seen["chunked"] < 1e-4
    assert seen["halved"] < 1e-4
    assert seen["keys"] < 1e-4
    assert seen["positions"] == [300, 300]
    assert seen["chunks_began"] == [0, 128, 256]
    assert seen["began"] == [*range(0, 300, 32)]
    assert seen["halvings"] == 2
    assert seen["refused"] == "injected"


def test_a_model_that_cannot_be_served_is_refused_with_its_category_and_one_line(models, tmp_path):
    wanted = {
        str(tmp_path / "nothing"): ("model_not_found", "there is no such folder"),
        str(tmp_path): ("model_not_found", "there is no config.json in this folder"),
        models["config"]: ("model_load_error", "unheard_of"),
        models["tokenizer"]: ("tokenizer_error", "tokenizer"),
        models["weight"]: ("model_load_error", "lack 1 weights: model.layers.1.self_attn.k_proj.weight"),
    }
    found = in_evaluation("inside_attention", "failures_of_starts", folders=list(wanted), options=[])
    for (code, text), (seen, line) in zip(wanted.values(), found, strict=True):
        assert (seen, text in line, "\n" in line) == (code, True, False), line


def test_a_length_that_the_model_has_no_positions_for_is_refused(models):
    options = ["--max-model-len=4096"]
    [[code, line]] = in_evaluation(
        "inside_attention", "failures_of_starts", folders=[models["whole"]], options=options
    )
    assert code == "model_load_error"
    assert "positions for 2048 tokens" in line


def test_categories_follow_from_types_and_cuda_codes_never_from_words():
    assert in_evaluation("inside_attention", "categories") == {
        "torch out of memory": "gpu_out_of_memory",
        "cuda 2": "gpu_out_of_memory",
        "cuda 700": "gpu_error",
        "host": "host_out_of_memory",
        "time": "generation_timeout",
        "words alone": "generation_failed",
    }


def test_text_comes_in_whole_characters_and_stops_across_tokens(models):
    text = "kaba é鲸 dune"
    ids = in_evaluation("inside_attention", "encoded", folder=models["whole"], text=text)
    seen = in_evaluation("inside_attention", "texts", folder=models["whole"], ids=ids, stop=[])
    assert "".join(seen["pieces"]) == text
    assert len(ids) > len(text.split())
    assert not any("\ufffd" in piece for piece in seen["pieces"])
    seen = in_evaluation("inside_attention", "texts", folder=models["whole"], ids=ids, stop=["zz", "鲸 d"])
    assert ("".join(seen["pieces"]), seen["stopped"]) == ("kaba é", True)
    seen = in_evaluation("inside_attention", "texts", folder=models["whole"], ids=ids, stop=["dunes"])
    assert ("".join(seen["pieces"]), seen["stopped"]) == (text, False)
    seen = in_evaluation("inside_attention", "texts", folder=models["whole"], ids=ids[:-5], stop=[])
    assert "".join(seen["pieces"]) == seen["whole"] != text
