"""Folders of language models: headers of safetensors files read byte by byte, and damage named in one line."""

import json
from pathlib import Path

import pytest
from model_folders import LLAMA_8B, safetensors_header, write_model, write_weights

from seamark.errors import UserError
from seamark_simulate.config.model_folder import find_model_folder, read_model_folder
from seamark_simulate.simulation.model_architecture import UnsizedError

TWO_LAYERS = LLAMA_8B | {"num_hidden_layers": 2}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_model(tmp_path / "model", TWO_LAYERS, 1000)


def mistakes_of(folder: Path) -> tuple[str, ...]:
    with pytest.raises(UserError) as caught:
        read_model_folder(folder)
    assert caught.value.exit_code == 2
    assert all("\n" not in line and line.isprintable() for line in caught.value.lines)
    return caught.value.lines


@pytest.mark.covers("D8")
def test_bytes_of_weights_are_counted_by_type_from_the_header_alone(folder: Path) -> None:
    tensors = {
        "model.embed_tokens.weight": ("BF16", [100, 8]),
        "model.layers.0.q_proj.weight": ("F8_E4M3", [8, 8]),
        "model.layers.1.q_proj.weight": ("F8_E4M3", [8, 8]),
        "model.layers.1.q_proj.weight_scale": ("F32", []),
        "lm_head.qweight": ("I32", [3, 4]),
    }
    write_weights(folder / "model.safetensors", tensors)
    assert read_model_folder(folder).weights == {"BF16": 1600, "F8_E4M3": 128, "F32": 4, "I32": 48}


def test_the_first_bytes_of_a_file_are_a_length_of_eight_bytes_and_json(folder: Path) -> None:
    header = b'{"a":{"dtype":"F16","shape":[2,3],"data_offsets":[0,12]}}   '
    (folder / "model.safetensors").write_bytes(b"\x3c\0\0\0\0\0\0\0" + header + bytes(12))
    assert len(header) == 0x3C
    assert read_model_folder(folder).weights == {"F16": 12}


@pytest.mark.covers("D8")
def test_weights_are_those_of_all_files_of_the_index_and_of_no_other(folder: Path) -> None:
    write_weights(folder / "model-00001-of-00002.safetensors", {"a": ("BF16", [10]), "b": ("BF16", [5])})
    write_weights(folder / "model-00002-of-00002.safetensors", {"c": ("F32", [3])})
    write_weights(folder / "consolidated.safetensors", {"all": ("BF16", [500])})
    names = {"a": 1, "b": 1, "c": 2}
    places = {name: f"model-0000{number}-of-00002.safetensors" for name, number in names.items()}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    assert read_model_folder(folder).weights == {"BF16": 30, "F32": 12}


def test_without_an_index_the_one_file_counts_else_all(folder: Path) -> None:
    write_weights(folder / "consolidated.safetensors", {"all": ("F16", [7])})
    assert read_model_folder(folder).weights == {"BF16": 2000}
    (folder / "model.safetensors").unlink()
    write_weights(folder / "more.safetensors", {"rest": ("F16", [1])})
    assert read_model_folder(folder).weights == {"F16": 16}


def test_layers_that_predict_further_tokens_are_not_loaded_and_those_of_other_parts_are(folder: Path) -> None:
    tensors = {f"model.layers.{number}.w": ("BF16", [10]) for number in range(3)}
    tensors["vision_model.encoder.layers.9.w"] = ("BF16", [1])
    write_weights(folder / "model.safetensors", tensors)
    assert read_model_folder(folder).weights == {"BF16": 42}


def test_a_header_of_a_model_of_140_gb_is_read_without_its_weights(folder: Path) -> None:
    write_model(folder, TWO_LAYERS, 70_553_706_496)
    assert read_model_folder(folder).weights == {"BF16": 141_107_412_992}
    assert (folder / "model.safetensors").stat().st_blocks < 100


