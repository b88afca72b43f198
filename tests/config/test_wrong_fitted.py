"""Wrong scenarios of the service `fitted`: each mistake is a line with place and remedy."""

from pathlib import Path

import pytest
from shipped import SERVICES
from wrong_files import change, wrong_files

from seamark.config.read import read_scenario, read_site
from seamark.errors import UserError

ROOT = Path(__file__).parents[2]
SITE = read_site(ROOT / "config" / "sites" / "local.yaml")
SCENARIO = """\
scenario: simulated
repetitions: 1
workload:
  service: fitted
  model_file: models.yaml
  model: llm
  replicas: 2
  rate_rps: 20
  prompt_tokens: 512
  reply_tokens: 64
"""
WRONG = wrong_files(Path(__file__).with_name("wrong_fitted.yaml"))


@pytest.mark.covers("C1", "E-VAL")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_workload_is_a_line_that_says_where_and_what(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {"scenario.yaml": SCENARIO, "models.yaml": (ROOT / "config/models/example.yaml").read_text("utf-8")}
    entry = WRONG[name]
    for file, text in files.items():
        Path(file).write_text(text, encoding="utf-8")
    change(f"{entry.get('in', 'scenario')}.yaml", entry["old"], entry["new"])
    with pytest.raises(UserError) as caught:
        read_scenario(Path("scenario.yaml"), SERVICES, SITE)
    assert caught.value.exit_code == 2
    line, *more = caught.value.lines
    assert not more or entry.get("several"), more
    assert f"{entry.get('place', 'scenario.yaml')}:{entry['line']}:" in line, line
    assert entry["says"] in line


def test_combinations_that_where_and_exclude_rule_out_are_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("models.yaml").write_text((ROOT / "config/models/example.yaml").read_text("utf-8"), encoding="utf-8")
    both = SCENARIO.replace("prompt_tokens: 512", "prompt_tokens: [512, 50000]")
    both = both.replace("replicas: 2", "kv_blocks: [2000, 4000]\n  duration_s: [5, 8]")
    for text in (
        "  where: prompt_tokens < kv_blocks\n",
        "  where: [prompt_tokens < 10000 or duration_s > 6, duration_s < 7]\n",
        "  exclude: [{prompt_tokens: 50000, duration_s: 5}, {prompt_tokens: 50000, duration_s: 8}]\n",
    ):
        Path("scenario.yaml").write_text(both + text, encoding="utf-8")
        read_scenario(Path("scenario.yaml"), SERVICES, SITE)
    for text in (
        "",
        "  where: prompt_tokens < kv_blocks or duration_s > 6\n",
        "  exclude: [{prompt_tokens: 50000, kv_blocks: 4000}]\n",
    ):
        Path("scenario.yaml").write_text(both + text, encoding="utf-8")
        with pytest.raises(UserError, match="does not fit alone into"):
            read_scenario(Path("scenario.yaml"), SERVICES, SITE)
