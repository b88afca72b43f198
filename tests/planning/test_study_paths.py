"""Paths that a tool of a run would misread are refused before anything runs, each with the letter that is wrong."""

import json
from pathlib import Path

import pytest
from study_folder import StudyFolder

from seamark.errors import UserError
from seamark.planning.study import Study
from seamark.planning.study_paths import missing_here, require_paths

ROOT = Path(__file__).parents[2]
ODD = ("it's", "a b", "{x}", "a:b", "a#b", "a*b", "a[b]", "a?b", "ünï", "$HOME", "x'; touch P; echo '", "`touch P`")


def study_in(root: Path, **site: object) -> Study:
    """Return a study in `root` whose site `mine` says that."""
    (root / "config/sites").mkdir(parents=True)
    text = json.dumps({"name": "mine", "summary": "a test's", **site})
    (root / "config/sites/mine.yaml").write_text(text)
    (root / "try.yaml").write_text("scenario: try\nworkload: {component: 'null', service: 'null'}\n")
    return Study.at(root, scenario="try.yaml", site="mine")


@pytest.mark.parametrize("name", ODD)
def test_a_study_may_lie_in_any_folder_where_there_is_neither_batch_system_nor_container(
    tmp_path: Path, name: str
) -> None:
    require_paths(study_in(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "site", "says"),
    [
        ("a\nb", {}, r"the study's folder, '.*a\\nb', cannot be used: it contains '\\n'; programs of servers"),
        (
            "it's",
            {"profile": "slurm"},
            "the study's folder, .*/it's', cannot be used: it contains '''; the shell lines",
        ),
        ("$(x)", {"profile": "slurm"}, r"it contains '\$'; the shell lines of batch jobs"),
        ("a`x`", {"images": {"jobs": True}}, "it contains '`'; the shell lines of batch jobs and containers"),
        ("a:b", {"runtime": "apptainer"}, "it contains ':'; Apptainer separates binds there. Choose another name."),
        ("a,b", {"runtime": "apptainer"}, "it contains ','; Apptainer separates"),
        (
            "a",
            {"paths": {"results": "re{x}"}},
            "paths.results of site 'mine', 're{x}', .* it contains '{'; Snakemake",
        ),
        ("a", {"paths": {"scratch": "/s,x"}, "runtime": "apptainer"}, "paths.scratch of site 'mine'"),
    ],
)
def test_a_path_that_a_tool_misreads_is_refused(
    tmp_path: Path, name: str, site: dict[str, object], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        require_paths(study_in(tmp_path / name, **site))


def test_a_variable_that_is_not_set_here_is_no_letter_of_a_path(tmp_path: Path) -> None:
    require_paths(study_in(tmp_path, profile="slurm", paths={"scratch": "$NO_SUCH_SCRATCH/x"}))


@pytest.mark.slow
def test_plan_and_submit_refuse_a_folder_with_a_line_break_before_anything_runs(tmp_path: Path) -> None:
    study = StudyFolder.new(tmp_path / "a\nb")
    for verb in ("plan", "submit", "start"):
        done = study.bench(verb, "-c", "config/scenarios/try.yaml", code=2)
        assert "a\\nb', cannot be used" in done.stderr
    assert not study.results.exists()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("[no-such-program]", "no program 'no-such-program'"),
        ("[./run.sh]", "looked for in an empty folder"),
        ("[/bin/sh, -c, 'true']", None),
        ("['{data}/made', x]", None),
    ],
)
def test_a_program_that_is_not_here_is_found_before_the_run(tmp_path: Path, argv: str, says: str | None) -> None:
    (tmp_path / "try.yaml").write_text(
        f"scenario: try\nworkload:\n  service: command\n  limit_s: 5\n  command: {{name: a, argv: {argv}}}\n"
    )
    found = missing_here(Study.at(tmp_path, scenario="try.yaml"))
    assert [(each.line, each.code) for each in found] == ([] if says is None else [(5, "missing")])
    assert all(says is not None and says in each.text for each in found)
