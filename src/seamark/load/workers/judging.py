"""Scores kept replies in the service's environment, by the function that the recipe names. Opens no connection."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from seamark.load.driver import Judge, Judged, Target
from seamark.load.workers.records import read_replies
from seamark.platform.fork_server.client import ISOLATED_MAIN
from seamark.platform.process_tree import die_with_parent

BATCH = 4096
"""Replies that are scored at once: any number fits into memory."""
TAIL_LINES = 20
TEXTS = ("ids", "clusters", "finish", "errors", "answers", "asked")
"""Columns of texts that a function may give."""


class JudgingError(Exception):
    """Scoring failed; the text says how, with the last lines of stderr."""


def judge_replies(
    judge: str, target: Target, replies: Path, folder: Path, python: Path | None, timeout_s: float
) -> Iterator[Mapping[str, Any]]:
    """Yield the scored batches of a segment of replies: `items`, `scores` by name, and `ids`, `clusters`,
    `finish`, `errors`, `answers`, `asked`, `facts`.

    The function `judge` runs in a process of the interpreter `python` (None: this one), which works in `folder`.
    Raises JudgingError if it fails or takes longer than `timeout_s`.
    """
    task, out, log = folder / "task.json", folder / "judged.jsonl", folder / "log"
    document = {"judge": judge, "target": asdict(target) | {"data": str(target.data)}, "replies": str(replies)}
    task.write_text(json.dumps(document), encoding="utf-8")
    command = [str(python or sys.executable), ISOLATED_MAIN, "seamark.load.workers.judging", str(task), str(out)]
    with log.open("wb") as output:
        try:
            code = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=timeout_s, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            raise JudgingError(f"{judge} had not ended after {timeout_s:g} s") from None
    if code:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-TAIL_LINES:]
        raise JudgingError("\n".join([f"{judge} failed: {lines[-1] if lines else f'exit code {code}'}", *lines]))
    with out.open(encoding="utf-8") as judged:
        for line in judged:
            yield json.loads(line)


def main(argv: list[str]) -> int:
    """Score all replies of a task: `task.json judged.jsonl`. Called through isolated_main.py."""
    die_with_parent()
    task = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    target = Target(**(task["target"] | {"data": Path(task["target"]["data"])}))
    module, _, name = task["judge"].partition(":")
    function: Judge = getattr(import_module(module), name)
    replies = read_replies(Path(task["replies"]))
    with Path(argv[1]).open("w", encoding="utf-8") as out:
        while batch := list(islice(replies, BATCH)):
            items = [index for index, _ in batch]
            judged = function(target, items, [reply for _, reply in batch])
            out.write(json.dumps({"items": items, **_checked(judged, len(items))}, allow_nan=False) + "\n")
    return 0


def _checked(judged: Judged, count: int) -> dict[str, Any]:
    """Return the columns of a batch. Raises ValueError for one that does not have a value for each reply."""
    columns: dict[str, Any] = {
        "scores": {name: [_number(value) for value in values] for name, values in judged.scores.items()},
        **{name: _texts(getattr(judged, name)) for name in TEXTS},
        "facts": {name: list(values) for name, values in (judged.facts or {}).items()},
    }
    for name, values in {**columns["scores"], **columns["facts"], **columns}.items():
        if name not in ("scores", "facts") and values is not None and len(values) != count:
            raise ValueError(f"'{name}' has {len(values)} values for {count} replies")
    return columns


def _number(value: float | None) -> float | None:
    if value is None:
        return None
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a score is {value}: give None for a reply without a score")
    return number


def _texts(values: Sequence[str | None] | None) -> list[str | None] | None:
    return None if values is None else [None if value is None else str(value) for value in values]
