"""What test_faiss.py asks in the environment of FAISS. Every answer is JSON."""

import threading
from pathlib import Path
from typing import Any

import numpy as np

from seamark.drivers.vectors import faiss, faiss_index
from seamark.drivers.vectors.dataset import Dataset
from seamark.load.driver import Body, Target
from seamark.model.sample import EventKind


def staged(settings: dict[str, Any], data: str, seed: int) -> Any:
    return dict(faiss.stage(Target(settings=settings, data=Path(data)), seed))


def recalls(settings: dict[str, Any], data: str, knob: str, levels: list[int]) -> Any:
    return [faiss.quality(Target(settings={**settings, knob: level}, data=Path(data)), 0) for level in levels]


def searched(settings: dict[str, Any], data: str, threads: int, requests: int) -> Any:
    """Search in threads as the load does; give each thread's ids of its last request, and what its queries were."""
    driver = faiss.Search(Target(settings=settings, data=Path(data)))
    bodies = driver.bodies(requests, 7)
    seen: dict[int, Any] = {}

    def user(number: int) -> None:
        session = driver.session()
        mine = bodies[number::threads]
        replies = [session.call(body) for body in mine]
        seen[number] = {
            "units": sum(reply.units for reply in replies),
            "failures": [int(reply.failure) for reply in replies if reply.failure],
            "ids": session._ids.tolist(),
            "wanted": driver._index.search(mine[-1].content, settings["k"])[1].tolist(),
        }
        session.close()

    users = [threading.Thread(target=user, args=(number,)) for number in range(threads)]
    for one in users:
        one.start()
    for one in users:
        one.join()
    return [seen[number] for number in range(threads)]


def asked(settings: dict[str, Any], data: str, count: int, seed: int) -> Any:
    """Give which query of the data set each row of each body is."""
    queries = Dataset.load(Path(data)).queries
    bodies = faiss.Search(Target(settings=settings, data=Path(data))).bodies(count, seed)
    return [[int(np.flatnonzero((queries == row).all(axis=1))[0]) for row in body.content] for body in bodies]


def searched_an_empty_list(settings: dict[str, Any], data: str) -> Any:
    """Search with an index whose vectors are gone."""
    driver = faiss.Search(Target(settings=settings, data=Path(data)))
    driver._index.reset()
    reply = driver.session().call(Body(content=np.zeros((1, settings["dimensions"]), dtype=np.float32)))
    return {"units": reply.units, "failure": reply.failure.name}


def traced(settings: dict[str, Any], data: str, requests: int) -> Any:
    """Give the stages of a search, its events, and whether traced searches found the same ids as plain ones."""
    events = Kept()
    driver = faiss.Search(Target(settings=settings, data=Path(data), events=events))
    session, same = driver.session(), True
    for number, body in enumerate(driver.bodies(requests, 7)):
        session.call(body)
        plain = session._ids.tolist()
        session._ids[:] = -7
        same &= session.call_traced(body, number).failure == 0 and session._ids.tolist() == plain
    return {"stages": list(driver.stages), "events": events.added, "same": same}


class Kept:
    """Keeps the events of all tracks."""

    def __init__(self) -> None:
        self.added: list[list[int]] = []

    def track(self) -> "Kept":
        return self

    def add(self, query: int, stage: int, what: EventKind, begin_ns: int, end_ns: int, visit: int = 0) -> None:
        self.added.append([query, stage, int(what), begin_ns, end_ns, visit])


def threads_of_two_users(settings: dict[str, Any], data: str) -> Any:
    """Give how many OpenMP threads a search may use in each of two threads, and before any search."""
    driver = faiss.Search(Target(settings=settings, data=Path(data)))
    (body,) = driver.bodies(1, 0)
    seen = [faiss_index.faiss.omp_get_max_threads()]

    def user() -> None:
        driver.session().call(body)
        seen.append(faiss_index.faiss.omp_get_max_threads())

    for _ in range(2):
        one = threading.Thread(target=user)
        one.start()
        one.join()
    return seen
