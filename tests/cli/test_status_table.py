"""The table of `bench status` in a terminal of 80 columns."""

import json
from pathlib import Path

import in_process
import yaml

WORKLOAD = {
    "component": "null",
    "service": "null",
    "duration_s": 1,
    "reply_bytes": [1048576, 2097152],
    "delay_ms": [0.125, 0.25, 0.5],
    "stall_from_s": 12.5,
    "stall_for_s": 7.25,
}


def test_rows_of_alike_deployments_are_told_apart(tmp_path: Path) -> None:
    study = tmp_path / "study"
    assert in_process.run(["init", str(study)])[0] == 0
    path = study / "config" / "scenarios" / "try.yaml"
    path.write_text(yaml.safe_dump({"scenario": "try", "workload": WORKLOAD}))
    words = ["status", "-c", "config/scenarios/try.yaml"]
    names = json.loads(in_process.bench(*words, "--json", cwd=study).stdout)["deployments"]
    assert len(names) == 6
    assert all(len(name) > 40 for name in names)
    shown = in_process.bench(*words, cwd=study, COLUMNS="80").stdout
    assert "…" not in shown
    column = "".join(line.split("│")[1].strip() for line in shown.splitlines() if line.count("│") == 7)
    for name in names:
        assert name in column
