"""Requirements and the tests that show them: read from `@pytest.mark.covers(...)` in tests/, without imports."""

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from seamark.errors import UserError, did_you_mean  # noqa: E402

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of one test to show one requirement."""

    requirement: str
    test: str
    line: int
    swept: bool = False
    """The test runs in `make test-all` only."""


def requirements(path: Path) -> dict[str, dict[str, str]]:
    """Return the requirements by part: id to title."""
    parts: dict[str, dict[str, str]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return parts


def claims_of(tests: Path) -> list[Claim]:
    """Return the claims of every test below `tests`. Raises UserError for a marker that cannot be read."""
    found: list[Claim] = []
    for path in sorted(tests.rglob("test_*.py")):
        found += _claims_of_file(path, path.relative_to(tests.parent).as_posix())
    return found


def check_ids(claims: Iterable[Claim], known: Iterable[str]) -> None:
    """Raise UserError that names every unknown id with the nearest known one."""
    names = list(known)
    wrong = [
        f"{claim.test.split('::')[0]}:{claim.line}: unknown requirement '{claim.requirement}'."
        f"{did_you_mean(claim.requirement, names)} All ids stand in docs/requirements.yaml."
        for claim in claims
        if claim.requirement not in names
    ]
    if wrong:
        raise UserError(*wrong)


def page(parts: Mapping[str, Mapping[str, str]], claims: Iterable[Claim]) -> str:
    """Return traceability.md."""
    shown_by: dict[str, list[str]] = {}
    for claim in claims:
        shown_by.setdefault(claim.requirement, []).append(f"`{claim.test}`{' (sweep)' * claim.swept}")
    total = sum(len(part) for part in parts.values())
    shown = sum(name in shown_by for part in parts.values() for name in part)
    lines = [
        "# Requirements and the tests that show them",
        "",
        "Made by `make docs` from [requirements.yaml](requirements.yaml) and the `covers` markers of the tests. Do",
        "not edit. A listed test shows the requirement or a part of it; *open*: no test does yet; *sweep*:",
        "the test runs in `make test-all` only.",
        "",
        f"**{shown} of {total}** requirements are shown by at least one test.",
    ]
    for part, items in parts.items():
        count = sum(name in shown_by for name in items)
        lines += [
            "",
            f"## {part}",
            "",
            f"{count} of {len(items)}.",
            "",
            "| id | what | shown by |",
            "| --- | --- | --- |",
        ]
        for name, title in items.items():
            tests = "<br>".join(sorted(set(shown_by.get(name, [])))) or "*open*"
            lines.append(f"| {name} | {title} | {tests} |")
    return "\n".join(lines) + "\n"


def _claims_of_file(path: Path, name: str) -> list[Claim]:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    whole = [marker for node in tree.body for marker in _pytestmark(node)]
    found: list[Claim] = []
    for test, function, outer in _tests(tree):
        markers = [*whole, *outer, *(call for each in function.decorator_list for call in _markers(each))]
        swept = any(isinstance(each, ast.Attribute) and each.attr == "sweep" for each in function.decorator_list)
        for marker in markers:
            found += [
                Claim(requirement=word, test=f"{name}::{test}", line=marker.lineno, swept=swept)
                for word in _ids(marker, path)
            ]
    _no_stray_marker(tree, name)
    return found


def _tests(tree: ast.Module) -> Iterator[tuple[str, Function, list[ast.Call]]]:
    for node in tree.body:
        if isinstance(node, Function) and node.name.startswith("test_"):
            yield node.name, node, []
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            outer = [call for each in node.decorator_list for call in _markers(each)]
            outer += [call for each in node.body for call in _pytestmark(each)]
            for inner in node.body:
                if isinstance(inner, Function) and inner.name.startswith("test_"):
                    yield f"{node.name}::{inner.name}", inner, outer


def _pytestmark(node: ast.stmt) -> list[ast.Call]:
    if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets):
        return list(_markers(node.value))
    return []


def _markers(node: ast.AST) -> Iterator[ast.Call]:
    """Yield every call of `pytest.mark.covers` at or below a node."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "covers":
            yield each


def _ids(marker: ast.Call, path: Path) -> list[str]:
    words = [each.value for each in marker.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if not words or len(words) != len(marker.args) or marker.keywords:
        raise UserError(f'{path}:{marker.lineno}: write the ids as plain text: covers("E-FR09", "E-FR10").')
    return words


def _no_stray_marker(tree: ast.Module, name: str) -> None:
    """Raise UserError for a marker on a function that pytest does not collect."""
    for node in ast.walk(tree):
        if isinstance(node, Function) and not node.name.startswith("test_"):
            for marker in (call for each in node.decorator_list for call in _markers(each)):
                raise UserError(f"{name}:{marker.lineno}: '{node.name}' is not a test, so it can show nothing.")
