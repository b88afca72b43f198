"""What `make check` says depends neither on how busy the machine is nor on what a user has put under config/."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
CLOCK = re.compile(r"\b(monotonic|perf_counter|process_time|thread_time|getrusage)(_ns)?\(")
NOT_QUICK = re.compile(r"pytest\.mark\.(services|e2e|cluster|slow|sweep|serial)\b")


def quick_tests(path: Path) -> Iterator[ast.FunctionDef]:
    """Give the tests of a file that no marker keeps out of `make check`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    marks = " ".join(ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign))
    if re.search(rf"pytestmark = .*{NOT_QUICK.pattern}", marks):
        return
    tests = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))
    yield from (
        test for test in tests if not any(NOT_QUICK.search(ast.unparse(mark)) for mark in test.decorator_list)
    )


def test_no_quick_test_measures_time() -> None:
    found = [
        f"{path.name}:{test.lineno}"
        for path in TESTS.rglob("test_*.py")
        if CLOCK.search(path.read_text(encoding="utf-8"))
        for test in quick_tests(path)
        if CLOCK.search(ast.unparse(test))
    ]
    assert found == [], "mark it `serial`"


def test_no_test_lists_what_lies_under_config() -> None:
    listing = re.compile(r"(ROOT|CONFIG|SHIPPED)\W[^\n]*\.r?glob\(")
    listed = [
        f"{path.name}: {line.strip()}"
        for path in TESTS.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if listing.search(line) and re.search(r"config|CONFIG|scenarios|services|sites", line)
    ]
    assert listed == [], "take those that ship, from shipped.py"
