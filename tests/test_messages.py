"""Mistakes are records with a code and a place; how they are worded stands once, in messages.txt."""

from pathlib import Path
from typing import get_args

import pytest
from messages import SNAPSHOT, WRONG, blocks, mistakes_of

from seamark.errors import Code, Mistake, SiteError, UserError


@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize(("kind", "text", "path"), WRONG)
def test_a_wrong_input_is_one_record_with_a_code_a_line_and_a_path(
    kind: str, text: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [mistake] = mistakes_of(kind, text)
    assert mistake.code in get_args(Code)
    assert mistake.code != "worded"
    assert (mistake.path or "") == path
    assert mistake.line is not None
    assert str(mistake) == f"{mistake.file}:{mistake.line}: {path + ': ' if path else ''}{mistake.text}"


def test_messages_are_worded_as_the_snapshot_shows() -> None:
    assert "\n".join(blocks()) == SNAPSHOT.read_text(encoding="utf-8"), "read what changed, then `make messages`"


def test_each_code_but_the_one_for_whole_lines_has_an_example() -> None:
    without = [block.strip() for block in blocks() if "\n  " not in block]
    assert without == ["worded"]


def test_a_mistake_that_is_given_as_a_line_is_printed_as_it_is() -> None:
    record = Mistake(code="missing", path="--site", text="is empty.")
    error = SiteError("first:\n  second", record)
    assert [mistake.code for mistake in error.mistakes] == ["worded", "missing"]
    assert str(error) == "first:\n  second\n--site: is empty."
    assert isinstance(error, UserError)
