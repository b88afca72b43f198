"""Which stage a treatment waits for, by how busy its threads are and by the critical path."""

from dataclasses import replace

import pytest

from seamark.model.results.stages import StageFigures, Stages
from seamark.report.page.stages import bottleneck_text


def stages(**of: tuple[float, float]) -> Stages:
    """Return stages with a busy ratio and a share of the critical path each."""
    by_stage = {
        name: StageFigures(visits=9, threads=1, busy_ratio=busy, critical_ratio=critical)
        for name, (busy, critical) in of.items()
    }
    return Stages(events=9, requests=9, outside_ratio=0.0, by_stage=by_stage, examples=())


@pytest.mark.covers("A1")
@pytest.mark.parametrize(
    ("found", "is_open", "name"),
    [
        (stages(load=(0.2, 0.9), train=(0.97, 0.1)), False, "train"),
        (stages(load=(0.2, 0.9), train=(0.8, 0.1)), False, "load"),
        (stages(load=(0.2, 0.9), train=(0.8, 0.1)), True, "load"),
        (stages(load=(0.2, 0.9), train=(0.6, 0.1)), True, "none"),
    ],
)
def test_the_bottleneck_is_the_busiest_stage_or_the_longest_on_the_critical_path(
    found: Stages, is_open: bool, name: str
) -> None:
    assert bottleneck_text([found], is_open=is_open).split()[0].strip(",") == name


@pytest.mark.covers("A9")
def test_the_bottleneck_says_which_stages_record_no_events() -> None:
    traced = stages(load=(0.2, 0.9), train=(0.97, 0.1))
    assert "grade" not in bottleneck_text([traced], is_open=False)
    silent = replace(traced, without_events=("grade", "end"))
    assert "grade, end" in bottleneck_text([silent, silent], is_open=False)
