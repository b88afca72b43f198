"""The docs say what is: derived pages are current, commands, links, examples and names in them are real."""

import ast
import re
import shlex
import shutil
import sys
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path

import click
import pytest
from shipped import SERVICES

from seamark.analysis.checks import CHECKS
from seamark.cli.main import cli, verb_summaries
from seamark.config.read import read_scenario, read_site
from seamark.config.scenario import TOP_KEYS
from seamark.config.workload import WORKLOAD_KEYS
from seamark.model.failure_categories import FAILURE_CATEGORIES
from seamark.model.objectives import OBJECTIVES
from seamark.model.scenario import RESOURCE_SETTINGS
from seamark.patterns.table import PATTERNS
from seamark.planning.plan import plan
from seamark.storage import paths

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SRC = ROOT / "src"
PACKAGE = SRC / "seamark"
sys.path.insert(0, str(DOCS))
make = import_module("make")
reference = import_module("reference")
layers = import_module("layers")
IMPORTED_AS = {"pyyaml": "yaml", "nvidia-ml-py": "pynvml", "prometheus-client": "prometheus_client"}

PAGES = sorted([*DOCS.glob("*.md"), *ROOT.glob("*.md")])
WRITTEN = [page for page in PAGES if page.name != "traceability.md"]


@cache
def all_tests() -> str:
    """Return the text of every test of ours."""
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def bench_lines(text: str) -> list[str]:
    """Return every call of bench in code, as it would be typed after `bench`."""
    calls = re.findall(r"(?:^\s*|\$ |&& )(?:\S*/)?bench ([^\n|&>]+)", "\n".join(_code(text)), re.MULTILINE)
    return [call.strip() for call in calls]


def _code(text: str) -> list[str]:
    fenced = re.findall(r"```(?:sh|text|console|bash)?\n(.*?)```", text, re.DOTALL)
    inline = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [*fenced, *inline]


def parse(call: str) -> None:
    """Parse a call of bench without running it; raises for what bench does not have."""
    words = shlex.split(call, comments=True)
    command: click.Command = cli
    context = click.Context(cli, info_name="bench")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        context, command = click.Context(found, info_name=name, parent=context), found
    if words and words != ["--help"] and words != ["--version"] and not isinstance(command, click.Group):
        command.make_context(context.info_name, words, parent=context.parent)


def test_the_derived_pages_are_what_code_and_tests_say_now():
    pages, mistakes = make.derived()
    assert mistakes == []
    assert make.differences(pages) == [], "Run `make docs` and commit what it writes."


def test_the_check_says_what_differs(monkeypatch, capsys):
    monkeypatch.setattr(make, "PAGES", {"docs/cli.md": lambda: text_of("cli.md") + "one more line\n"})
    assert make.main(["--check"]) == 1
    assert "+one more line" in capsys.readouterr().err
    monkeypatch.setattr(make, "PAGES", {"docs/cli.md": lambda: text_of("cli.md")})
    assert make.main(["--check"]) == 0


def test_what_stands_between_marks_is_replaced_and_nothing_else():
    text = "a\n<!-- x: begin (made) -->\nold\n<!-- x: end -->\nb\n"
    assert make.between(text, "x", "new") == "a\n<!-- x: begin (made) -->\n\nnew\n\n<!-- x: end -->\nb\n"
    assert make.between(make.between(text, "x", "new"), "x", "new") == make.between(text, "x", "new")


@pytest.mark.covers("E-FR01")
def test_every_command_has_help_with_an_example_and_stands_in_the_docs():
    page = text_of("cli.md")
    for path, context in reference.commands():
        help_text = context.command.help or ""
        assert f"## {path}\n" in page
        assert "Example" in help_text, path
        assert f"{path.split()[0]} " in help_text, path
    assert {path.split()[1] for path, _ in reference.commands() if path != "bench"} == set(verb_summaries())


def test_every_example_in_the_help_is_a_call_that_bench_understands():
    for _, context in reference.commands():
        for call in re.findall(r"^\s*bench (.+)$|&& bench (.+)$", context.command.help or "", re.MULTILINE):
            for part in call:
                if part:
                    parse(re.split(r" \| | && | >> ", part)[0])


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_every_call_of_bench_in_a_page_is_one_that_bench_understands(page):
    for call in bench_lines(page.read_text(encoding="utf-8")):
        if not re.search(r"\.\.\.|[A-Z]{4,}\]|\|", call):
            parse(re.sub(r"[<\[].*?[>\]]", "x", call))


