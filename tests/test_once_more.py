"""The last part of `make test`: few failures are tried alone, and nothing that is broken passes for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ONCE = """
from pathlib import Path

def test_of_luck():
    tried = Path("tried")
    first = not tried.exists()
    tried.touch()
    assert not first
"""
BROKEN = "def test_broken(): assert 0"
MANY = "import pytest\n@pytest.mark.parametrize('case', range(5))\ndef test_many(case): assert 0"


def suite(folder: Path, tests: dict[str, str]) -> tuple[int, str]:
    """Run a group of tests for each name, then try once more what failed: its exit code and what it printed."""
    environment = {**os.environ, "PYTHONPATH": f"{HERE}:{HERE / 'support'}"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    for name, text in tests.items():
        (folder / f"test_{name}.py").write_text(text)
        options = ["-p", "conftest", "-o", f"cache_dir=.pytest_cache/{name}", f"test_{name}.py"]
        subprocess.run(
            [sys.executable, "-m", "pytest", *options], cwd=folder, env=environment, capture_output=True, check=False
        )
    done = subprocess.run(
        [sys.executable, HERE / "once_more.py", *tests, *([] if tests else ["never"])],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tests", "code", "said"),
    [
        ({"good": "def test_good(): pass"}, 0, ""),
        (
            {"once": ONCE},
            0,
            "these failed beside others and passed alone; find the reason:\n  test_once.py::test_of_luck",
        ),
        ({"once": ONCE, "broken": BROKEN}, 1, "1 failed, 1 passed"),
        ({"many": MANY}, 1, "5 tests failed, more than 4: none is tried again"),
        ({"unread": "import nothing_of_this_name"}, 1, "'unread' ended with 2, not with failed tests"),
        ({"empty": ""}, 1, "'empty' ended with 5"),
        ({}, 1, "'never' ended with None"),
    ],
)
def test_what_failed_is_tried_once_more(tmp_path: Path, tests: dict[str, str], code: int, said: str) -> None:
    ended, printed = suite(tmp_path, tests)
    assert ended == code, printed
    assert said in printed
