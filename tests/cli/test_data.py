"""bench data: sets are made, listed and checked where the site keeps them."""

import json
from pathlib import Path
from typing import Any

import in_process
import numpy as np
import pytest


@pytest.fixture
def study(tmp_path: Path) -> Path:
    sites = tmp_path / "config" / "sites"
    sites.mkdir(parents=True)
    (sites / "local.yaml").write_text("name: local\nsummary: a machine\npaths: {data: sets}\n")
    return tmp_path


def said(study: Path, *words: str, code: int = 0) -> list[dict[str, Any]]:
    done = in_process.bench("data", *words, "--json", cwd=study)
    assert done.returncode == code, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)["datasets"]
    return rows


@pytest.mark.covers("E-FR02", "E-FR01")
def test_a_set_is_made_listed_and_verified_until_a_file_changes(study):
    (study / "p.jsonl").write_text('"a"\n{"prompt": "b"}\n')
    made = said(study, "build", "p.jsonl", "seeded:vectors:rows=200,dimensions=4,queries=3")
    assert [(row["kind"], row["rows"], row["dimensions"]) for row in made] == [
        ("prompts", 2, None),
        ("vectors", 200, 4),
    ]
    assert sorted(row["id"] for row in said(study, "list")) == sorted(row["id"] for row in made)
    assert [row["damaged"] for row in said(study, "verify")] == [None, None]
    vectors = made[1]["id"]
    np.save(study / "sets" / vectors / "truth.npy", np.zeros((3, 100)))
    assert said(study, "verify", vectors, code=1) == [{"id": vectors, "damaged": "truth.npy"}]
    assert said(study, "verify", made[0]["id"]) == [{"id": made[0]["id"], "damaged": None}]
    for words in (("list",), ("build", "p.jsonl"), ("verify", made[0]["id"])):
        assert made[0]["id"] in in_process.bench("data", *words, cwd=study).stdout


@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize(
    "words", [("build", "none.jsonl"), ("build", "seeded:vectors:row=2"), ("verify", "vectors-1")]
)
def test_what_is_no_data_set_is_one_line(words, study):
    done = in_process.bench("data", *words, cwd=study)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
