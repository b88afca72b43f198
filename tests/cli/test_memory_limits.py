"""Too little memory is one line with an exit code."""

import subprocess
import sys

import pytest

from seamark.cli.main import _lacks_memory


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kib", "words"),
    [
        (200_000, ["compare", "results/one", "results/one"]),
        (200_000, ["report", "results/one"]),
        (300_000, ["load", "http://127.0.0.1:1/"]),
        (600_000, ["load", "http://127.0.0.1:1/"]),
        (600_000, ["submit", "-c", "try"]),
    ],
)
def test_a_verb_without_memory_for_its_libraries_is_one_line(tmp_path, kib, words):
    (tmp_path / "results" / "one").mkdir(parents=True)
    code = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_AS, ({kib} << 10,) * 2)\n"
        f"from seamark.cli.main import main; sys.argv = ['bench', *{words}]; main()\n"
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
    assert done.stderr.startswith(f"memory: `bench {words[0]}`")
    assert "`ulimit -v" in done.stderr
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
