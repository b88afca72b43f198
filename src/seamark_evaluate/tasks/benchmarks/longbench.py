"""LongBench v2: blanks around the parts of a prompt are left out.

Source: pred.py of THUDM/LongBench.
"""

from collections.abc import Iterator

from seamark_evaluate.tasks.benchmark import Row

_PARTS = ("context", "question", "choice_A", "choice_B", "choice_C", "choice_D")


def stripped(row: Row) -> Iterator[Row]:
    """Yield the row with document, question and choices without blanks and line ends around them."""
    yield {**row, **{name: str(row[name]).strip() for name in _PARTS}}