def header_of(**entry: object) -> bytes:
    text = json.dumps({"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]} | entry}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(8)


WHOLE = header_of()
DAMAGED = {
    "empty": (b"", "is no safetensors file, or cut off"),
    "a length alone": (WHOLE[:8], "is no safetensors file, or cut off"),
    "a header that is cut off": (WHOLE[:40], "is no safetensors file, or cut off"),
    "data that are cut off": (WHOLE[:-1], "is cut off: its header describes 8 bytes of tensors, and 7 are there"),
    "text": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is no safetensors file, or cut off"),
    "no JSON": ((9).to_bytes(8, "little") + b"{'a': {}}", "its header is damaged: not valid JSON"),
    "no text": ((4).to_bytes(8, "little") + b"\xff\xfe\xff\xff", "its header is damaged: 'utf-8' codec"),
    "a list": ((2).to_bytes(8, "little") + b"[]", "its header is damaged: expected a JSON object"),
    "no shape": (header_of(shape=None), "'a' needs dtype, shape and data_offsets"),
    "a shape of text": (header_of(shape=["4"]), "'a' needs dtype, shape and data_offsets"),
    "three offsets": (header_of(data_offsets=[0, 4, 8]), "'a' needs dtype, shape and data_offsets"),
    "offsets that fall": (header_of(data_offsets=[8, 0]), "'a' of 'BF16' [4] has -8 bytes"),
    "another size": (header_of(shape=[5]), "'a' of 'BF16' [5] has 8 bytes"),
}


@pytest.mark.covers("D8")
@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_safetensors_file_is_one_line_with_its_name_and_remedy(folder: Path, name: str) -> None:
    content, says = DAMAGED[name]
    (folder / "model.safetensors").write_bytes(content)
    (mistake,) = mistakes_of(folder)
    assert mistake.startswith("model/model.safetensors: ")
    assert says in mistake
    assert mistake.endswith("Download the model again.")


def test_every_damaged_file_of_a_model_has_a_line(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    for number in range(3):
        (folder / f"part-{number}.safetensors").write_bytes(WHOLE[: 40 + number * 1000])
    assert [line.partition(":")[0] for line in mistakes_of(folder)] == ["model/part-0.safetensors"]
    (folder / "part-2.safetensors").write_bytes(b"")
    assert len(mistakes_of(folder)) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "model/config.json: not valid JSON"),
        ('{"num_hidden_layers": 2,', "model/config.json: not valid JSON"),
        ("[]", "model/config.json: expected a JSON object"),
        (
            json.dumps(TWO_LAYERS | {"num_attention_heads": "32"}),
            "num_attention_heads: expected a whole number from 1",
        ),
        (json.dumps(TWO_LAYERS | {"num_key_value_heads": -8}), "num_key_value_heads: expected a whole number from 1"),
        (
            json.dumps(TWO_LAYERS | {"max_position_embeddings": 1e9}),
            "max_position_embeddings: expected a whole number",
        ),
    ],
)
def test_a_damaged_config_is_one_line(folder: Path, text: str, says: str) -> None:
    (folder / "config.json").write_text(text)
    (mistake,) = mistakes_of(folder)
    assert says in mistake


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ("{", "not valid JSON"),
        ("{}", "weight_map: expected the file of each tensor"),
        ('{"weight_map": {}}', "weight_map: expected the file of each tensor"),
        ('{"weight_map": {"a": 1}}', "weight_map: expected the file of each tensor"),
        (
            '{"weight_map": {"a": "x", "b": "y", "c": "model.safetensors"}}',
            "2 of its 3 files are missing, such as 'x'",
        ),
    ],
)
def test_a_damaged_index_is_one_line(folder: Path, index: str, says: str) -> None:
    (folder / "model.safetensors.index.json").write_text(index)
    (mistake,) = mistakes_of(folder)
    assert mistake.startswith("model/model.safetensors.index.json: ")
    assert says in mistake


def test_a_model_of_another_form_is_not_sized_and_no_mistake(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UnsizedError, match=r"model has no safetensors files"):
        read_model_folder(folder)
    (folder / "config.json").write_text('{"model_type": "mamba", "d_model": 768}')
    with pytest.raises(UnsizedError, match=r"model/config.json has no 'num_hidden_layers'"):
        read_model_folder(folder)


def test_a_folder_without_a_config_is_a_mistake(tmp_path: Path) -> None:
    (mistake,) = mistakes_of(tmp_path / "absent")
    assert mistake.endswith("absent/config.json: no such file; the folder of a model has one. Name that folder.")


def test_a_model_is_found_by_its_path_also_inside_a_container(folder: Path, tmp_path: Path) -> None:
    environment = {"WORK": str(tmp_path), "HOME": str(tmp_path)}
    assert find_model_folder(str(folder), (), environment) == folder
    assert find_model_folder("/data/model", ("$WORK:/data",), environment) == folder
    assert find_model_folder("/data/model", ("${WORK}:/data:ro",), environment) == folder
    assert find_model_folder("/data", (f"{folder}:/data",), environment) == folder
    assert find_model_folder("/data/other", ("$WORK:/data",), environment) is None
    assert find_model_folder("/database/model", ("$WORK:/data",), environment) is None
    assert find_model_folder("/data/model", ("$ELSEWHERE:/data",), environment) is None
    assert find_model_folder("/" + "x" * 5000, (), environment) is None


def test_a_model_is_found_by_its_name_in_the_cache_of_hugging_face(tmp_path: Path) -> None:
    cached = tmp_path / ".cache" / "huggingface" / "hub" / "models--meta-llama--Llama-3.1-8B"
    snapshot = write_model(cached / "snapshots" / "abc", LLAMA_8B, 10)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("abc\n")
    name = "meta-llama/Llama-3.1-8B"
    assert find_model_folder(name, (), {"HOME": str(tmp_path)}) == snapshot
    assert find_model_folder(name, (), {"HF_HOME": str(tmp_path / ".cache/huggingface")}) == snapshot
    assert find_model_folder(name, (), {"HF_HUB_CACHE": str(cached.parent)}) == snapshot
    assert find_model_folder("tiny", (), {"HOME": str(tmp_path)}) is None
    assert find_model_folder("../../x", (), {"HOME": str(tmp_path)}) is None


def test_headers_written_here_are_those_of_the_format(tmp_path: Path) -> None:
    head, data_bytes = safetensors_header({"a": ("F32", [2, 2])})
    assert int.from_bytes(head[:8], "little") == len(head) - 8
    assert data_bytes == 16
    assert json.loads(head[8:])["a"] == {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
