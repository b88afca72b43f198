"""Prompts are read in each form that they are published in; a wrong file is named with its lines."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from seamark.datasets.files import files_of, licence_of
from seamark.datasets.prompts import read_prompts
from seamark.errors import Mistake, UserError

SYSTEM, ASKED, SAID, NEXT = {"role": "system"}, {"role": "user"}, {"role": "assistant"}, {"role": "user"}
CHAT = [SYSTEM | {"content": "s"}, ASKED | {"content": "a"}, SAID | {"content": "b"}, NEXT | {"content": "c"}]
SHARED = [{"from": "gpt", "value": "hello"}, {"from": "human", "value": "q"}, {"from": "gpt", "value": "r"}]
WHOLE = [("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "c")]
FORMS = [
    ({"messages": CHAT}, "openai", WHOLE),
    ({"messages": [*CHAT, SAID | {"content": "label"}]}, "openai", WHOLE),
    ({"custom_id": "1", "method": "POST", "body": {"model": "m", "messages": CHAT}}, "openai", WHOLE),
    ({"messages": [ASKED | {"content": [{"type": "text", "text": "part"}]}]}, "openai", [("user", "part")]),
    ({"id": "x", "conversations": SHARED}, "sharegpt", [("user", "q")]),
    (
        {"conversations": [{"from": "system", "value": "s"}, *SHARED[1:]]},
        "sharegpt",
        [("system", "s"), ("user", "q")],
    ),
    ({"prompt": "p", "output_tokens": 3}, "plain", [("user", "p")]),
    ({"instruction": "do", "input": "this"}, "plain", [("user", "do\n\nthis")]),
    ("bare", "plain", [("user", "bare")]),
]


def mistakes(*files: Path) -> list[Mistake]:
    with pytest.raises(UserError) as refused:
        read_prompts(files)
    return list(refused.value.mistakes)


@pytest.mark.covers("E-FR02")
@pytest.mark.parametrize(("row", "form", "turns"), FORMS)
def test_a_line_of_each_form_asks_its_turns_up_to_the_last_of_the_user(row, form, turns, tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text("\ufeff" + json.dumps(row) + "\n\n" + json.dumps(row), encoding="utf-8")
    read = read_prompts([path])
    assert (read.forms, read.rows, read.left_out) == ((form,), [turns, turns], 0)


@pytest.mark.covers("E-FR02")
def test_parquet_arrow_and_a_json_array_give_the_rows_of_jsonl(tmp_path):
    rows = [{"conversations": SHARED}, {"conversations": SHARED[:1]}, {"conversations": SHARED[1:]}]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, tmp_path / "p.parquet", row_group_size=1)
    with pyarrow.ipc.new_stream(tmp_path / "p.arrow", table.schema) as stream:
        stream.write_table(table)
    (tmp_path / "p.json").write_text(json.dumps(rows))
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for ending in ("parquet", "arrow", "json", "jsonl"):
        read = read_prompts([tmp_path / f"p.{ending}"])
        assert (read.rows, read.left_out, read.forms) == ([[("user", "q")]] * 2, 1, ("sharegpt",)), ending


def test_a_hub_folder_is_its_training_data_with_the_licence_of_its_card(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("train-00001-of-00002", "train-00000-of-00002", "test-00000-of-00001"):
        pq.write_table(pa.table({"prompt": [name]}), tmp_path / "data" / f"{name}.parquet")
    (tmp_path / ".cache").mkdir()
    pq.write_table(pa.table({"prompt": ["hidden"]}), tmp_path / ".cache" / "train.parquet")
    (tmp_path / "dataset_infos.json").write_text("{}")
    (tmp_path / "README.md").write_text("---\nlanguage:\n- en\nlicense: cc-by-4.0\n---\n# A set\nlicense: none\n")
    read = read_prompts(files_of(tmp_path))
    assert [turns[0][1][:11] for turns in read.rows] == ["train-00000", "train-00001"]
    assert licence_of(tmp_path) == "cc-by-4.0"


@pytest.mark.parametrize(
    ("name", "text", "licence"),
    [
        ("README.md", "---\nlicense:\n- mit\n- other\n---\n", "mit"),
        ("README.md", "# no head\nlicense: mit\n", None),
        ("README.md", "---\nlanguage: en\n---\nlicense: mit\n", None),
        ("LICENSE", "\n  Apache License\nVersion 2.0\n", "Apache License"),
        ("NOTES", "mit", None),
    ],
)
def test_a_file_has_the_licence_of_its_folder(name, text, licence, tmp_path):
    (tmp_path / name).write_text(text)
    (tmp_path / "p.jsonl").write_text('"a"')
    assert licence_of(tmp_path / "p.jsonl") == licence


@pytest.mark.covers("E-VAL")
def test_every_wrong_line_is_named_with_its_number_and_equal_mistakes_once(tmp_path):
    path = tmp_path / "p.jsonl"
    tool = {"messages": [{"role": "tool", "content": "x"}]}
    lines = [
        '{"prompt": "good"}',
        '{"foo": 1}',
        '{"foo": 2}',
        "[1]",
        json.dumps(tool),
        '{"text": 4}',
        r'"\ud800"',
        '{"prompt": "to',
    ]
    path.write_text("\n".join(lines))
    found = mistakes(path)
    assert [(mistake.file, mistake.line, mistake.code) for mistake in found] == [
        (str(path), line, "wrong_form") for line in (2, 4, 5, 6, 7, 8)
    ]


@pytest.mark.covers("E-VAL")
def test_a_missing_column_a_torn_file_and_no_rows_are_one_line_each(tmp_path):
    table = pa.table({"other": ["a", "b"]})
    pq.write_table(table, tmp_path / "column.parquet")
    (tmp_path / "torn.parquet").write_bytes((tmp_path / "column.parquet").read_bytes()[:-7])
    with pyarrow.ipc.new_stream(tmp_path / "whole.arrow", table.schema) as stream:
        stream.write_table(table)
    (tmp_path / "torn.arrow").write_bytes((tmp_path / "whole.arrow").read_bytes()[:100])
    pq.write_table(pa.table({"prompt": ["", None]}), tmp_path / "nothing.parquet")
    (tmp_path / "empty.jsonl").write_text("\n\n")
    (tmp_path / "object.json").write_text("{}")
    (tmp_path / "torn.json").write_text('[{"prompt"')
    names = ("column.parquet", "torn.parquet", "torn.arrow", "empty.jsonl", "object.json", "torn.json")
    found = {name: mistakes(tmp_path / name) for name in names}
    assert {name: [(mistake.code, mistake.path) for mistake in each] for name, each in found.items()} == {
        "column.parquet": [("wrong_form", "row 1")],
        "torn.parquet": [("unreadable", None)],
        "torn.arrow": [("unreadable", None)],
        "empty.jsonl": [("no_value", None)],
        "object.json": [("unreadable", None)],
        "torn.json": [("unreadable", None)],
    }
    assert [mistake.path for mistake in mistakes(tmp_path / "nothing.parquet")] == ["row 2"]
