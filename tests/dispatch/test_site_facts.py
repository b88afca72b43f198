"""What Slurm's own tables mean, for the oddities of real ones."""

from pathlib import Path

import pytest

from seamark.config.read import read_site
from seamark.dispatch.slurm.site_facts import Output, seconds, site_facts, site_text

ODD = Output(
    partitions="\n".join(
        [
            "gpu|200|128|491520|gpu:a100:4(S:0-3)|2-00:00:00|EXCLUSIVE|up",
            "mixed|2|64|257000|gpu:v100:2,gpu:h100:4|infinite|NO|up",
            "quiet|4|64|257000|(null)|1:00|NO|up",
            "cpu|500|256|491520|(null)|1:00|NO|up",
            "cpu|20|256|4000000|(null)|1:00|NO|up",
            "broken|3|8|1000|(null)|1:00|NO|down",
        ]
    ),
    rules="PartitionName=quiet AllowGroups=ALL ExclusiveUser=YES Nodes=q1\nPartitionName=cpu ExclusiveUser=NO\n",
    config="ClusterName             = odd\nSelectType = select/cons_tres\n",
    qos="normal|||\nshort|06:00:00|3|1\nsecret|1-00:00:00|1|1\n",
    associations="p1|normal,short|short|50\np2|short||\n",
    module_init=Path("/usr/share/lmod/lmod/init/bash"),
    modules="/apps/modules:\nApptainer/1.2.4-GCCcore-12.3.0\nApptainer/1.3.6-GCCcore-13.3.0\n",
)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2-00:00:00", 172800),
        ("12:00:00", 43200),
        ("30:00", 1800),
        ("90", 5400),
        ("1-06", 108000),
        ("infinite", None),
        ("", None),
    ],
)
def test_a_time_limit_is_read_as_slurm_writes_it(text: str, meant: int | None) -> None:
    assert seconds(text) == meant


@pytest.mark.covers("E-MR01", "E-MLX01", "E-MLX02")
def test_a_site_is_written_with_what_its_user_may_ask_for(tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(site_text("odd", site_facts(ODD), "2025-01-01"))
    site = read_site(path)
    assert list(site.partitions) == ["gpu", "mixed", "quiet", "cpu"]
    gpu, mixed, _, cpu = site.partitions.values()
    assert (gpu.nodes, gpu.cpus, gpu.mem_gb, gpu.gpus, gpu.gres, gpu.time_limit_s) == (
        200,
        128,
        480,
        4,
        "gpu",
        172800,
    )
    assert (mixed.gpus, mixed.gres, mixed.time_limit_s) == (4, "gpu:h100", None)
    assert (cpu.nodes, cpu.mem_gb, cpu.time_limit_s) == (520, 480, 60)
    assert (site.qos, site.max_submit, site.qos_max_submit) == ({"normal": None, "short": 21600}, 50, {"short": 3})
    assert (site.runtime, site.modules) == ("apptainer", ("Apptainer/1.3.6-GCCcore-13.3.0",))
    assert site.module_init == "/usr/share/lmod/lmod/init/bash"
    assert site.needs == ("partition", "account")
    assert site.whole_nodes
    text = path.read_text()
    assert "whole nodes in gpu, quiet:" in text
    assert "In quiet jobs of your own may share one" in text
    assert "Your accounts: p1, p2." in text
    assert "has nodes of other kinds too" in next(line for line in text.splitlines() if line.startswith("  cpu"))
