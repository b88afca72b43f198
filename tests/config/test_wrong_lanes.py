"""Every kind of wrong lanes, in a site and as options: one line with place, what is allowed and the remedy."""

from pathlib import Path
from typing import Any

import in_process
import pytest
import yaml

from seamark.config.read import read_site
from seamark.errors import UserError

SITE = """\
schema_version: 1
name: mine
summary: a machine
telemetry_interval_s: 0.5
"""
SCENARIO = """\
scenario: wrong
workload: {service: "null", concurrency: 1, delay_ms: [0, 1]}
"""
WRONG: dict[str, dict[str, Any]] = {
    entry["name"]: entry for entry in yaml.safe_load((Path(__file__).parent / "wrong_lanes.yaml").read_text())
}


@pytest.mark.covers("E-VAL", "B8")
@pytest.mark.parametrize("name", [name for name, entry in WRONG.items() if "add" in entry])
def test_wrong_lanes_of_a_site_are_one_line_that_says_where_and_what(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = WRONG[name]
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.yaml"
    path.write_text(SITE + entry["add"], encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_site(path)
    assert caught.value.exit_code == 2
    [line] = caught.value.lines
    assert line.startswith(f"mine.yaml:{entry['line']}:")
    assert entry["says"] in line


@pytest.mark.covers("E-VAL", "B3", "B8")
@pytest.mark.parametrize("name", [name for name, entry in WRONG.items() if "options" in entry])
def test_wrong_lanes_on_the_command_line_are_refused_before_anything_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = WRONG[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    Path("wrong.yaml").write_text(SCENARIO, encoding="utf-8")
    said = in_process.said_by(["submit", "-c", "wrong.yaml", *entry["options"]], code=2)
    [line] = said.strip().splitlines()
    assert entry["says"] in line
    assert [file.name for file in tmp_path.iterdir()] == ["wrong.yaml"], "something was written"


def test_a_site_with_right_lanes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    lines = "parallel: 4\ndevices: {gpu: [0, 1], per_device: 2}\norder: unroll(model)\n"
    path.write_text(SITE + lines, encoding="utf-8")
    site = read_site(path)
    assert site.devices is not None
    assert (site.parallel, site.devices.gpu, site.devices.per_device, site.order) == (4, (0, 1), 2, "unroll(model)")
