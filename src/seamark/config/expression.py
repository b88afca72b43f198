"""Conditions (`where: batch <= concurrency`) and objectives (`slos: latency_p99_s <= 0.2`) of a workload.

A condition is Python restricted to names, constants, comparisons, `and`, `or`, `not`, `in` and arithmetic on numbers:
its syntax tree is checked node by node and compiled once, then evaluated without builtins for each treatment.
"""

import ast
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any, Literal, cast

from seamark.config.decode import WRONG, decode, without_unit
from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import did_you_mean
from seamark.model.objectives import OBJECTIVES, is_objective
from seamark.model.scenario import Slo
from seamark.model.service import Setting, Value

COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
ALLOWED = (
    *(ast.Compare, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd),
    *(ast.Name, ast.expr_context, ast.List, ast.Tuple),
)
LONGEST = 500
CONSTANTS = {"true": True, "false": False, "null": None}
_AS_NUMBER = " as number"
"""Name under which a compiled condition calls `_number`; the blank keeps it apart from every setting."""
_SLO = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.]*)\s*(<=|>=|<|>|==|=)\s*(\S+)\s*")


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A parsed condition: holds or does not hold for the values of some settings."""

    text: str
    code: CodeType
    names: frozenset[str]

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Return whether it holds. Raises ValueError with the values for which it cannot be evaluated."""
        try:
            return bool(eval(self.code, {"__builtins__": {}, _AS_NUMBER: _number}, dict(values)))
        except (TypeError, ArithmeticError) as error:
            used = ", ".join(f"{name} = {values.get(name)}" for name in sorted(self.names))
            raise ValueError(f"cannot be worked out for {used} ({error})") from None


def condition(text: str) -> Condition:
    """Parse a condition over settings. Raises ValueError that names what is not allowed."""
    if len(text) > LONGEST:
        raise ValueError(f"is longer than {LONGEST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"'{text}' is not a condition such as 'batch <= concurrency'") from None
    names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)) - set(CONSTANTS)
    for node in ast.walk(tree.body):
        _check(node)
    if not isinstance(tree.body, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
        raise ValueError(f"'{text}' is not a condition such as 'batch <= concurrency'")
    prepared = ast.fix_missing_locations(_Prepared().visit(tree))
    return Condition(text=text, code=compile(prepared, "<condition>", "eval"), names=names)


def slo_parts(text: str) -> tuple[str, str, float]:
    """Split "latency_p99_s <= 0.2" into metric, operator and limit. Raises ValueError with the remedy."""
    match = _SLO.fullmatch(text)
    if match is None:
        raise ValueError(f"'{text}' is not of the form 'latency_p99_s <= 0.2'")
    metric, op, limit = match.groups()
    if op not in ("<=", ">="):
        raise ValueError(f"'{op}' is not read in '{text}'. Use <= or >=")
    try:
        number = float(limit)
        if not math.isfinite(number):
            raise ValueError
    except ValueError:
        guess = without_unit(metric, limit).rstrip(".") or " Its unit is the metric's own (seconds for _s)"
        raise ValueError(f"the limit '{limit}' is not a number.{guess}") from None
    if metric.endswith("_s") and op == "<=" and number <= 0:
        raise ValueError(f"no time is {number:g} s or less, so '{text}' can never be met")
    return metric, op, number


def conditions_of(item: Item | None, known: Mapping[str, Setting], mistakes: Mistakes) -> tuple[str, ...]:
    """Return the conditions under `where`, after noting those that cannot be parsed or name no setting."""
    texts: list[str] = []
    for entry, text in _texts(item, mistakes):
        try:
            parsed = condition(text)
        except ValueError as error:
            mistakes.add(entry, f"{error}.", "wrong_form")
            continue
        for name in sorted(parsed.names - set(known)):
            guess = did_you_mean(name, known) or f" Quote it if it is text. Known: {', '.join(known)}."
            mistakes.add(entry, f"'{name}' in '{text}' is no setting of this workload.{guess}", "unknown_name")
        texts.append(text)
    return tuple(texts)


def objectives_of(item: Item | None, mistakes: Mistakes, own: tuple[str, ...] = ()) -> tuple[Slo, ...]:
    """Return the objectives under `slos`, after noting those that cannot be read or name no metric.

    A metric is one of OBJECTIVES, the name of a column of metrics.csv, or one of the user's `own`.
    """
    slos: list[Slo] = []
    for entry, text in _texts(item, mistakes):
        try:
            metric, op, limit = slo_parts(text)
        except ValueError as error:
            mistakes.add(entry, f"{error}.", "wrong_form")
            continue
        if metric.removeprefix("quality.") in own:
            metric = metric.removeprefix("quality.")
        if not is_objective(metric) and metric not in own and metric not in _columns():
            guess = (
                did_you_mean(metric, (*OBJECTIVES, *own)) or f" Known: {', '.join(OBJECTIVES[:6])}, throughput, ..."
            )
            mistakes.add(entry, f"'{metric}' is no metric an objective can speak of.{guess}", "unknown_name")
        if any(slo.metric == metric and slo.op == op for slo in slos):
            mistakes.add(entry, f"'{metric} {op}' has a limit already. Remove one.", "written_twice")
        slos.append(Slo(metric=metric, op=cast(Literal["<=", ">="], op), limit=limit))
    return tuple(slos)


def _columns() -> set[str]:
    from seamark.analysis.metrics.table import METRICS  # few objectives need it

    return {metric.column for metric in METRICS}


def _texts(item: Item | None, mistakes: Mistakes) -> Iterable[tuple[Item, str]]:
    if item is None:
        return
    entries: list[Any] = item.value if isinstance(item.value, list) else [item]
    for entry in entries:
        text = decode(entry, str, mistakes)
        if text is not WRONG:
            yield entry, text


class _Prepared(ast.NodeTransformer):
    """Constants as YAML writes them; operands of arithmetic checked to be numbers; `and`, `or` give a bool."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(CONSTANTS[node.id]) if node.id in CONSTANTS else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        return ast.BinOp(self._as_number(node.left), node.op, self._as_number(node.right))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.visit(node.operand) if isinstance(node.op, ast.Not) else self._as_number(node.operand)
        return ast.UnaryOp(node.op, operand)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        return ast.UnaryOp(ast.Not(), ast.UnaryOp(ast.Not(), self.generic_visit(node)))  # type: ignore[arg-type]

    def _as_number(self, node: ast.expr) -> ast.expr:
        return ast.Call(ast.Name(_AS_NUMBER, ast.Load()), [self.visit(node)], [])


def _check(node: ast.AST) -> None:
    if isinstance(node, (ast.BinOp, ast.operator)):
        if not isinstance(node.op if isinstance(node, ast.BinOp) else node, ARITHMETIC):
            raise ValueError("only + - * / // % are allowed between numbers")
    elif isinstance(node, ast.Constant):
        if not isinstance(node.value, (int, float, str, bool, type(None))):
            raise ValueError(f"{node.value!r} is neither a number nor text")
    elif isinstance(node, ast.cmpop):
        if not isinstance(node, COMPARISONS):
            raise ValueError("only < <= > >= == != in, not in compare")
    elif not isinstance(node, ALLOWED):
        raise ValueError(
            f"{type(node).__name__.lower()} is not allowed; use names, numbers, text, comparisons, and, or, not, in"
        )


def _number(value: Any) -> int | float:
    if isinstance(value, (int, float)):
        return value
    raise TypeError(f"{value!r} is not a number")
