"""From `bench submit` to a verdict: the first sentence of the report and `bench compare` say the same."""

import json
import re
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to-compare.md"
BLOCK = re.compile(r"^```yaml\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SERVE = """\
#!{python}
import sys
from seamark.testservers.null import main
sys.exit(main([*sys.argv[1:], "--delay-ms={delay_ms}"]))
"""


@pytest.mark.e2e
@pytest.mark.covers("E-FR29", "E-FR27")
def test_a_run_is_compared_by_command_and_report_and_records_its_start_of_the_server(finished):
    study = finished
    study.write(repetitions=2, compare={"metrics": ["throughput"], "margin": 0.1})
    done = study.submit(code=0)
    starts = {json.loads(path.read_text())["server_start"] for path in study.results.glob("*--r*/load.json")}
    assert len(starts) == 1
    assert " at 20" in starts.pop()
    shown = study.ask("compare", "try", code=0)
    assert shown.stdout.startswith("concurrency 2 against 1: throughput ")
    assert "too few" in shown.stdout
    assert study.ask("compare", "config/scenarios/try.yaml", "--fail-on", "inconclusive").returncode == 1
    [one] = json.loads(study.ask("compare", "results/try", "--format", "json").stdout)["comparisons"]
    [summed] = study.json("summary.json")["comparisons"]["comparisons"]
    assert summed == one
    page = (study.root / "reports" / "try" / "report.md").read_text()
    assert page.split("\n> ", 1)[1].startswith("No difference can be shown")
    assert page.split("\n> ", 1)[1].split("\n")[0] in done.stdout
    assert "## Comparisons" in page
    assert (study.root / "reports" / "try" / "figures" / "comparisons.png").stat().st_size > 1000


@pytest.mark.sweep
@pytest.mark.e2e
@pytest.mark.covers("E-FR29")
def test_two_versions_of_a_service_are_levels_with_starts_of_their_own(study, tmp_path):
    """The example of docs/how-to-compare.md, where the branch is three times as slow."""
    for name, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        (study.root / name).write_text(text.replace("/opt/mine", str(tmp_path / "mine")), encoding="utf-8")
    for version, delay_ms in (("main", 2), ("branch", 6)):
        serve = tmp_path / "mine" / version / "serve"
        serve.parent.mkdir(parents=True)
        serve.write_text(SERVE.format(python=sys.executable, delay_ms=delay_ms))
        serve.chmod(0o755)
    study.bench("submit", "-c", "config/scenarios/versions.yaml", code=0)
    shown = study.ask("compare", "versions", "--format", "json", "--fail-on", "worse", code=1)
    compared = [each for each in json.loads(shown.stdout)["comparisons"] if each["verdict"]]
    assert [(each["factor"], each["verdict"], each["unit_of_inference"]) for each in compared] == [
        ("version", "worse", "start")
    ]
    [one] = compared
    assert one["base"]["level"].endswith("/main")
    assert one["pairs"] == 6, "starts of one block are pairs"
    assert 0.15 < one["ratio"]["value"] < 0.6
