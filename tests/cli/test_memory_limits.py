"""Too little memory is one line with an exit code."""

import subprocess
import sys

import pytest

from seamark.cli.main import _lacks_memory


def test_a_verb_without_memory_for_its_libraries_is_one_line(tmp_path):
    (tmp_path / "results" / "one").mkdir(parents=True)
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (200_000 << 10,) * 2)\n"
        "from seamark.cli.main import main; sys.argv = ['bench', 'report', 'results/one']; main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("memory: `bench report`")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (MemoryError(), True),
        (ImportError("x.so: failed to map segment from shared object"), True),
        (RuntimeError("can't start new thread"), True),
        (ImportError("No module named 'x'"), False),
    ],
)
def test_other_errors_are_no_lack_of_memory(error, lacks):
    assert _lacks_memory(error) is lacks
