"""The report's table of resources has a row a trial: processors, memory, GPUs, disks, network and energy."""

import pytest
from make_results import make_results

from seamark.report.source import read_results
from seamark.report.tables.resources import resources_section
from seamark.storage.documents import read_json, write_json
from seamark.storage.paths import ScenarioFolder

SEEN = {"cpu_util": 0.25, "server_rss_mb": 120.0, "gpu_util": 0.5, "gpu_mem_mb": 900.0, "disk_read_mb_per_s": 3.5}


@pytest.mark.covers("E0", "E2", "E-FR09")
def test_each_trial_has_its_cpu_memory_gpu_io_and_energy_and_none_that_nobody_saw(tmp_path):
    results = make_results(tmp_path / "results", telemetry=False)
    trials = [trial["id"] for trial in read_json(results / "plan.json")["trials"]]
    for trial in trials:
        path = ScenarioFolder(root=results).trial(trial).metrics
        seen = {"resource": SEEN, "energy": {"value_j": 42.0, "scope": "gpu"}} if trial == trials[0] else {}
        write_json(path, read_json(path) | {"resource": {}, "energy": None} | seen)
    section = resources_section(read_results(results))
    [table] = section.blocks
    shown = {column.name: (column.cells, column.unit) for column in table.columns}
    at = [row.id for row in (view.trial for view in read_results(results).trials if view.metrics)].index(trials[0])
    wanted = {"CPU": (25, "%"), "memory, server": (120, "MB"), "GPU": (50, "%"), "GPU memory": (900, "MB")}
    wanted |= {"disk reads": (3.5, "MB/s"), "energy": (42, "J")}
    assert {name: (float(shown[name][0][at].text), shown[name][1]) for name in wanted} == wanted
    assert shown["energy of"][0][at].text == "gpu"
    assert set(shown) == {"trial", *wanted, "energy of"}
    assert {cells[at - 1].kind for name, (cells, _) in shown.items() if name != "trial"} == {"absent"}


def test_without_any_figure_there_is_no_table(tmp_path):
    results = make_results(tmp_path / "results", telemetry=False)
    for trial in read_json(results / "plan.json")["trials"]:
        path = ScenarioFolder(root=results).trial(trial["id"]).metrics
        write_json(path, read_json(path) | {"resource": {}, "energy": None})
    assert resources_section(read_results(results)) is None
