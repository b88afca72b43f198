"""Memory of a GPU against figures worked out by hand, and against published starts of vLLM."""

import pytest
from model_folders import (
    DEEPSEEK_V3,
    LLAMA_8B,
    LLAMA_8B_PARAMETERS,
    LLAMA_70B,
    LLAMA_70B_PARAMETERS,
    MIXTRAL,
    MIXTRAL_PARAMETERS,
)

from seamark_simulate.simulation.gpu_memory import (
    GIB,
    GPU_KINDS,
    Layout,
    ServerMemory,
    SizedModel,
    estimate_memory,
    kv_token_bytes,
    kv_tokens,
    refusals,
)
from seamark_simulate.simulation.model_architecture import UnsizedError, architecture_of


def sized(config, parameters):
    return SizedModel(architecture=architecture_of(config), weights={"BF16": parameters * 2})


def asked(gpu="a100-40", tensor=1, pipeline=1, data=1, **settings):
    layout = Layout(tensor_parallel=tensor, pipeline_parallel=pipeline, data_parallel=data)
    return ServerMemory(layout=layout, gpu_gb=GPU_KINDS[gpu], **settings)


def refused(config, parameters, request, gpus=64, **place):
    return refusals(sized(config, parameters), request, gpus=gpus, **place)


@pytest.mark.covers("D8")
def test_llama_8b_on_one_a100_of_40_gb_serves_eight_requests_of_16000_tokens():
    memory = estimate_memory(sized(LLAMA_8B, LLAMA_8B_PARAMETERS), asked(max_model_len=16000))
    assert memory.granted_bytes == 36 * GIB
    assert memory.weights_bytes == 16_060_522_496
    assert round(memory.weights_bytes / GIB, 2) == 14.96
    assert memory.kv_token_bytes == 131_072
    assert 16000 * memory.kv_token_bytes / GIB == 1.953125
    assert round(memory.room_bytes / GIB, 2) == 16.09
    assert memory.kv_tokens == 131_824
    assert memory.requests == 8


@pytest.mark.covers("D8")
def test_llama_8b_on_one_h100_of_80_gb_serves_28_requests_and_two_replicas_twice_as_many():
    settings = {"max_model_len": 16000, "gpu_memory_utilization": 0.95}
    model = sized(LLAMA_8B, LLAMA_8B_PARAMETERS)
    assert estimate_memory(model, asked("h100-80", **settings)).requests == 28
    two = estimate_memory(model, asked("h100-80", data=2, **settings))
    assert (two.requests_per_replica, two.requests) == (28, 56)


@pytest.mark.covers("D8")
@pytest.mark.parametrize(
    ("tensor", "token_bytes"), [(1, 131_072), (2, 65_536), (4, 32_768), (8, 16_384), (16, 16_384)]
)
def test_a_gpu_has_its_share_of_eight_key_value_heads_and_at_least_one(tensor, token_bytes):
    assert kv_token_bytes(architecture_of(LLAMA_8B), Layout(tensor_parallel=tensor), 2) == token_bytes


