"""Models of `bench fit` as text."""

from collections import Counter

from seamark.model.plurals import counted
from seamark.model.results.fitted_model import StationModel, FittedModels
from seamark.report.numbers import number

HEADS = ("held out", "figure", "trials", "median error", "largest", "in spreads", "in 90 % interval")
PLACES = {
    "inside": "among the loads",
    "beyond": "outside of the loads",
    "overload": "more than it can serve",
}
SHOWN = 5


def fitted_lines(found: FittedModels) -> list[str]:
    """Return a paragraph for each model, with its scores as a table, then the trials that stayed out."""
    lines: list[str] = []
    for model in found.stations:
        lines += [*_model_lines(model), ""]
    for why, count in Counter(str(each.why) for each in found.left_out).items():
        lines.append(f"Left out: {counted(count, 'trial')}: {why}.")
    return lines


def _model_lines(model: StationModel) -> list[str]:
    found, (low, high) = model.parameters, model.loads
    lines = [
        f"{model.name}: {counted(model.servers, 'server')}, one queue; {model.family} service times of"
        f" {number(found.mean_s * 1e3)} ms (variation {found.variation:.2f}),"
        f" {number(found.overhead_s * 1e3)} ms outside of the server",
        f"  from {counted(len(model.sources), 'trial')} with {model.requests:,} requests at utilisation {low:.2f} to"
        f" {high:.2f}; repeats differ by {model.between:.1%}",
    ]
    if model.out_of_order:
        lines.append(f"  {counted(model.out_of_order, 'request')} ended before one that came earlier")
    if model.contradictions:
        lines.append("  UNFIT FOR PLANS: its own trials contradict it.")
        lines += [f"  - {text}" for text in model.contradictions[:SHOWN]]
        more = len(model.contradictions) - SHOWN
        lines += [f"  - and {more} more"] if more > 0 else []
    if model.why_no_score:
        return [*lines, f"  No score: {model.why_no_score}."]
    rows = [HEADS]
    for each in model.scores:
        spreads = "-" if each.in_spreads is None else number(each.in_spreads)
        errors = (f"{each.median_error:.1%}", f"{each.largest_error:.1%}", spreads, f"{each.inside_interval:.0%}")
        rows.append((PLACES[each.place], each.figure.rsplit("_", 1)[0], str(each.trials), *errors))
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADS))]
    return [
        *lines,
        *(
            "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ),
    ]
