"""Predictions beside measurements, as text."""

from seamark.model.plurals import counted, in_percent
from seamark.model.results.comparison import PredictionScore, ScoredFigure, ScoredLoad
from seamark.report.numbers import aligned, number, unit_of


def score_lines(score: PredictionScore) -> list[str]:
    """Return how many predictions came true, then each figure at each load."""
    rows = figure_rows(score)
    return [score_sentence(score), "", *aligned(rows, left=range(len(rows[0]))), "", *map(verdict_line, score.loads)]


def score_sentence(score: PredictionScore) -> str:
    """Return how many figures lie in their intervals, and at how many loads the verdict was right."""
    suspect, codes = sum(load.doubtful for load in score.loads), (code for load in score.loads for code in load.codes)
    doubts = f" {counted(suspect, 'trial')} SUSPECT: {', '.join(dict.fromkeys(codes))}." if suspect else ""
    share = f" ({in_percent(score.inside / score.compared)})" if score.compared else ""
    return (
        f"{score.inside} of {score.compared} measured figures lie in their {in_percent(score.interval)}"
        f" intervals{share}; the predicted verdict on the objectives was right at {score.right} of"
        f" {counted(score.judged, 'load')}.{doubts}"
    )


def figure_rows(score: PredictionScore) -> list[tuple[str, ...]]:
    """Return the head and a row for each figure at each load."""
    interval = f"{in_percent(score.interval)} interval"
    rows: list[tuple[str, ...]] = [("requests/s", "figure", "predicted", interval, "measured", "inside")]
    for load in score.loads:
        for at, figure in enumerate(load.figures):
            name, scale = _unit(figure)
            shown = " ".join(number(value * scale) for value in sorted(figure.measured)) or "-"
            limits = f"{number(figure.low * scale)} to {number(figure.high * scale)}"
            inside = f"{figure.inside} of {len(figure.measured)}"
            rate = f"{load.rate_rps:g}" if not at else ""
            rows.append((rate, name, number(figure.value * scale), limits, shown, inside))
    return rows


def _unit(scored: ScoredFigure) -> tuple[str, float]:
    """Return a figure's name with its unit in a table, and by what its values are multiplied."""
    if scored.figure == "requests_per_s":
        return "requests/s", 1.0
    unit, factor = unit_of([1e3 * value for value in (scored.value, *scored.measured)])
    return f"{scored.figure.removesuffix('_s').replace('_', ' ')}, {unit}", 1e3 * factor


def verdict_line(load: ScoredLoad) -> str:
    """Return the predicted and the measured verdict at one load."""
    suspect = " SUSPECT extrapolated." if load.suspect else ""
    verdict = "not measured" if load.right is None and not load.judged else "undecided"
    if load.right is not None:
        verdict = "right" if load.right else "wrong"
    doubts = f" {counted(load.doubtful, 'trial')} SUSPECT: {', '.join(load.codes)}." if load.doubtful else ""
    missing = f" {counted(load.unmeasured, 'trial')} left out: INVALID or without figures." if load.unmeasured else ""
    return (
        f"{load.rate_rps:g} requests/s: predicted probability {load.predicted_met:.2f} that a trial meets the"
        f" objectives, {load.met} of {counted(load.judged, 'trial')} did: {verdict}.{suspect}{doubts}{missing}"
    )
