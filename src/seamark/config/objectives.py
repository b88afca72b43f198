"""Conditions and objectives of a workload, read and checked against the settings they speak of."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

from seamark.config.decode import WRONG, structure
from seamark.config.expression import condition, slo_parts
from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import did_you_mean
from seamark.model.objectives import OBJECTIVES, is_objective
from seamark.model.scenario import Slo
from seamark.model.service import Setting


def conditions_of(item: Item | None, known: Mapping[str, Setting], mistakes: Mistakes) -> tuple[str, ...]:
    """Return the conditions under `where`, after noting those that cannot be parsed or name no setting."""
    texts: list[str] = []
    for each, text in _texts(item, mistakes):
        try:
            parsed = condition(text)
        except ValueError as error:
            mistakes.add(each, f"{error}.")
            continue
        for name in sorted(parsed.names - set(known)):
            guess = did_you_mean(name, known) or f" Quote it if it is text. Known: {', '.join(known)}."
            mistakes.add(each, f"'{name}' in '{text}' is no setting of this workload.{guess}")
        texts.append(text)
    return tuple(texts)


def objectives_of(item: Item | None, mistakes: Mistakes) -> tuple[Slo, ...]:
    """Return the objectives under `slos`, after noting those that cannot be read or name no metric."""
    slos: list[Slo] = []
    for each, text in _texts(item, mistakes):
        try:
            metric, op, limit = slo_parts(text)
        except ValueError as error:
            mistakes.add(each, f"{error}.")
            continue
        if not is_objective(metric):
            guess = did_you_mean(metric, OBJECTIVES) or f" Known: {', '.join(OBJECTIVES[:6])}, throughput, ..."
            mistakes.add(each, f"'{metric}' is no metric an objective can speak of.{guess}")
        if any(slo.metric == metric and slo.op == op for slo in slos):
            mistakes.add(each, f"'{metric} {op}' has a limit already. Remove one.")
        slos.append(Slo(metric=metric, op=cast(Literal["<=", ">="], op), limit=limit))
    return tuple(slos)


def _texts(item: Item | None, mistakes: Mistakes) -> Iterable[tuple[Item, str]]:
    if item is None:
        return
    entries: list[Any] = item.value if isinstance(item.value, list) else [item]
    for each in entries:
        text = structure(each, str, mistakes)
        if text is not WRONG:
            yield each, text
