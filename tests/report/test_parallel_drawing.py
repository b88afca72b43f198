"""Figures on several cores: in their order, with their mistakes, and gone when the report is."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from study_folder import StudyFolder

from seamark.cli.submit import _drawn
from seamark.planning.study import Study
from seamark.report.page.content import Picture, Text
from seamark.report.page.render import draw_in_parallel


def test_what_is_drawn_comes_in_the_order_of_the_tasks():
    tasks = [lambda number=number: [Text(text=str(number))] for number in range(7)]
    assert [block.text for (block,) in draw_in_parallel(tasks)] == [str(number) for number in range(7)]


def test_what_is_drawn_is_counted_and_the_total_stays():
    picture = Picture(name="a", alt="", caption="", svg=b"", width_px=1, height_px=1)
    said: list[str] = []
    draw_in_parallel([lambda: [picture, picture], lambda: [Text(text="none")], lambda: [picture]], said.append)
    assert said == ["1 of 3 parts", "2 of 3 parts", "3 of 3 parts"]


def test_a_submit_says_how_far_the_report_of_its_run_has_come(tmp_path: Path):
    study = Study.at(StudyFolder.new(tmp_path / "study").root, scenario="try")
    log = study.folder("try").root / "logs" / "report.log"
    log.parent.mkdir(parents=True)
    with log.open("w") as file:
        draw_in_parallel(
            [lambda: [Text(text="one")], lambda: [Text(text="two")]], lambda line: print(line, file=file)
        )
    assert _drawn(study, log.stat().st_mtime) == "report: 2 of 2 parts"
    assert _drawn(study, log.stat().st_mtime + 1) is None


def test_a_figure_that_cannot_be_drawn_says_why():
    class UnsendableError(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"{one} and {two}")

    def fail() -> list[Text]:
        raise UnsendableError(1, 2)

    with pytest.raises((RuntimeError, UnsendableError), match="1 and 2"):
        draw_in_parallel([fail, lambda: [Text(text="drawn")]])


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core draws alone")
def test_after_kill_9_of_a_report_nobody_goes_on_drawing(tmp_path: Path):
    def wait() -> list[Text]:
        (tmp_path / str(os.getpid())).touch()
        time.sleep(60)
        return []

    report = multiprocessing.get_context("fork").Process(target=draw_in_parallel, args=([wait, wait],))
    report.start()
    end = time.monotonic() + 20
    while len(list(tmp_path.iterdir())) < 2:
        assert time.monotonic() < end
        time.sleep(0.02)
    assert report.pid is not None
    os.kill(report.pid, signal.SIGKILL)
    report.join()
    while any(psutil.pid_exists(int(path.name)) for path in tmp_path.iterdir()):
        assert time.monotonic() < end
        time.sleep(0.02)
