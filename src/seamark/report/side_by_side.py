"""Draws figures on several cores: most of a report's time goes into them, and no figure needs another."""

import multiprocessing
import os
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor

from seamark.platform.parent_death import die_with_parent
from seamark.report.content import Block

MOST = 8
"""Processes at most: a login node has many cores, and other users."""

Task = Callable[[], Sequence[Block]]
_tasks: Sequence[Task] = ()


def side_by_side(tasks: Sequence[Task]) -> list[Sequence[Block]]:
    """Return what each task returns, in their order. Raises what a task raises."""
    many = min(len(tasks), len(os.sched_getaffinity(0)), MOST)
    if many < 2:
        return [task() for task in tasks]
    # forked, so that results and tasks are there and need not be sent
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(many, mp_context=fork, initializer=_take, initargs=(tasks, os.getpid())) as pool:
        return list(pool.map(_run, range(len(tasks))))


def _take(tasks: Sequence[Task], parent: int) -> None:
    die_with_parent(parent)
    global _tasks
    _tasks = tasks


def _run(index: int) -> Sequence[Block]:
    try:
        return _tasks[index]()
    except Exception as error:  # some exceptions cannot be sent to another process: their text can
        raise RuntimeError(f"a figure could not be drawn: {error}\n{traceback.format_exc()}") from None
