"""The one function that measures: what it returns of a load, and how each end of a load is categorised."""

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from samples import a_trial

from seamark.load.coordinator.coordinator import LoadError, LoadJob
from seamark.load.workers.records import Segment
from seamark.model.results.deployment_record import Endpoint
from seamark.model.sample import MISSING_NS, SAMPLE
from seamark.model.site import Site
from seamark.services.ephemeral_server import ephemeral_server
from seamark.trials.deployment_context import DeploymentContext
from seamark.trials.kinds import timed_load
from seamark.trials.measure import MeasuredLoad, failure_of, measure

pytestmark = pytest.mark.covers("E-FR09")


@dataclass(frozen=True, kw_only=True)
class EndedServer:
    """A server that has ended with these last lines."""

    lines: Sequence[str] = ("out of memory",)

    def end_reason(self, wait_s: float = 0.0) -> str | None:
        return "the server ended during the load (killed, code -9)"

    def log_tail(self) -> Sequence[str]:
        return self.lines


def a_job(folder: Path, port: int, **settings: float) -> LoadJob:
    return LoadJob(
        driver="seamark.drivers.null:Null",
        workers="wire",
        settings={"concurrency": 2, "duration_s": 0.3, "warmup_s": 0.0, "timeout_s": 5.0, **settings},
        seed=1,
        data=folder,
        ports={"main": port},
    )


@pytest.mark.services
def test_a_load_that_went_well_has_raw_samples_and_energy_only_with_telemetry(tmp_path: Path) -> None:
    with ephemeral_server("seamark.testservers.null") as port:
        measured = measure(a_job(tmp_path, port), tmp_path / "parts")
        with_telemetry = measure(a_job(tmp_path, port), tmp_path / "more", telemetry=True)
    assert measured.failure is None
    assert len(measured.samples()) == measured.outcome.completed > 0
    assert len(measured.chunks()) == 0
    assert (measured.energy is None, with_telemetry.energy is None) == (True, False)


@pytest.mark.services
def test_a_tick_that_says_the_run_has_gone_interrupts_the_load(tmp_path: Path) -> None:
    samples = tmp_path / "parts" / "worker-0.samples"

    def gone() -> str | None:
        return "interrupted: gone" if samples.is_file() and samples.stat().st_size > 1000 else None

    with ephemeral_server("seamark.testservers.null") as port:
        measured = measure(a_job(tmp_path, port, duration_s=20.0), tmp_path / "parts", on_tick=gone)
    assert measured.failure is not None
    assert (measured.failure.category, measured.failure.reason) == ("interrupted", "interrupted: gone")


@pytest.mark.services
def test_a_load_whose_server_has_ended_is_the_servers_failure(tmp_path: Path) -> None:
    with ephemeral_server("seamark.testservers.null") as port:
        measured = measure(a_job(tmp_path, port), tmp_path / "parts", server=EndedServer())
    assert measured.failure is not None
    assert measured.failure.category == "server_died"
    assert measured.failure.log_tail == ("out of memory",)


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (LoadError("worker 0: no module"), "client_died"),
        (LoadError("interrupted: gone", category="interrupted"), "interrupted"),
        (LoadError("worker 0: no such file", category="dataset_error"), "dataset_error"),
        (OSError(errno.ENOSPC, "No space left on device"), "disk_full"),
        (OSError(errno.EIO, "Input/output error"), "no_samples"),
        (ValueError("no such setting"), "setup_failed"),
    ],
)
def test_a_load_that_did_not_begin_has_the_category_of_its_error(error: Exception, category: str) -> None:
    assert failure_of(error).category == category


def test_a_load_that_did_not_begin_as_its_server_ended_is_the_servers_failure() -> None:
    failure = failure_of(LoadError("refused", ["last line of the client"]), EndedServer())
    assert (failure.category, failure.log_tail) == ("server_died", ("last line of the client",))


@pytest.mark.parametrize(
    ("settings", "is_watched"),
    [
        ([{"duration_s": 1.0}], True),
        ([{"duration_s": 60.0}], False),
        ([{"duration_s": 60.0, "requests": 5}], True),
        ([{"duration_s": 60.0, "limit_s": 60.0}], True),
        ([{"duration_s": 60.0}, {"duration_s": 60.0}], False),
        ([{"duration_s": 60.0}, {"duration_s": 60.0, "requests": 5}], True),
    ],
    ids=["short", "long", "requests", "finite", "long parties", "parties, one of few requests"],
)
def test_the_machine_is_watched_before_loads_of_which_one_may_be_too_short_for_telemetry(
    settings: Sequence[dict[str, Any]], is_watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed_load, "WATCH_S", 0.05)
    site = Site(name="here", summary="a machine", telemetry_interval_s=1.0)
    context = cast(DeploymentContext, SimpleNamespace(site=site))
    loads = [(context, a_trial(each), Endpoint(status="ok")) for each in settings]
    assert (timed_load.others_before(loads) is not None) == is_watched


@pytest.mark.parametrize(
    ("sent_s", "last_s", "failure", "replied"),
    [
        (3.0, 4.0, 0, True),
        (0.5, 9.0, 0, True),  # one long request over the whole window
        (0.5, 1.9, 0, False),  # a reply of the warm-up
        (5.1, 6.0, 0, False),
        (3.0, 4.0, 1, False),
        (None, 4.0, 10, False),
    ],
)
def test_a_load_replies_in_a_window_by_good_replies_to_requests_under_way_in_it(
    tmp_path: Path, sent_s: float | None, last_s: float, failure: int, replied: bool
) -> None:
    sample = np.zeros(1, dtype=SAMPLE)
    sample["sent_ns"] = MISSING_NS if sent_s is None else sent_s * 1e9
    sample["last_ns"], sample["failure"] = last_s * 1e9, failure
    with Segment(tmp_path / "one") as segment, Segment(tmp_path / "none"):
        segment.append(memoryview(sample.tobytes()), 1)
    outcome: Any = SimpleNamespace(segments=(tmp_path / "none", tmp_path / "one"))
    measured = MeasuredLoad(outcome=outcome, failure=None, finished_at="", energy=None)
    assert measured.replied_in((2.0, 5.0)) is replied
