"""Answers of the trials behind a comparison: which two trials are shown side by side, and their changed items."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamark.analysis.comparison.observations import whole_answers
from seamark.analysis.trial_view import TrialView
from seamark.model.results.comparison import Compared, Comparisons
from seamark.report.comparison import contrast_text

Trials = Callable[[str], Sequence[TrialView]]
"""From a treatment to its trials."""


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """A comparison of answers with the rows of one trial of each side, of the same block where there is one."""

    compared: Compared
    text: str
    base: Sequence[Mapping[str, Any]]
    new: Sequence[Mapping[str, Any]]


def side_by_side(found: Comparisons, base_trials: Trials, new_trials: Trials) -> Iterator[SideBySide]:
    """Yield each comparison of answers with the answers themselves; repetitions beyond the first are not read."""
    from seamark.analysis.changed_answers import read_answered  # imports pyarrow

    for compared in found.comparisons:
        if compared.answers is None:
            continue
        base = _scored(base_trials(str(compared.base.treatment)))
        new = _scored(new_trials(str(compared.new.treatment)))
        if not base or not new:
            continue
        shared = sorted(base.keys() & new.keys())
        one, other = (base[shared[0]], new[shared[0]]) if shared else (base[min(base)], new[min(new)])
        yield SideBySide(
            compared=compared,
            text=contrast_text(compared, found),
            base=read_answered(one.folder.answers),
            new=read_answered(other.folder.answers),
        )


def changed_table(found: Comparisons, base_trials: Trials, new_trials: Trials) -> list[dict[str, Any]]:
    """Return a row for each item that a comparison's two trials answered with another score."""
    from seamark.analysis.changed_answers import changed_answers

    rows = []
    for pair in side_by_side(found, base_trials, new_trials):
        for item in changed_answers(pair.base, pair.new, pair.compared.metric):
            about = {name: value for name, value in vars(item).items() if name != "facts"}
            facts = {f"fact_{name}": value for name, value in item.facts.items()}
            rows.append({"comparison": pair.text, "metric": pair.compared.metric, **about, **facts})
    return rows


def _scored(views: Sequence[TrialView]) -> dict[int, TrialView]:
    """Return the trials that a comparison of answers uses, by their block: replies to every item, all scored."""
    return {view.trial.block: view for view in views if view.folder.answers.exists() and whole_answers(view)}