@pytest.mark.parametrize(
    ("config", "token_bytes"),
    [
        (LLAMA_70B, 327_680),
        (MIXTRAL, 131_072),
        (DEEPSEEK_V3, 70_272),
        ({"n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024}, 36_864),  # GPT-2
        (
            {"num_hidden_layers": 32, "num_attention_heads": 71, "hidden_size": 4544, "multi_query": True},
            8_192,
        ),  # Falcon-7B
        # Gemma-2-9B: heads of another length than the hidden size over their number
        (
            {
                "num_hidden_layers": 42,
                "num_attention_heads": 16,
                "num_key_value_heads": 8,
                "head_dim": 256,
                "hidden_size": 3584,
            },
            344_064,
        ),
    ],
    ids=["llama-70b", "mixtral-8x7b", "deepseek-v3", "gpt2", "falcon-7b", "gemma-2-9b"],
)
def test_a_token_has_the_bytes_that_follow_from_published_sizes(config, token_bytes):
    assert kv_token_bytes(architecture_of(config), Layout(), 2) == token_bytes


@pytest.mark.covers("D8")
def test_the_latent_of_a_token_is_whole_on_every_gpu():
    model = architecture_of(DEEPSEEK_V3)
    assert {kv_token_bytes(model, Layout(tensor_parallel=count), 2) for count in (1, 2, 4, 8)} == {61 * 576 * 2}


@pytest.mark.parametrize(
    ("layers", "stages"),
    [
        (61, (15, 15, 16, 15)),
        (80, (27, 27, 26)),
        (32, (6, 6, 7, 7, 6)),
        (32, (8, 8, 8, 8)),
        (7, (4, 3)),
    ],
)
def test_layers_that_cannot_be_divided_go_to_stages_before_the_last(layers, stages):
    model = architecture_of(LLAMA_8B | {"num_hidden_layers": layers})
    assert model.stage_layers(len(stages)) == stages
    one_layer = 2 * 8 * 128 * 2
    assert kv_token_bytes(model, Layout(pipeline_parallel=len(stages)), 2) == max(stages) * one_layer


def test_weights_are_shared_and_activations_are_not():
    model = sized(LLAMA_70B, LLAMA_70B_PARAMETERS)
    memory = estimate_memory(model, asked(tensor=4, pipeline=2, max_model_len=16000))
    assert memory.weights_bytes == LLAMA_70B_PARAMETERS * 2 // 8
    assert round(memory.activation_bytes / GIB, 2) == 4.8
    assert round(memory.non_torch_bytes / GIB, 2) == 0.6
    assert memory.kv_token_bytes == 40 * 2 * 2 * 128 * 2
    # 36 - 16.427 - 4.8 - 0.6 = 14.173 GiB = 15,218.1e6 bytes; 40,960 bytes a token, 655,360 a block: 23,220 blocks
    assert memory.kv_tokens == 23_220 * 16
    assert memory.requests == 23


@pytest.mark.parametrize(
    ("config", "activation_gib"),
    [
        (LLAMA_8B, 4.8),
        (LLAMA_8B | {"architectures": ["Qwen3ForCausalLM"]}, 5.6),
        (LLAMA_8B | {"architectures": ["PhiForCausalLM"]}, 5.5),
        (MIXTRAL, 8.0),
        (DEEPSEEK_V3, 8.0),
        ({"architectures": ["LlavaForConditionalGeneration"], "vision_config": {}, "text_config": LLAMA_8B}, 2.5),
    ],
)
def test_activations_have_the_memory_that_was_measured_of_their_kind(config, activation_gib):
    memory = estimate_memory(sized(config, 1), asked())
    assert memory.activation_bytes == round(activation_gib * GIB)


@pytest.mark.parametrize(
    ("dtype", "quantised", "sizes", "loaded"),
    [
        ("auto", False, {"BF16": 100}, 100),
        ("auto", False, {"F32": 100}, 50),
        ("float32", False, {"BF16": 100, "F16": 2}, 204),
        ("float16", False, {"F64": 80, "I64": 8}, 28),
        ("float16", True, {"F8_E4M3": 70, "F32": 40, "BF16": 10, "I32": 4}, 124),
    ],
)
def test_floating_point_weights_are_converted_and_quantised_ones_are_not(dtype, quantised, sizes, loaded):
    config = LLAMA_8B | ({"quantization_config": {"quant_method": "fp8"}} if quantised else {})
    model = architecture_of(config)
    assert SizedModel(architecture=model, weights=sizes).loaded_bytes(model.compute_bytes(dtype)) == loaded


STARTS = {
    "llama-3.1-8b": (LLAMA_8B, 14.99, 1, 51.38, 0.1),
    "llama-3.3-70b-fp8": (LLAMA_70B, 2 * 33.88, 2, 32.0, 0.1),
    "qwen3-0.6b": (LLAMA_8B | {"architectures": ["Qwen3ForCausalLM"]}, 1.12, 1, 64.45, 0.1),
    "qwen3-32b": (LLAMA_8B | {"architectures": ["Qwen3ForCausalLM"]}, 61.03, 1, 4.45, 0.1),
    "gpt-oss-20b": (
        LLAMA_8B | {"architectures": ["GptOssForCausalLM"], "num_local_experts": 32},
        13.47,
        1,
        50.28,
        0.7,
    ),
}
"""Starts of vLLM on an H100 (79.18 GiB) that llm-d-benchmark published: weights in GiB, tensor parallelism, memory
left for keys and values in GiB, and how far the estimate may be from it."""


@pytest.mark.covers("D8")
@pytest.mark.parametrize("name", STARTS)
def test_room_is_what_published_starts_of_vllm_had_left(name):
    config, weights_gib, tensor, left_gib, within_gib = STARTS[name]
    request = ServerMemory(layout=Layout(tensor_parallel=tensor), gpu_gb=79.18, max_model_len=16000)
    model = SizedModel(architecture=architecture_of(config), weights={"U8": round(weights_gib * GIB)})
    memory = estimate_memory(model, request)
    assert memory.room_bytes / GIB == pytest.approx(left_gib, abs=within_gib)


def test_tokens_are_counted_in_whole_blocks_and_a_request_takes_whole_blocks():
    assert kv_tokens(160, 1) == 160
    assert kv_tokens(175, 1) == 160
    assert kv_tokens(15, 1) == 0
    assert kv_tokens(-1, 1) == 0
    model = sized(LLAMA_8B, LLAMA_8B_PARAMETERS)
    counts = {length: estimate_memory(model, asked(max_model_len=length)).requests for length in (1, 16, 17, 32)}
    assert counts == {1: 131_824 // 16, 16: 131_824 // 16, 17: 131_824 // 32, 32: 131_824 // 32}


@pytest.mark.covers("D8")
def test_a_layout_of_more_gpus_than_there_are_is_refused():
    (refusal,) = refused(LLAMA_8B, LLAMA_8B_PARAMETERS, asked(tensor=2, data=2, max_model_len=16000), gpus=2)
    assert (refusal.kind, refusal.changes) == ("gpus_missing", ({"gpus": 4},))
    assert refusal.why == "tensor parallel 2 x data parallel 2 needs 4 GPUs, and there are 2"


@pytest.mark.covers("D8")
@pytest.mark.parametrize(
    ("config", "tensor", "divisor"),
    [
        (LLAMA_8B, 3, 2),
        (LLAMA_8B, 5, 4),
        (LLAMA_8B | {"num_attention_heads": 24}, 3, 2),  # 8 key-value heads on 3 GPUs
        (LLAMA_8B | {"num_attention_heads": 48}, 12, 8),
        (DEEPSEEK_V3, 24, 16),
    ],
)
def test_tensor_parallelism_that_does_not_divide_the_heads_is_refused_with_the_next_below(config, tensor, divisor):
    refusal = refused(config, 1, asked("h200-141", tensor=tensor))[0]
    assert (refusal.kind, refusal.changes) == ("heads_not_divided", ({"tensor_parallel": divisor},))


@pytest.mark.covers("D8")
@pytest.mark.parametrize(
    ("change", "longest"),
    [
        ({}, 131_072),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "max_position_embeddings": 4096}, 8_192),
        ({"rope_scaling": {"type": "dynamic", "factor": 4}, "max_position_embeddings": 2048}, 8_192),
        (
            {
                "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
                "max_position_embeddings": 32768,
            },
            131_072,
        ),
        ({"rope_scaling": None, "max_position_embeddings": 4096, "model_max_length": 16384}, 16_384),
    ],
)
def test_a_request_too_long_for_the_model_is_refused_with_its_limit(change, longest):
    right = refused(LLAMA_8B | change, LLAMA_8B_PARAMETERS, asked("h100-80", max_model_len=longest))
    assert right == ()
    (refusal,) = refused(LLAMA_8B | change, LLAMA_8B_PARAMETERS, asked("h100-80", max_model_len=longest + 1))
    assert (refusal.kind, refusal.changes) == ("too_long_for_model", ({"max_model_len": longest},))


@pytest.mark.covers("D8")
@pytest.mark.parametrize(
    ("place", "changes"),
    [
        ({}, ({"tensor_parallel": 8, "gpus": 8},)),
        ({"node_gpus": 4}, ({"tensor_parallel": 4, "pipeline_parallel": 2, "gpus": 8},)),
        ({"node_gpus": 4, "has_pipeline": False}, ()),
    ],
)
def test_70b_on_one_gpu_of_40_gb_is_refused_with_the_smallest_layout_that_fits(place, changes):
    (refusal,) = refused(LLAMA_70B, LLAMA_70B_PARAMETERS, asked(max_model_len=16000), gpus=1, **place)
    assert refusal.kind == "weights_do_not_fit"
    assert refusal.changes == changes
    assert refusal.otherwise == "Use GPUs with more memory, or quantised weights"
    assert "weights 131.42 + activation 4.80 + non-torch 0.15 = 136.37 GiB" in refusal.why


@pytest.mark.covers("D8")
@pytest.mark.parametrize("place", [{}, {"node_gpus": 4}])
@pytest.mark.parametrize(
    ("config", "parameters", "gpu"),
    [
        (LLAMA_70B, LLAMA_70B_PARAMETERS, "a100-40"),
        (MIXTRAL, MIXTRAL_PARAMETERS, "a100-40"),
        (DEEPSEEK_V3, 671_026_419_200, "a100-80"),
    ],
)
def test_a_layout_that_is_a_remedy_is_not_refused(config, parameters, gpu, place):
    (refusal,) = refused(config, parameters, asked(gpu, max_model_len=8192), **place)
    (change,) = refusal.changes
    better = asked(gpu, change.get("tensor_parallel", 1), change.get("pipeline_parallel", 1), max_model_len=8192)
    assert refused(config, parameters, better, gpus=change["gpus"], **place) == ()


@pytest.mark.covers("D8")
def test_weights_that_fit_without_room_for_one_request_are_refused_with_the_longest_that_fits():
    request = asked(max_model_len=131_072, gpu_memory_utilization=0.8)
    (refusal,) = refused(LLAMA_8B, LLAMA_8B_PARAMETERS, request)
    # 32 - 14.957 - 4.8 - 0.15 = 12.09 GiB for 131,072 bytes a token: 99,056 tokens in whole blocks
    assert refusal.kind == "no_request_fits"
    assert refusal.changes == ({"max_model_len": 99_056}, {"tensor_parallel": 2, "gpus": 2})
    fits = asked(max_model_len=99_056, gpu_memory_utilization=0.8)
    assert refused(LLAMA_8B, LLAMA_8B_PARAMETERS, fits) == ()


def test_every_mistake_of_a_layout_is_reported_at_once():
    found = refused(LLAMA_70B, LLAMA_70B_PARAMETERS, asked(tensor=3, max_model_len=200_000), gpus=1)
    assert [each.kind for each in found] == [
        "gpus_missing",
        "heads_not_divided",
        "too_long_for_model",
        "weights_do_not_fit",
    ]


def test_gpus_beyond_the_layout_are_no_refusal():
    assert refused(LLAMA_8B, LLAMA_8B_PARAMETERS, asked(max_model_len=16000), gpus=4) == ()


@pytest.mark.parametrize("missing", ["num_hidden_layers", "num_attention_heads", "hidden_size"])
def test_an_architecture_without_a_size_is_not_sized(missing):
    with pytest.raises(UnsizedError, match=f"has no '{missing}'"):
        architecture_of({key: value for key, value in LLAMA_8B.items() if key != missing})


@pytest.mark.parametrize("value", ["32", -1, 0, 1.5, True, [32], 2**80])
def test_a_size_that_cannot_be_is_a_mistake(value):
    with pytest.raises(ValueError, match="num_hidden_layers: expected a whole number from 1"):
        architecture_of(LLAMA_8B | {"num_hidden_layers": value})
