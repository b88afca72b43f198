"""Rows of a data set of prompts as turns of a conversation: JSONL, JSON, Parquet and Arrow, in their usual forms."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamark.errors import Mistake, UserError

Turn = tuple[str, str]
"""Role and text."""
PLAIN = ("prompt", "text", "question", "instruction")
"""Keys of what a row asks, without roles; `instruction` may have an `input`."""
ROLES: Mapping[object, str] = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "bing", "bard", "model"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
}
MOST_MISTAKES = 10


@dataclass(frozen=True, kw_only=True)
class PromptRows:
    """What a data set asks, a list of turns each, the last of the user; `forms` are those that its rows have, and
    `left_out` is the number of rows that ask nothing."""

    rows: list[list[Turn]]
    forms: tuple[str, ...]
    left_out: int


def read_prompts(files: Sequence[Path]) -> PromptRows:
    """Return the rows of these files, one file after another. Raises UserError with file and line of each mistake,
    at most MOST_MISTAKES, equal ones of a file once; and OSError."""
    rows: list[list[Turn]] = []
    forms: dict[str, None] = {}
    mistakes: list[Mistake] = []
    left_out = 0
    for file in files:
        said: set[str] = set()
        number = 0
        try:
            for number, raw in _rows_of(file):
                try:
                    form, turns = turns_of(_parsed(raw) if isinstance(raw, bytes) else raw)
                    _require_utf8(turns)
                except ValueError as error:
                    if str(error) not in said and len(mistakes) < MOST_MISTAKES:
                        said.add(str(error))
                        mistakes.append(_mistake(file, number, str(error)))
                    continue
                forms[form] = None
                if turns and turns[-1][1].strip():
                    rows.append(turns)
                else:
                    left_out += 1
        except ValueError as error:
            mistakes.append(Mistake(code="unreadable", file=str(file), text=str(error)))
    if not rows and not mistakes:
        text = f"has no prompt ({left_out} rows ask nothing)." if left_out else "has no prompt: it is empty."
        mistakes.append(Mistake(code="no_value", file=str(files[0]), text=text))
    if mistakes:
        raise UserError(*mistakes)
    return PromptRows(rows=rows, forms=tuple(forms), left_out=left_out)


def turns_of(row: object) -> tuple[str, list[Turn]]:
    """Return the form of a row and the turns that it asks, none if there is no turn of the user. Raises ValueError.

    `openai`: `messages`, alone or in the `body` of a line of a batch, up to the last message of the user. `sharegpt`:
    `conversations`, of which the first turn of the user is asked, as vLLM's own benchmark does. `plain`: a text.
    """
    if isinstance(row, dict) and isinstance(row.get("body"), dict):
        row = row["body"]
    if isinstance(row, str):
        return "plain", [("user", row)]
    if not isinstance(row, dict):
        raise ValueError('is neither an object nor a text. A line has one prompt, such as {"prompt": "..."}.')
    if "conversations" in row:
        turns = _turns(row["conversations"])
        first = next((at for at, (role, _) in enumerate(turns) if role == "user"), -1)
        return "sharegpt", [turn for turn in turns[: first + 1] if turn[0] != "assistant"]
    name = next((name for name in ("messages", *PLAIN) if name in row), None)
    if name is None:
        there = ", ".join(map(str, row))[:80] or "nothing"
        raise ValueError(f"has {there}, and none of messages, conversations, {', '.join(PLAIN)}. Name one so.")
    value = row[name]
    if name == "messages" or isinstance(value, list):
        turns = _turns(value)
        while turns and turns[-1][0] != "user":
            turns.pop()
        return "openai", turns
    if not isinstance(value, str):
        raise ValueError(f"'{name}' is {json.dumps(value, default=str)[:40]}, not text.")
    more = row.get("input") if name == "instruction" else None
    return "plain", [("user", f"{value}\n\n{more}" if more else value)]


def _turns(value: object) -> list[Turn]:
    if not isinstance(value, list):
        raise ValueError("its conversation is no list of turns.")
    turns = []
    for turn in value:
        role = turn.get("role", turn.get("from")) if isinstance(turn, dict) else None
        if role not in ROLES:
            raise ValueError(f"has a turn of {json.dumps(role, default=str)}. Roles: {', '.join(map(str, ROLES))}.")
        text = turn.get("content", turn.get("value"))
        if isinstance(text, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in text):
            text = "".join(str(part.get("text", "")) for part in text)
        if not isinstance(text, (str, type(None))):
            raise ValueError(f"has a turn with {json.dumps(text, default=str)[:40]}, and texts alone are sent.")
        turns.append((ROLES[role], text or ""))
    return turns


def _require_utf8(turns: Sequence[Turn]) -> None:
    try:
        "".join(text for _, text in turns).encode()
    except UnicodeEncodeError:
        raise ValueError("has half of a surrogate pair, which UTF-8 cannot write.") from None


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8.") from None
    except RecursionError:
        raise ValueError("is nested too deep.") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON, or torn: {error.msg} at character {error.pos + 1}.") from None


def _rows_of(file: Path) -> Iterator[tuple[int, Any]]:
    """Yield number (from 1) and content of each row; of JSONL its line. Raises ValueError for the file."""
    if file.suffix.lower() == ".jsonl":
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip(b"\xef\xbb\xbf \t\r\n"):
                    yield number, line.removeprefix(b"\xef\xbb\xbf")
        return
    if file.suffix.lower() == ".json":
        document = _parsed(file.read_bytes())
        if not isinstance(document, list):
            raise ValueError("is no list of rows. Write a JSON array, or a row a line into a .jsonl file.")
        yield from enumerate(document, 1)
        return
    import pyarrow  # environments of services have none

    number = 0
    try:
        for batch in _batches(file):
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(
            f"is torn, or no {file.suffix} file: {' '.join(str(error).split())[:200].rstrip('.')}."
        ) from None


def _batches(file: Path) -> Iterator[Any]:
    if file.suffix.lower() == ".parquet":
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(file) as table:
            yield from table.iter_batches()
        return
    import pyarrow.ipc

    with pyarrow.memory_map(str(file)) as source, pyarrow.ipc.open_stream(source) as stream:
        yield from stream


def _mistake(file: Path, number: int, text: str) -> Mistake:
    lines = file.suffix.lower() == ".jsonl"
    place = {"line": number} if lines else {"path": f"row {number}"}
    return Mistake(code="wrong_form", file=str(file), text=text, **place)
