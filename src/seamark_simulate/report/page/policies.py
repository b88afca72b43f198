"""Blocks of policies side by side, from the comparisons of the summary."""

from collections.abc import Sequence
from pathlib import Path

from seamark.model.results.summary import SummaryRow
from seamark.report.page.content import Block
from seamark.report.source import Results
from seamark_simulate.report.figures.policies import policy_picture
from seamark_simulate.report.policies import policy_matrices
from seamark_simulate.report.tables.policies import policy_table

MOST_METRICS = 3


def policy_blocks(
    results: Results, workload: str, treatments: Sequence[SummaryRow], stem: str, folder: Path
) -> list[Block]:
    """Return a figure and a table for each metric by which the policies of a workload are compared."""
    comparisons = results.summary.comparisons
    blocks: list[Block] = []
    for matrix in policy_matrices(comparisons, workload)[:MOST_METRICS]:
        assert comparisons is not None
        picture = policy_picture(matrix, workload, comparisons.margin, stem, folder)
        blocks += [*([picture] if picture else []), policy_table(matrix, workload, comparisons.family)]
    return blocks
