"""Blocks of schedules of workflows: Gantt charts, use and queue over time, time of GPUs and waits, policies."""

from collections.abc import Sequence
from pathlib import Path

from seamark.model.results.summary import SummaryRow
from seamark.report.page.content import Block, Text
from seamark.report.source import Results
from seamark_simulate.report.figures.gantt import gantt_pictures
from seamark_simulate.report.figures.gpu_course import course_pictures
from seamark_simulate.report.figures.gpu_time import gpu_time_picture
from seamark_simulate.report.schedules import schedules_of
from seamark_simulate.report.tables.gpu_time import gpu_time_table


def schedule_blocks(
    results: Results, workload: str, treatments: Sequence[SummaryRow], stem: str, folder: Path
) -> list[Block]:
    """Return figures and table of a workload's schedules; only the reason where none can be read."""
    schedules = schedules_of(results, treatments)
    notes = [Text(text=text, kind="note") for text in schedules.notes]
    if not schedules.shown:
        return [*notes]
    return [
        *gantt_pictures(schedules.shown, workload, stem, folder),
        *course_pictures(schedules, workload, stem, folder),
        gpu_time_picture(schedules, workload, stem, folder),
        gpu_time_table(schedules, treatments, f"{workload}: time of the GPUs and waits"),
        *notes,
    ]
