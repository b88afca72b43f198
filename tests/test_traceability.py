"""Requirements have ids, markers name known ones, and tests are found wherever their marker stands."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from seamark.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))
traceability = import_module("traceability")

PARTS = traceability.requirements(ROOT / "docs" / "requirements.yaml")
IDS = [name for part in PARTS.values() for name in part]


def claims(folder: Path, text: str) -> list[tuple[str, str]]:
    """Return requirement and test of every claim in a test file with this text."""
    (folder / "tests").mkdir()
    (folder / "tests" / "test_x.py").write_text(f"import pytest\n{text}")
    return [(claim.requirement, claim.test) for claim in traceability.claims_of(folder / "tests")]


def numbered(prefix: str, last: int, form: str = "{}{}") -> list[str]:
    return [form.format(prefix, number) for number in range(1, last + 1)]


@pytest.mark.covers("E-TRACE", "E-AC01")
def test_every_requirement_has_an_id_and_a_title_of_one_line():
    expected = [*numbered("A", 10), *numbered("B", 17), *numbered("C", 14), "C4b", *numbered("D", 9)]
    expected += ["E0", "E1", "E2", "E-SCHEMA", "E-SEC", "E-CFG", "E-VAL", "E-SVC", "E-EX", "E-TRACE", "E-RISK"]
    for prefix, last in {"FR": 29, "NFR": 7, "MR": 8, "SVR": 6, "CLI": 5, "MON": 4, "LOG": 3, "INT": 4}.items():
        expected += numbered(f"E-{prefix}", last, "{}{:02d}")
    expected += [*numbered("E-MLX", 6, "{}{:02d}"), *numbered("E-AC", 5, "{}{:02d}")]
    assert sorted(IDS) == sorted(expected)
    assert all(isinstance(title, str) and 20 < len(title) < 120 for part in PARTS.values() for title in part.values())


@pytest.fixture(scope="module")
def found():
    """What all tests say that they show."""
    return traceability.claims_of(ROOT / "tests")


@pytest.mark.covers("E-TRACE")
def test_every_marker_of_a_test_names_a_requirement(found):
    traceability.check_ids(found, IDS)
    assert found


@pytest.mark.covers("E-TRACE")
def test_no_requirement_is_shown_by_sweeps_alone(found, tmp_path):
    assert {claim.requirement for claim in found} == {claim.requirement for claim in found if not claim.swept}
    text = '@pytest.mark.sweep\n@pytest.mark.covers("E0")\ndef test_one(): ...\n'
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_x.py").write_text(f"import pytest\n{text}")
    [claim] = traceability.claims_of(tmp_path / "tests")
    assert claim.swept


def test_an_unknown_id_is_named_with_its_line_and_the_nearest_known_one():
    wrong = traceability.Claim(requirement="E-FR9", test="tests/test_x.py::test_a", line=7)
    with pytest.raises(
        UserError, match=re.escape("tests/test_x.py:7: unknown requirement 'E-FR9'. Did you mean 'E-FR")
    ):
        traceability.check_ids([wrong], IDS)


def test_a_marker_counts_on_a_function_a_class_and_a_whole_file(tmp_path):
    text = """
pytestmark = [pytest.mark.services, pytest.mark.covers("E0")]

@pytest.mark.covers("E1", "E2")
def test_one(): ...

@pytest.mark.covers("A1")
class TestGroup:
    @pytest.mark.covers("A2")
    def test_two(self): ...

def helper(): ...
"""
    group = "tests/test_x.py::TestGroup::test_two"
    one = "tests/test_x.py::test_one"
    assert claims(tmp_path, text) == [
        ("E0", one),
        ("E1", one),
        ("E2", one),
        ("E0", group),
        ("A1", group),
        ("A2", group),
    ]


def test_a_marker_on_one_parameter_counts_for_its_test(tmp_path):
    text = '@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.covers("B9"))])\ndef test_p(x): ...\n'
    assert claims(tmp_path, text) == [("B9", "tests/test_x.py::test_p")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('NAME = "E0"\n@pytest.mark.covers(NAME)\ndef test_a(): ...\n', "write the ids as plain text"),
        ("@pytest.mark.covers()\ndef test_a(): ...\n", "write the ids as plain text"),
        ('@pytest.mark.covers("E0")\ndef helper(): ...\n', "'helper' is not a test"),
    ],
)
def test_a_marker_that_shows_nothing_is_an_error(tmp_path, text, says):
    with pytest.raises(UserError, match=says):
        claims(tmp_path, text)


def test_what_no_test_shows_is_open_on_the_page():
    claim = traceability.Claim(requirement="E1", test="tests/test_x.py::test_a", line=1)
    page = traceability.page({"E": {"E0": "first", "E1": "second"}}, [claim, claim])
    assert "**1 of 2**" in page
    assert "| E0 | first | *open* |" in page
    assert "| E1 | second | `tests/test_x.py::test_a` |" in page
