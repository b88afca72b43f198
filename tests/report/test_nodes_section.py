"""The nodes of a report: what each says of itself, how busy it was, and what its trials cannot be compared for."""

import json
from dataclasses import replace

import pytest
from made_node import make_node
from make_results import SERVICES, make_results

from seamark.model.results.summary import EnergySummary, Spread
from seamark.report.page.provenance import deployments_table, nodes_section
from seamark.report.page.sections import about, verdicts_section
from seamark.report.source import read_results
from seamark.report.tables.by_treatment import energy_table
from seamark.storage.codec import encode
from seamark.telemetry.provenance.machine import machine

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A small study whose last trial ran on two nodes, one of them with GPUs, the others on one of an older form."""
    root = tmp_path_factory.mktemp("nodes")
    folder = make_results(root / "results", services=SERVICES[:1], fail=(), suspect=())
    seen = encode(machine(root=make_node(root / "tree")))
    gpus = {"driver": "535.1", "cuda": "12.2", "devices": [{"name": "A100", "power_cap_w": 400.0}] * 4}
    calm, busy = ({"load_average": [x, 0.1], "others": {"processes": n}} for x, n in ((0.5, 0), (7.25, 3)))
    nodes = {
        "mel2041": {"machine": seen, "before": calm, "after": busy},
        "mel2042": {"machine": {**seen, "gpu": gpus}, "before": calm, "after": None},
    }
    last = sorted(folder.glob("*--r*/meta.json"))[-1]
    last.write_text(json.dumps({"node": "mel2041", "nodes": nodes}))
    return folder


def rows(results):
    section = nodes_section(read_results(results))
    assert section is not None
    table = section.blocks[1]
    heads = [column.name for column in table.columns]
    return {row[0].text: dict(zip(heads, row, strict=True)) for row in table.rows}


@pytest.mark.covers("E-FR27", "E-FR08")
def test_each_node_has_a_row_with_what_it_says_of_itself(results):
    node = rows(results)["mel2041"]
    assert node["trials"].text == "1"
    assert node["CPU"].text == "AMD EPYC 7H12 64-Core Processor, 2 cores, SMT on"
    assert node["clock"].text == "performance, up to 2.6 GHz, turbo off"
    assert node["InfiniBand"].text == "mlx5_0 200 Gb/sec (4X HDR) ACTIVE"
    assert node["load"].text == "7.25", "the busiest moment"
    assert node["others"].text == "3"
    assert node["GPUs"].kind == "absent"
    assert rows(results)["mel2042"]["GPUs"].text == "4 × A100 at 400 W; driver 535.1, CUDA 12.2"


def test_a_node_of_an_older_record_shows_what_is_there(results):
    old = next(row for name, row in rows(results).items() if not name.startswith("mel"))
    assert old["CPU"].text.startswith("A Processor of Some Kind")
    assert old["clock"].kind == "absent"


def test_a_reason_against_a_comparison_stands_among_the_verdicts(results):
    summary = json.loads((results / "summary.json").read_text())
    reason = {
        "code": "nodes_differ",
        "severity": "suspect",
        "text": "kernel: a (n1), b (n2)",
        "remedy": "Ask",
        "count": 1,
    }
    summary["treatments"][0]["reasons"].append(reason)
    (results / "summary.json").write_text(json.dumps(summary))
    table = verdicts_section(read_results(results)).blocks[1]
    [row] = [row for row in table.rows if row[1].text == "nodes_differ"]
    assert row[3].text == "kernel: a (n1), b (n2)"
    assert row[0].text == "SUSPECT"


@pytest.mark.covers("E-FR27")
def test_energy_has_a_table_where_some_is_known_and_none_otherwise(results):
    treatments = read_results(results).treatments
    assert energy_table(treatments) is None
    spread = Spread(median=1.5, min=1.0, max=2.0)
    energy = EnergySummary(scope="gpu", per_unit_j=spread, power_w=Spread(median=350.0))
    table = energy_table([replace(treatments[0], energy=energy), *treatments[1:]])
    assert table is not None
    assert [column.unit for column in table.columns if column.name == "energy"] == ["J/unit", "W"]
    assert [cell.text for cell in table.rows[0][-3:]] == ["1.50", "350", "gpu"]
    assert {cell.kind for cell in table.rows[1][-3:]} == {"absent"}
    assert table.footnotes == ("gpu: the deployment's GPUs.",)


def test_a_run_of_several_jobs_names_all_nodes_and_jobs(tmp_path):
    folder = make_results(tmp_path / "results", services=SERVICES[:2], fail=(), suspect=())
    for job, path in enumerate(sorted(folder.glob("deployments/*/deployment.json")), start=9):
        record = json.loads(path.read_text())
        path.write_text(json.dumps(record | {"node": f"mel20{job}", "slurm_job_id": str(job)}))
    results = read_results(folder)
    facts = dict(about(results).pairs)
    jobs = facts["Batch job"].split(", ")
    assert jobs[:2] == ["9", "10"]
    assert facts["Host"].split(", ") == sorted(f"mel20{job}" for job in jobs)
    assert [[cell.text for cell in row[-2:]] for row in deployments_table(results).rows] == [
        [f"mel20{job}", job] for job in jobs
    ]
