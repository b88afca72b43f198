"""What `bench` says: help with examples, mistakes in a line each, exit codes, completion."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import in_process
import pytest
from click.testing import CliRunner

from seamark.cli.main import cli, verb_summaries

ROOT = Path(__file__).resolve().parents[2]
bench = partial(in_process.bench, cwd=ROOT)


@pytest.mark.parametrize("verb", verb_summaries())
def test_every_verb_has_help_with_an_example_that_begins_with_bench(verb):
    shown = CliRunner().invoke(cli, [verb, "--help"])
    assert shown.exit_code == 0
    assert f"bench {verb}" in shown.output.split("Example", 1)[1]


@pytest.mark.covers("E-SVR01")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["submti"], "Did you mean 'submit'?"),
        (["run"], "Did you mean 'submit'?"),
        (["plan", "-c", "config/scenarios/quikstart.yaml"], "quikstart.yaml"),
        (["plan", "--sit", "local"], "--site"),
        (["plan", "--site", "meluxna"], "Did you mean 'meluxina'?"),
        (["retry", "quickstart", "nothing--like-it"], "no such trial"),
        (["init", "src"], "not an empty folder"),
    ],
)
def test_a_mistake_is_a_line_without_a_traceback_and_exit_code_2(words, said):
    done = bench(*words)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["load", "--ratee", "3", "http://x"], "Did you mean '--rate'?"),
        (["--verson"], "Did you mean '--version'?"),
        (["load", "http://127.0.0.1:1", "--rate", "abc"], "'--rate'"),
        (["load"], "ADDRESS"),
        (["compare", "--metric"], "bench compare: "),
        (["servers", "strat"], "Did you mean 'start'?"),
        (["completion", "fsh"], "Did you mean 'fish'?"),
        (["compare", "x", "--format", "jsn"], "Did you mean 'json'?"),
        (["memory"], "'--model'"),
    ],
)
def test_what_click_refuses_is_one_line_with_guess_and_remedy(words, said):
    done = bench(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert said in done.stderr
    assert "--help`" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_of_the_shell(shell):
    assert "_BENCH_COMPLETE" in bench("completion", shell).stdout


def test_completion_knows_the_verbs():
    done = bench(_BENCH_COMPLETE="bash_complete", COMP_WORDS="bench su", COMP_CWORD="1")
    assert "submit" in done.stdout


LIBRARIES = "sys.exit(' '.join({'matplotlib', 'pandas', 'prometheus_client', 'seaborn'} & set(sys.modules)) or None)"


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "from seamark.cli.main import cli; cli(['--help'], standalone_mode=False)",
        "from seamark.cli.main import cli; cli(['plan', '--no-write'], standalone_mode=False)",
        "import seamark.cli.load, seamark.cli.submit, seamark.report.terminal, seamark.trials.derive_trial",
    ],
)
def test_libraries_of_the_report_are_imported_by_the_report_alone(code):
    words = [sys.executable, "-c", f"import sys; {code}; {LIBRARIES}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_help_imports_no_verb_and_nothing_that_reads_a_study():
    parts = "('seamark.cli.options', 'seamark.config', 'seamark.planning', 'numpy', 'rich', 'yaml')"
    found = f"sys.exit(' '.join(sorted(name for name in sys.modules if name.startswith({parts}))) or None)"
    code = f"import sys; from seamark.cli.main import cli; cli(['--help'], standalone_mode=False); {found}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.covers("E-NFR01")
def test_what_starts_a_run_imports_neither_what_derives_figures_nor_what_sends_loads():
    parts = "('seamark.analysis.metrics', 'seamark.drivers', 'seamark.load.workers', 'pandas', 'pyarrow')"
    found = f"sorted(name for name in sys.modules if name.startswith({parts}))"
    shown = "seamark.report.headline, seamark.report.terminal"
    code = f"import sys, seamark.cli.submit, seamark.workflow.dag, {shown}; print({found})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.covers("E-SVR03")
def test_servers_list_says_what_was_not_seen_running():
    services = {row["name"]: row for row in json.loads(bench("servers", "list", "--json").stdout)["services"]}
    assert {"fileio", "postgres", "s3", "faiss", "triton"} <= services.keys()
    assert services["postgres"]["state"] == "runs here"
    assert services["vllm"]["state"] == "runs here, not in its container"


def test_servers_list_cuts_no_word_at_80_columns():
    lines = bench("servers", "list", COLUMNS="80").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    words = {word for line in lines for word in line.split()}
    assert {"LGPL-3.0-or-later", "BSD-3-Clause", "preadv/pwritev"} <= words


@pytest.mark.slow
@pytest.mark.covers("E-FR01", "E-AC04")
def test_plan_prints_the_same_numbers_as_text_and_as_json():
    words = ["plan", "-c", "config/scenarios/llm_vllm_baseline.yaml", "--no-write"]
    document = json.loads(bench(*words, "--json").stdout)
    assert len(document["plan"]["trials"]) == 54
    assert "18 treatments x 3 repetitions = 54 trials" in bench(*words).stdout


def test_no_colour_is_printed_where_none_is_wanted(tmp_path):
    assert "\x1b[" not in bench("servers", "list", NO_COLOR="1").stdout


@pytest.mark.slow
def test_doctor_looks_at_this_machine_and_names_remedies():
    findings = json.loads(bench("doctor", "--json").stdout)["findings"]
    assert {"cores", "timer", "disk space"} <= {finding["what"] for finding in findings}
    assert all(
        finding["remedy"] for finding in findings if finding["level"] != "ok" and "looked at" not in finding["seen"]
    )


@pytest.mark.slow
def test_doctor_of_a_slurm_site_without_slurm_is_the_sites_fault(tmp_path):
    done = bench(
        "doctor", "--site", "meluxina", "-c", "config/scenarios/llm_vllm_baseline.yaml", PATH="/usr/bin:/bin"
    )
    assert done.returncode == 3
    assert "sbatch" in done.stdout


@pytest.mark.slow
def test_init_makes_a_study_that_plans(tmp_path):
    assert bench("init", "study", cwd=tmp_path).returncode == 0
    done = bench("plan", "-c", "config/scenarios/quickstart.yaml", cwd=tmp_path / "study")
    assert done.returncode == 0
    assert "36 trials" in done.stdout
    assert (tmp_path / "study" / "results" / "quickstart" / "plan.json").exists()


@pytest.mark.slow
def test_a_report_without_results_says_what_to_run_first(tmp_path):
    bench("init", "study", cwd=tmp_path)
    done = bench("report", "quickstart", cwd=tmp_path / "study")
    assert done.returncode == 2
    assert "bench submit" in done.stderr


@pytest.mark.slow
def test_submit_says_before_it_starts_that_a_declared_question_cannot_be_answered(tmp_path):
    bench("init", "study", cwd=tmp_path)
    (tmp_path / "study" / "asked.yaml").write_text(
        "scenario: asked\nrepetitions: 3\nrestarts: once\ncompare: {family: [ttft_ms]}\n"
        "workload: {service: known, ttft_ms: [1, 2], duration_s: 0.2}\n"
    )
    done = bench("submit", "asked.yaml", "--dry-run", cwd=tmp_path / "study")
    assert done.returncode == 0, done.stderr
    [note] = [line for line in done.stderr.splitlines() if line.startswith("Note: ") and "ttft_ms" in line]
    assert "cannot be answered" in note
