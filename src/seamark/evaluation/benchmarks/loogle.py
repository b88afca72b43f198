"""LooGLE: one row of its data has several questions on one document.

Source: Prediction/pred_opensource_models.py of bigai-nlco/LooGLE.
"""

import ast
import json
from collections.abc import Iterator

from seamark.evaluation.benchmark import Row


def questions_of(row: Row) -> Iterator[Row]:
    """Yield a row for each question of a document, with columns `Q` and `A`; an answer that is a mapping is JSON.

    `qa_pairs` is a list, or a text that holds one in Python's notation. Raises ValueError for anything else.
    """
    pairs = row["qa_pairs"]
    if isinstance(pairs, str):
        try:
            pairs = ast.literal_eval(pairs)
        except (ValueError, SyntaxError):
            raise ValueError(f"'qa_pairs' is no list of questions: {pairs[:60]}") from None
    if not isinstance(pairs, list) or not pairs:
        raise ValueError("'qa_pairs' is no list of questions.")
    for pair in pairs:
        answer = pair["A"]
        yield {**row, "Q": pair["Q"], "A": json.dumps(answer) if isinstance(answer, dict) else str(answer)}
