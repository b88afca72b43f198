"""ZeroSCROLLS: a row of its data is a whole prompt with the places of its parts.

Source: experiments/hf/run_hf_model.py of tau-nlp/zero_scrolls.
"""

from collections.abc import Iterator

from seamark_evaluate.tasks.benchmark import Row


def document_and_query(row: Row) -> Iterator[Row]:
    """Yield the row with columns `document`, the prompt up to its query, and `query`, the rest.

    Raises ValueError where the place of the query is not within the prompt.
    """
    prompt, start = str(row["input"]), int(row["query_start_index"])
    if not 0 < start <= len(prompt):
        raise ValueError(f"'query_start_index' {start} is not within its prompt of {len(prompt)} characters.")
    yield {**row, "document": prompt[:start], "query": prompt[start:]}
