"""The rows of the original benchmark, of a trial made by hand: requirements.md, 2A."""

import json
from pathlib import Path

import pytest
from samples import a_load, a_trial, samples_of, write_samples

from seamark.load.workers.events import EventFile
from seamark.load.workers.segments import gather_events
from seamark.model.sample import EventKind
from seamark.storage.codec import encode
from seamark.storage.paths import TrialFolder
from seamark_pipelines.cli.export import write_rows
from seamark_pipelines.config.read import read_pipelines
from seamark_pipelines.drivers.pipeline import name_of

FILE = """\
pipelines:
  - name: Fine tuning
    inputs: [0]
    outputs: [2]
    loadgen: {}
    stages:
      - {name: "Loader (e.g., text)", id: 0, outputs: [1], component: stages.Stage, timed: false}
      - {name: Silent, id: 1, outputs: [2], component: stages.Stage, disable_logs: true, timed: false}
      - {name: End, id: 2, component: stages.Stage}
"""
EPOCH_S = 1_760_000_000
EXPECTED = """\
1760000000.000000, Fine tuning, pipeline, prepare, start
1760000000.100000, Fine tuning, "Loader (e.g., text)", prepare, start
1760000000.200000, Fine tuning, "Loader (e.g., text)", prepare, end
1760000000.500000, Fine tuning, pipeline, prepare, end
1760000001.250000, Fine tuning, pipeline - train, run, start, 0, 1760000001.000000, 1, 1
1760000001.300000, Fine tuning, "Loader (e.g., text)", run, start
1760000001.400000, Fine tuning, "Loader (e.g., text)", run, end
1760000001.500000, Fine tuning, pipeline - train, run, end, 0, 1760000001.000000, 1, 1
1760000002.250000, Fine tuning, pipeline - val, run, start, 1, 1760000002.000000, 1, 1
1760000002.500000, Fine tuning, pipeline - val, run, end, 1, 1760000002.000000, 1, 1
1760000003.250000, Fine tuning, pipeline - train, run, start, 2, 1760000003.000000, 2, 1
1760000003.500000, Fine tuning, pipeline - train, run, end, 2, 1760000003.000000, 2, 1
"""


@pytest.mark.covers("A7", "A9")
def test_rows_are_those_of_the_original_and_a_stage_with_disable_logs_has_none(tmp_path: Path) -> None:
    graph = tmp_path / "own.yml"
    graph.write_text(FILE)
    [model] = read_pipelines(graph).pipelines
    names = [name_of(stage) for stage in model.stages]
    assert names == ["loader_e_g_text (untimed)", "silent (no events)", "end"]
    folder = TrialFolder(root=tmp_path)
    folder.load.write_text(json.dumps(encode(a_load(epoch_unix_ns=EPOCH_S * 10**9))))
    steps = [("pipeline built", 0.0, {}), ("prepared", 0.5, {"splits": {"train": 1, "val": 1}})]
    for name, at_s in ("Loader (e.g., text)", 0.1), ("Silent", 0.3):
        steps += [("stage preparing", at_s, {"stage": name}), ("stage prepared", at_s + 0.1, {"stage": name})]
    lines = []
    for event, at_s, facts in steps:
        at = f"2025-10-09T08:53:{20 + at_s:09.6f}+00:00"
        lines.append(json.dumps({"at": at, "event": event, **facts}))
    folder.log.write_text("\n".join(lines) + "\n")
    write_samples(folder.samples, samples_of([1.0, 2.0, 3.0], [1.25, 2.25, 3.25], [1.5, 2.5, 3.5]))
    path = tmp_path / "segment"
    with EventFile(path, worker=0) as file:
        file.started(lambda: 0)()
        file.track().add(0, 0, EventKind.RUN, 1_300_000_000, 1_400_000_000)
        file.flush()
    gather_events([path], folder.events, names)
    write_rows(a_trial({"graph": str(graph)}), folder, tmp_path / "rows.csv", perf=False)
    assert (tmp_path / "rows.csv").read_text() == EXPECTED
    write_rows(a_trial({"graph": str(graph)}), folder, tmp_path / "perf.csv", perf=True)
    perf = (tmp_path / "perf.csv").read_text().splitlines()
    assert [row.rpartition(", ")[0] for row in perf] == EXPECTED.splitlines()
    assert perf[4].endswith(", 1, 1, 1250000000")
