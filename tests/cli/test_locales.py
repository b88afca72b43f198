"""Every verb prints in every locale: what an encoding lacks is written otherwise, and ends nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from report.make_results import SERVICES, make_results

from seamark.cli.main import verb_summaries
from seamark.cli.output import nearest

BENCH = [sys.executable, "-m", "seamark.cli.main"]
ROOT = Path(__file__).resolve().parents[2]
NARROW = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}


def bench(folder: Path, *words: str, encoding: str) -> "subprocess.CompletedProcess[bytes]":
    environment = os.environ | NARROW | {"PYTHONIOENCODING": encoding, "COLUMNS": "160"}
    return subprocess.run(
        [*BENCH, *words], cwd=folder, capture_output=True, timeout=120, check=False, env=environment
    )


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study whose scenario has letters of many alphabets in its notes, and results with withheld percentiles."""
    root = tmp_path_factory.mktemp("study")
    made = bench(root, "init", "here", encoding="ascii")
    assert made.returncode == 0, made.stderr
    study = root / "here"
    scenario = study / "config" / "scenarios" / "letters.yaml"
    scenario.parent.mkdir(parents=True, exist_ok=True)
    scenario.write_text(
        "scenario: letters\nrepetitions: 1\nmetadata: {notes: 'Überlauf – 測試 ≥ μ 🚢'}\n"
        "workloads:\n  - {name: small, service: 'null', duration_s: 1}\n",
        encoding="utf-8",
    )
    scenario.with_name("letters-測試.yaml").write_bytes(scenario.read_bytes())
    return study


@pytest.mark.slow
@pytest.mark.covers("E-CLI02")
@pytest.mark.sweep
@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_verbs_that_only_look_print_in_any_locale(study, encoding):
    scenario = ("-c", "config/scenarios/letters.yaml")
    for words in (
        *((verb, "--help") for verb in verb_summaries()),
        ("plan", *scenario),
        ("plan", *scenario, "--json"),
        ("plan", "-c", "config/scenarios/letters-測試.yaml"),
        ("status", *scenario),
        ("report", *scenario),
        ("collect", *scenario),
        ("servers", "list"),
        ("prune",),
        ("doctor",),
        ("plan", "-c", "config/scenarios/größe–測試.yaml"),
        ("gröẞe",),
        ("retry", *scenario, "größe–測試"),
        ("export", "slurm", *scenario),
        ("completion", "bash"),
    ):
        done = bench(study, *words, encoding=encoding)
        assert b"Traceback" not in done.stderr, (words, done.stderr.decode("utf-8", "replace"))
        assert done.returncode in (0, 1, 2, 3), words
        if words[0] == "plan" and words[-1].endswith(("letters.yaml", "letters-測試.yaml")):
            assert done.returncode == 0, done.stderr


@pytest.mark.sweep
@pytest.mark.covers("E-FR12")
@pytest.mark.parametrize("encoding", ["latin-1", pytest.param("ascii", marks=pytest.mark.sweep)])
def test_a_summary_with_withheld_percentiles_is_printed_and_its_report_is_utf8(study, encoding, tmp_path):
    make_results(study / "results", scenario="letters", services=SERVICES[4:], repetitions=1)
    code = (
        "from rich.console import Console; from pathlib import Path; import sys\n"
        "from seamark.cli.output import print_in_any_locale\n"
        "from seamark.model.results.summary import Summary; from seamark.storage.documents import read\n"
        "from seamark.report.terminal import summary_table\n"
        "from seamark.report.page.render import write_report\n"
        "print_in_any_locale()\n"
        "Console().print(summary_table(read(Path('results/letters/summary.json'), Summary), 160))\n"
        f"print(write_report(Path('results/letters'), Path({str(tmp_path)!r})))\n"
    )
    environment = os.environ | NARROW | {"PYTHONIOENCODING": encoding, "COLUMNS": "160"}
    done = subprocess.run([sys.executable, "-c", code], cwd=study, capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert b"p95 ms" in done.stdout
    page = (tmp_path / "letters" / "index.html").read_text(encoding="utf-8")
    assert "–" in page


def test_letters_that_an_encoding_lacks_become_the_nearest_of_ascii():
    error = UnicodeEncodeError("ascii", "a ≥ b – 測", 2, 3, "ordinal")
    assert nearest(error) == (">=", 3)
    assert nearest(UnicodeEncodeError("ascii", "–測", 0, 2, "ordinal")) == ("-?", 2)


@pytest.mark.slow
@pytest.mark.covers("E-NFR04")
def test_a_terminal_obeys_no_text_of_others_and_keeps_the_colours_of_its_tables():
    code = (
        "import click, os, sys\n"
        "from rich.table import Table; from rich.text import Text\n"
        "from seamark.cli.output import print_in_any_locale, terminal\n"
        "print_in_any_locale()\n"
        "click.echo('a\\x1b\\tb\\r\\n\\x07\\x9b\\x7f')\n"
        "os.environ.update(FORCE_COLOR='1', TERM='xterm-256color', COLUMNS='40')\n"
        "table = Table('a wider head'); table.add_row(Text('c\\x1b]0;d\\x00', style='red'))\n"
        "terminal().print(table)\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    assert shown.startswith("a␛\tb\n␇\N{REPLACEMENT CHARACTER}␡\n")
    assert "\x1b[31mc␛]0;d␀ " in shown
