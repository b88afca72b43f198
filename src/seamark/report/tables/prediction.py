"""Section of what a capacity plan predicted of a scenario's trials, beside what they measured."""

from seamark.analysis.comparison.predicted import score_of
from seamark.report.page.content import Block, Section, Table, Text, column
from seamark.report.predicted import figure_rows, score_sentence, verdict_line
from seamark.report.source import Results


def prediction_section(results: Results) -> Section | None:
    """Return how many predictions came true, and each figure at each load; None for a scenario without a
    prediction."""
    score = score_of(results.plan, results.folder)
    if score is None:
        return None
    heads, *rows = figure_rows(score)
    columns = tuple(column(name, [row[at] for row in rows], numeric=at in (0, 2)) for at, name in enumerate(heads))
    table = Table(columns=columns, caption=f"Simulated by models of {score.fit}, and measured")
    verdicts = tuple(Text(text=verdict_line(load)) for load in score.loads)
    blocks: tuple[Block, ...] = (Text(text=score_sentence(score)), table, *verdicts)
    return Section(id="prediction", title="Prediction against measurement", blocks=blocks)
