"""Conditions that a scenario states: `where: batch <= concurrency` and `slos: latency_p99_s <= 0.2`. Never `eval`."""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from seamark.model.service import Value

COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, group: value in group,
    ast.NotIn: lambda value, group: value not in group,
}
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
ALLOWED = (
    *(ast.Compare, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd),
    *(ast.Name, ast.expr_context, ast.List, ast.Tuple),
)
LONGEST = 500
_SLO = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(<=|>=|<|>|==|=)\s*(\S+)\s*")


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A parsed condition: holds or does not hold for the values of some settings."""

    text: str
    tree: ast.expr
    names: frozenset[str]

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Whether it holds. Raises ValueError that says what is wrong when it cannot be worked out."""
        try:
            return bool(_work_out(self.tree, values))
        except (TypeError, ArithmeticError) as error:
            used = ", ".join(f"{name} = {values.get(name)}" for name in sorted(self.names))
            raise ValueError(f"cannot be worked out for {used} ({error})") from None


def condition(text: str) -> Condition:
    """Parse a condition over settings. Raises ValueError that names what is not allowed."""
    if len(text) > LONGEST:
        raise ValueError(f"is longer than {LONGEST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"'{text}' is not a condition such as 'batch <= concurrency'") from None
    tree = _Words().visit(tree)
    for node in ast.walk(tree):
        _check(node)
    if not isinstance(tree, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
        raise ValueError(f"'{text}' is not a condition such as 'batch <= concurrency'")
    names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return Condition(text=text, tree=tree, names=names)


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
        return metric, op, number
    except ValueError:
        raise ValueError(
            f"the limit '{limit}' is not a number; its unit is the metric's own (seconds for _s)"
        ) from None


class _Words(ast.NodeTransformer):
    """Reads true, false and null as YAML does."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        words = {"true": True, "false": False, "null": None}
        return ast.copy_location(ast.Constant(words[node.id]), node) if node.id in words else node


def _check(node: ast.AST) -> None:
    if isinstance(node, (ast.BinOp, ast.operator)):
        kind = node.op if isinstance(node, ast.BinOp) else node
        if type(kind) not in ARITHMETIC:
            raise ValueError("only + - * / // % are allowed between numbers")
    elif isinstance(node, ast.Constant):
        if not isinstance(node.value, (int, float, str, bool, type(None))):
            raise ValueError(f"{node.value!r} is neither a number nor text")
    elif isinstance(node, ast.cmpop):
        if type(node) not in COMPARISONS:
            raise ValueError("only < <= > >= == != in, not in compare")
    elif not isinstance(
        node,
        ALLOWED,
    ):
        raise ValueError(
            f"{type(node).__name__.lower()} is not allowed; use names, numbers, text, comparisons, and, or, not, in"
        )


def _work_out(node: ast.expr, values: Mapping[str, Value]) -> Any:
    match node:
        case ast.Name(id=name):
            return values[name]
        case ast.Constant(value=value):
            return value
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [_work_out(part, values) for part in parts]
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_work_out(part, values) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_work_out(part, values) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return not _work_out(part, values)
        case ast.UnaryOp(op=sign, operand=part):
            number = _number(_work_out(part, values))
            return -number if isinstance(sign, ast.USub) else number
        case ast.BinOp(left=left, op=op, right=right):
            return ARITHMETIC[type(op)](_number(_work_out(left, values)), _number(_work_out(right, values)))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            return _chain(_work_out(left, values), ops, comparators, values)
    raise TypeError(f"{type(node).__name__} is not allowed")


def _chain(first: Any, ops: list[ast.cmpop], others: list[ast.expr], values: Mapping[str, Value]) -> bool:
    for op, other in zip(ops, others, strict=True):
        second = _work_out(other, values)
        if not COMPARISONS[type(op)](first, second):
            return False
        first = second
    return True


def _number(value: Any) -> int | float:
    if isinstance(value, (int, float)):
        return value
    raise TypeError(f"{value!r} is not a number")
