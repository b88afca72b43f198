"""LooGLE: questions on a document, as its data have them in two forms.

Source: Prediction/pred_opensource_models.py of bigai-nlco/LooGLE. Its first data have a row for each document,
with `input` and a list `qa_pairs`; those of the hub a row for each question, with `context`, `question`, `answer`.
"""

import ast
import json
from collections.abc import Iterator
from typing import Any

from seamark_evaluate.tasks.benchmark import Row


def questions_of(row: Row) -> Iterator[Row]:
    """Yield a row for each question, with columns `document`, `Q` and `A`; an answer that is a mapping is JSON.

    A document without questions is to be summarised: `Q` is empty. Raises ValueError for `qa_pairs` of another form.
    """
    if "qa_pairs" not in row:
        yield {**row, "document": row["context"], "Q": row["question"], "A": _answer(row["answer"])}
    elif row["qa_pairs"] == "none":
        yield {**row, "document": row["input"], "Q": "", "A": _answer(row["output"])}
    else:
        for pair in _pairs(row["qa_pairs"]):
            yield {**row, "document": row["input"], "Q": pair["Q"], "A": _answer(pair["A"])}


def _pairs(pairs: Any) -> list[Any]:
    """The list, or that in a text in Python's notation; the published harness evaluates the text as a program."""
    if isinstance(pairs, str):
        try:
            pairs = ast.literal_eval(pairs)
        except (ValueError, SyntaxError):
            raise ValueError(f"'qa_pairs' is no list of questions: {pairs[:60]}") from None
    if not isinstance(pairs, list) or not pairs:
        raise ValueError("'qa_pairs' is no list of questions.")
    return pairs


def _answer(answer: Any) -> str:
    if isinstance(answer, str) and answer.lstrip().startswith("{"):
        try:
            answer = ast.literal_eval(answer.strip())
        except (ValueError, SyntaxError):
            return str(answer)
    return json.dumps(answer) if isinstance(answer, dict) else str(answer)
