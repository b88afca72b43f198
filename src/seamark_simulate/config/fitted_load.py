"""The settings of a trial of the service `fitted`, and the requests that they give."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seamark.errors import UserError
from seamark.model.load_profile import LoadProfile
from seamark.model.service import Value
from seamark.patterns.patterns import Pattern
from seamark.patterns.table import pattern_of, runs_out, schedule
from seamark.patterns.trace_file import file_of, recorded_rows
from seamark_simulate.config.fitted_file import model_named, read_models
from seamark_simulate.config.workloads.samples import is_samples
from seamark_simulate.model.fitted_model import Router, StationModel
from seamark_simulate.simulation.fitted_service import FittedService
from seamark_simulate.simulation.llm.replica import LlmRequests
from seamark_simulate.simulation.schedule import Floats, Ints

MOST_REQUESTS = 2_000_000


@dataclass(frozen=True, kw_only=True)
class RecordedRequests:
    """Times in seconds from the start of the load, in their order; tokens of prompts and replies, None where the file
    does not give them all."""

    arrival_s: Floats
    prompt_tokens: Ints | None = None
    reply_tokens: Ints | None = None


def read_requests(path: Path) -> RecordedRequests:
    """Return every request of a file that was due, whatever became of it, at the time at which it was due. Raises
    UserError."""
    try:
        with path.open("rb") as file:
            head = file.read(4)
        requests = _of_samples(path) if is_samples(head) else _of_trace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}.") from None
    except (ValueError, pa.ArrowException, KeyError) as error:
        raise UserError(f"{path}: no samples.parquet and no trace: {' '.join(str(error).split())[:160]}.") from None
    if not len(requests.arrival_s):
        raise UserError(f"{path}: has no request.")
    if len(requests.arrival_s) > MOST_REQUESTS:
        raise UserError(f"{path}: more than {MOST_REQUESTS:,} requests.")
    return requests


def _of_samples(path: Path) -> RecordedRequests:
    names = ("due_ns", "units", "failure")
    table = pq.read_table(path, columns=list(names), page_checksum_verification=True)
    due, units, failure = (np.asarray(table[name].fill_null(-1), np.int64) for name in names)
    rows = np.flatnonzero(due >= 0)
    rows = rows[np.argsort(due[rows], kind="stable")]
    known = bool((failure[rows] == 0).all() and (units[rows] > 0).all())
    return RecordedRequests(arrival_s=due[rows] / 1e9, reply_tokens=units[rows] if known else None)


def _of_trace(path: Path) -> RecordedRequests:
    rows = list(recorded_rows(str(path)))
    prompts = [row.prompt_tokens for row in rows if row.prompt_tokens is not None]
    replies = [row.output_tokens for row in rows if row.output_tokens is not None]
    return RecordedRequests(
        arrival_s=np.asarray([row.at_s for row in rows], np.float64),
        prompt_tokens=np.asarray(prompts, np.int64) if len(prompts) == len(rows) else None,
        reply_tokens=np.asarray(replies, np.int64) if len(replies) == len(rows) else None,
    )


RECORDED = "recorded"


@dataclass(frozen=True, kw_only=True)
class FittedLoad:
    """What one trial simulates, by the settings of config/services/fitted.yaml."""

    settings: Mapping[str, Value]

    @property
    def warmup_s(self) -> float:
        """Length of the warm-up in s."""
        return float(self.settings["warmup_s"] or 0.0)

    @property
    def until_s(self) -> float:
        """When arrivals end, in s; infinite for all of a file."""
        duration_s = self.settings["duration_s"]
        if duration_s is None:
            return float("inf") if self.is_recorded else self.warmup_s + LoadProfile.duration_s
        return self.warmup_s + float(duration_s)

    @property
    def is_recorded(self) -> bool:
        """Whether arrivals are those of a file."""
        return self.settings["pattern"] == RECORDED

    @cached_property
    def service(self) -> FittedService:
        """The model with its replicas. Raises UserError."""
        of = self.settings
        path = str(of["model_file"])
        model = model_named(read_models(file_of(path)), None if of["model"] is None else str(of["model"]), path)
        given = None if of["replicas"] is None else int(of["replicas"])
        return FittedService(
            model=model,
            replicas=given or (model.servers if isinstance(model, StationModel) else 1),
            router=None if of["router"] is None else cast(Router, of["router"]),
            kv_blocks=_whole(of["kv_blocks"]),
            max_num_seqs=_whole(of["max_num_seqs"]),
            max_num_batched_tokens=_whole(of["max_num_batched_tokens"]),
        )

    @cached_property
    def pattern(self) -> Pattern:
        """The pattern of computed arrivals. Raises ValueError."""
        pattern = pattern_of(_profile(self.settings))
        assert pattern is not None, "the recipe allows open loops alone"
        return pattern

    @cached_property
    def _file(self) -> RecordedRequests:
        return read_requests(file_of(str(self.settings["requests_file"])))

    def requests(self, seed: int) -> LlmRequests:
        """Return the requests of a seed; of a station lengths are 1. Raises UserError and ValueError."""
        recorded = self._file if self.is_recorded else RecordedRequests(arrival_s=np.zeros(0))
        arrival_s = recorded.arrival_s
        if not self.is_recorded:
            expected = self.pattern.expected(self.until_s) or 0.0
            if expected > MOST_REQUESTS:
                raise UserError(
                    f"{expected:,.0f} requests are more than {MOST_REQUESTS:,}. Lower rate or duration_s."
                )
            parts = list(schedule(self.pattern, seed=seed, until_s=self.until_s))
            arrival_s = np.concatenate([np.zeros(0, np.int64), *parts]) / 1e9
        inside = arrival_s < self.until_s
        prompts = self._lengths("prompt_tokens", recorded.prompt_tokens, len(arrival_s))[inside]
        return LlmRequests(
            arrival_s=arrival_s[inside],
            prompt_tokens=prompts,
            reply_tokens=self._lengths("reply_tokens", recorded.reply_tokens, len(arrival_s))[inside],
            cached_tokens=np.minimum(int(self.settings["cached_tokens"] or 0), prompts - 1),
        )

    @cached_property
    def ran_out(self) -> bool:
        """Whether no arrival is left at the end of the load: of a file that is shorter, or of steps that end with a
        rate of 0. The measured window then ends with the last arrival. Raises UserError and ValueError."""
        if self.is_recorded:
            return bool(self._file.arrival_s[-1] < self.until_s)
        return runs_out(_profile(self.settings), self.pattern, self.until_s)

    def rate_rps(self, arrival_s: Floats) -> float:
        """Return the mean rate over the measured window: that of the pattern, or as counted in a file from its first
        arrival on."""
        last_s = float(arrival_s.max(initial=0.0))
        until_s = last_s if self.ran_out and last_s > self.warmup_s else self.until_s
        begin_s = self.warmup_s
        if self.is_recorded and begin_s < (first_s := float(arrival_s.min(initial=np.inf))) < until_s:
            begin_s = first_s
        length_s = max(until_s - begin_s, 1e-9)
        if self.is_recorded:
            return int((arrival_s >= begin_s).sum()) / length_s
        expected = [self.pattern.expected(at_s) or 0.0 for at_s in (begin_s, until_s)]
        return (expected[1] - expected[0]) / length_s

    def _lengths(self, name: str, recorded: Ints | None, count: int) -> Ints:
        """Return tokens of each request: as set, else as recorded. Raises UserError where neither is known."""
        value = self.settings[name]
        if value is not None or isinstance(self.service.model, StationModel):
            return np.full(count, int(value or 1), np.int64)
        if recorded is None:
            raise UserError(f"{name} is missing: {self.service.model.name} is a language model. Set it in tokens.")
        return recorded


def _profile(settings: Mapping[str, Value]) -> LoadProfile:
    return LoadProfile.of({name: value for name, value in settings.items() if name != "limit_s"})


def _whole(value: Value) -> int | None:
    return None if value is None else int(value)