def test_the_check_of_calls_sees_an_unknown_option_and_an_unknown_command():
    with pytest.raises(click.UsageError):
        parse("status --wach")
    with pytest.raises(Exception, match="no such command"):
        parse("sumbit")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_in_a_page_leads_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor and file.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            known = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
            assert anchor in known, f"{page.name}: {target}"


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_every_file_test_and_target_that_a_page_names_is_there(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for code in _code(page.read_text(encoding="utf-8")):
        for name in re.findall(r"\btest_\w+\b(?!\.py|\*)", code):
            assert f"def {name}(" in all_tests(), f"{page.name}: {name}"
        for path in re.findall(
            r"(?<![\w/])(?:src|docs|tests|config|envs|profiles|workflow|scripts)/[\w./-]+\.\w+", code
        ):
            shown = f"```\n{path}\n```"
            example = any(path in block for block in blocks(page, "yaml")) or "triton_batch" in path
            assert example or any((root / path).exists() for root in (ROOT, SRC, PACKAGE)), f"{page.name}: {shown}"
        for target in re.findall(r"^make ([a-z]+)", code, re.MULTILINE):
            assert target in targets, f"{page.name}: make {target}"


def inline_code(page: Path) -> list[str]:
    """Return the code spans of a page that lie outside its code blocks."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_every_path_of_the_repository_in_a_code_span_exists(page):
    """Paths may be relative to the repository, the package or the page; names without a folder may be anywhere."""
    roots = (ROOT, SRC, PACKAGE, page.parent)
    inside = (path for root in (ROOT, SRC, PACKAGE) for path in root.iterdir() if path.is_dir())
    folders = {path.name for path in inside} - {"results", "reports"}
    examples = "\n".join((*blocks(page, "yaml"), *blocks(page, "python"), *blocks(page, "")))
    for code in inline_code(page):
        if re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", code) and (code.endswith(".py") or code.split("/")[0] in folders):
            named = "/" in code and any((root / code).exists() for root in roots)
            alone = "/" not in code and (code in folders or any((ROOT / "src").rglob(code)))
            assert named or alone or code in examples or "triton_batch" in code, f"{page.name}: {code}"


def places() -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the rows of the table 'Where is what': subject, path, and the names that the path must define."""
    table = text_of("architecture.md").partition("## Where is what")[2].partition("\n## ")[0]
    found = []
    for subject, cell in re.findall(r"^\| (.+?) \| (.+) \|$", table, re.MULTILINE)[2:]:
        for path, names in re.findall(r"`([\w/.]+(?:\.py|/))`((?:[:,] `[\w.]+`)*)", cell):
            found.append((subject, path, tuple(re.findall(r"`([\w.]+)`", names))))
    return found


def test_each_question_of_a_newcomer_leads_to_a_file_and_a_name_that_exist():
    """Requirement of the page: the place of a request, a percentile, a Slurm job, a verdict, a kind of trial."""
    subjects = " ".join(subject for subject, *_ in places())
    for word in ("request is sent", "percentile", "Slurm job", "verdict", "new kind of trial"):
        assert word in subjects
    assert len(places()) >= 15
    for subject, path, names in places():
        place = SRC / path if path.startswith("seamark") else PACKAGE / path
        assert place.exists(), f"{subject}: {path}"
        for name in names:
            assert defines(place, name), f"{subject}: {path} defines no {name}"


def defines(path: Path, name: str) -> bool:
    """Return whether a module defines a function, class, method (`Class.method`) or constant of that name."""
    body: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    for part in name.split("."):
        found = [node for node in body if part in _names(node)]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


def _names(node: ast.stmt) -> list[str]:
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    return [getattr(node, "name", ""), *(target.id for target in targets if isinstance(target, ast.Name))]


def test_a_name_that_a_module_does_not_define_is_noticed():
    judge = PACKAGE / "analysis" / "checks" / "judge.py"
    assert defines(judge, "judge")
    assert defines(judge, "CHECKS")
    assert not defines(judge, "jury")
    assert not defines(judge, "judge.nothing")


@pytest.mark.covers("E-FR02", "E-CFG")
def test_every_example_of_a_scenario_in_the_docs_is_read_and_planned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for named in ("clusters", "methods", "benchmarks"):  # simulated workflows and evaluations name them
        shutil.copytree(ROOT / "config" / named, tmp_path / "config" / named)
    shutil.copytree(ROOT / "pipeline_configs", tmp_path / "pipeline_configs")
    shutil.copy(ROOT / "tests" / "simulation" / "srasearch_of_wfcommons.json", tmp_path / "blast.json")
    pages = [page for page in PAGES if page.name != "extending.md"]  # e2e/test_extending.py runs its whole study
    examples = [block for page in pages for block in blocks(page, "yaml") if re.search("^scenario:", block, re.M)]
    examples = [block for block in examples if "service: mine" not in block]  # e2e/test_compared_runs.py runs it
    for block in examples:
        found = re.search(r"^scenario: (\S+)", block, re.MULTILINE)
        assert found is not None
        path = tmp_path / f"{found[1]}.yaml"
        path.write_text(block)
        scenario = read_scenario(path, SERVICES)
        site = read_site(ROOT / "config" / "sites" / f"{scenario.site or 'local'}.yaml")
        assert plan(scenario, SERVICES, site).trials
    assert len(examples) >= 6


def test_the_first_example_plans_what_the_text_says(tmp_path):
    path = tmp_path / "triton_batch.yaml"
    path.write_text(blocks(DOCS / "scenario.md", "yaml")[0])
    made = plan(read_scenario(path, SERVICES), SERVICES, read_site(ROOT / "config" / "sites" / "local.yaml"))
    assert (len(made.trials), len(made.deployments)) == (24, 1)
    assert len({trial.treatment for trial in made.trials}) == 6


def test_every_key_of_a_scenario_stands_in_its_page():
    page = text_of("scenario.md")
    resources = [setting.name for setting in RESOURCE_SETTINGS]
    for key in (*TOP_KEYS, *WORKLOAD_KEYS, *resources, "container", "dataset", "seed", "git_commit", "notes"):
        assert f"`{key}`" in page, key
    for pattern in PATTERNS:
        assert f"`{pattern}`" in page or f"pattern: {pattern}" in page, pattern
    for objective in (name for name in OBJECTIVES if not re.search(r"_(p\d+|mean|max)_s$", name)):
        assert f"`{objective}`" in page, objective


def test_every_pattern_category_and_code_stands_in_the_page_on_measurement():
    page = text_of("measurement.md")
    codes = [code for code, *_ in reference.reasons()]
    assert len(codes) >= len(CHECKS) - 1
    for name in (*PATTERNS, *FAILURE_CATEGORIES, *codes):
        assert f"`{name}`" in page, name


def test_every_file_of_a_trial_a_deployment_and_a_scenario_stands_in_the_flow_of_data():
    page = text_of("architecture.md")
    for form in (paths.TrialFolder, paths.DeploymentFolder, paths.ScenarioFolder):
        folder = form(root=Path("x"))
        names = [name for name, value in vars(form).items() if isinstance(value, paths.Entry)]
        assert names
        for name in names:
            assert f"`{getattr(folder, name).name}`" in page, f"{form.__name__}.{name}"


def test_every_dependency_has_its_reason():
    page = text_of("dependencies.md")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    for path in (ROOT / "envs").glob("*.in"):
        lines = path.read_text(encoding="utf-8").partition("# What these import:")[0].splitlines()
        wanted += [line for line in lines if line.strip() and not line.startswith(("#", "-"))]
    for line in wanted:
        name = re.split(r"[\s<>=~!;\[]", line.strip())[0]
        assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", page), name


@pytest.mark.slow
def test_every_dependency_of_the_base_environment_is_imported():
    imported = {name.split(".")[0] for path in SRC.glob("seamark*/**/*.py") for _, name in layers.imports(path)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for line in project["dependencies"]:
        name = re.split(r"[<>=~!;\[]", line)[0]
        if not name.startswith("snakemake") and name != "pygments":  # Snakemake itself needs that one
            assert IMPORTED_AS.get(name, name) in imported, name


def test_the_docs_stand_alone_and_name_no_machine_of_ours():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"(?<![\w.$])/(work|root)/|shared/(?!lib)|design\.md|measurement rules of", text), (
            page.name
        )
