"""Every kind of wrong scenario: each mistake a line with file, line number, what is allowed and the remedy."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from shipped import SCENARIOS
from shipped import SERVICES as SHIPPED

from seamark.config.read import read_scenario, read_site
from seamark.errors import UserError
from seamark.model.service import Server, Setting
from seamark.planning.plan import plan

ROOT = Path(__file__).parents[2]
ITEMS = Setting(name="items", type="int", role="workload", default=500, minimum=1, help="Number of items.")
SERVICES = {
    **SHIPPED,
    "items": replace(SHIPPED["null"], name="items", load="finite", settings=(ITEMS,)),
    "on_gpus": replace(SHIPPED["null"], name="on_gpus", server=Server(command=("x",), fewest_gpus=2)),
    "imitated": replace(SHIPPED["null"], name="imitated", origin="simulated"),
}
SITES = {name: read_site(ROOT / "config" / "sites" / f"{name}.yaml") for name in ("local", "meluxina")}
SITES["external"] = replace(SITES["local"], name="external", runtime="external")

BASELINE = (ROOT / "config" / "scenarios" / "llm_vllm_baseline.yaml").read_text(encoding="utf-8")
FILES = """\
scenario: files
workload:
  service: fileio
  concurrency: [1, 4]
"""
FINITE = """\
scenario: finite
workload:
  service: items
  concurrency: [1, 4]
"""
PARTIES = """\
scenario: co
workload:
  duration_s: 1
  parties:
    search: {service: known, pattern: poisson, rate_rps: 20}
    ingest: {service: 'null', concurrency: 2}
"""


def changed(text: str, old: str, new: str) -> str:
    """Return the text with one part replaced; the part must be there."""
    assert text.count(old) == 1, f"{old!r} is not once in the text"
    return text.replace(old, new)


def text_of(entry: dict[str, Any]) -> str:
    """Return the wrong scenario of an entry."""
    if "text" in entry:
        return entry["text"]
    base = {"baseline": BASELINE, "files": FILES, "finite": FINITE, "parties": PARTIES}[entry["base"]]
    if "add" in entry:
        return base + entry["add"].replace("LEVELS", ", ".join(str(level) for level in range(512, 1712)))
    return changed(base, entry["old"], entry["new"])


WRONG: dict[str, dict[str, Any]] = {
    entry["name"]: entry for entry in yaml.safe_load((Path(__file__).parent / "wrong_scenarios.yaml").read_text())
}


def mistakes_of(path: Path, site: str) -> tuple[str, ...]:
    """Return the lines of the UserError that reading and planning raise; fail when there is none."""
    with pytest.raises(UserError) as caught:
        plan(read_scenario(path, SERVICES, SITES[site]), SERVICES, SITES[site])
    assert caught.value.exit_code == 2
    return caught.value.lines


@pytest.mark.covers("E-VAL", "E-CFG", "E-AC02", "E-MR01", "E-MR02", "E-INT01")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_scenario_is_one_line_that_says_where_and_what(name: str, tmp_path: Path, monkeypatch) -> None:
    entry = WRONG[name]
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "scenario.yaml"
    path.write_text(text_of(entry), encoding="utf-8")
    mistakes = mistakes_of(path, entry.get("site", "local"))
    assert len(mistakes) == 1, mistakes
    assert "\n" not in mistakes[0]
    assert mistakes[0].startswith(f"scenario.yaml:{entry['line']}:")
    assert entry["says"] in mistakes[0]
    assert [file.name for file in tmp_path.iterdir()] == ["scenario.yaml"], "something was written"


def test_there_are_at_least_forty_wrong_scenarios() -> None:
    assert len(WRONG) >= 40


WORDS = (
    *("null", "[]", "{}", "true", "-1", "1.5", "1e3", ".nan", "'x'", "[1, [2]]", "{a: 1}", "&", "*", "|", "?", "-"),
    *("\t", "\0", "é", "0x1F", "1_0", "=", "<<", "~", "%", "@", "`"),
)


def damaged(text: str, draw: random.Random) -> str:
    """Return the text with one line replaced, broken, repeated or moved."""
    lines = text.split("\n")
    at, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    key, colon, _ = lines[at].partition(":")
    place = draw.randrange(len(lines[at]) + 1)
    lines[at] = draw.choice(
        [
            f"{key}{colon} {draw.choice(WORDS)}",
            lines[at][:place] + draw.choice(WORDS) + lines[at][place:],
            lines[other],
            f"{lines[at]}\n{lines[other]}",
            " " * draw.randrange(5) + lines[at].strip(),
        ]
    )
    return "\n".join(lines)


def outcome(path: Path) -> tuple[str, ...]:
    """Return the mistakes of a scenario; none when it plans."""
    try:
        plan(read_scenario(path, SERVICES, SITES["meluxina"]), SERVICES, SITES["meluxina"])
    except UserError as error:
        return error.lines or ("a UserError without a mistake\n",)
    return ()


@pytest.mark.slow
@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_done_to_a_scenario_it_plans_or_says_what_is_wrong(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    right = [path.read_text(encoding="utf-8") for path in SCENARIOS]
    for _ in range(100):
        text = draw.choice(right)
        for _ in range(draw.randrange(1, 4)):
            text = damaged(text, draw)
        (tmp_path / "scenario.yaml").write_text(text, encoding="utf-8")
        assert all(line.isprintable() for line in outcome(tmp_path / "scenario.yaml")), text
