"""Measured trials as inputs of a fit: which take part, why others stay out, and groups of them of equal servers,
which a fit makes a model of."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seamark.analysis.metrics.samples import DamagedError, open_samples
from seamark.analysis.trial_view import TrialView
from seamark.model.plurals import in_percent
from seamark.model.results.deployment_record import DeploymentRecord
from seamark.model.sample import MISSING_NS
from seamark.model.service import Value
from seamark.model.trial import Plan, Trial, levels_of
from seamark.patterns.table import LOAD_SETTINGS
from seamark.storage.documents import read_or_none, regular
from seamark.storage.paths import ScenarioFolder, TrialFolder
from seamark_simulate.fit.replica_fit import ReplicaLimits
from seamark_simulate.fit.replica_trial import ReplicaTrial
from seamark_simulate.fit.station_trial import StationTrial
from seamark_simulate.model.fitted_model import FitSource, StartModel
from seamark_simulate.simulation.schedule import Floats, Ints
from seamark_simulate.trials.fitted_server import ServedTrial, gpu_of

OF_REQUESTS = frozenset({"prompt_len", "gen_tokens", "gen_tokens_shape", "gen_tokens_spread", "ignore_eos"})
"""Settings of what is asked, in which the trials of one replica may differ: its cost follows from them."""
DEFAULT_SEQUENCES, DEFAULT_STEP_TOKENS, BLOCK_TOKENS = 256, 2_048, 16
"""Limits of vLLM's V1 engine on CPUs and on GPUs below 70 GiB, where a recipe does not set them."""
STEP_TOKENS_OF_GPUS = ((170, 16_384), (75, 8_192))
"""Memory of a GPU in GB, and vLLM's default tokens of a step from that size on (160 and 70 GiB); not of an A100."""


def is_streamed(view: TrialView) -> bool:
    """Return whether a trial has streamed replies of several tokens."""
    asked, settings = view.trial.settings.get("gen_tokens"), view.trial.settings
    return "prompt_len" in settings and isinstance(asked, int) and asked > 1 and view.folder.chunks.exists()


def replica_trial(
    view: TrialView, window_s: tuple[float, float], source: FitSource, treatment: str
) -> ReplicaTrial | str:
    """Return what a replica sees of a trial, or why it cannot take part. Raises DamagedError."""
    trial, files = view.trial, view.folder
    if why := _misfit(trial.settings):
        return why
    rows = _requests(trial, files)
    good = rows["last"] != MISSING_NS
    failed = int((~good).sum())
    if failed or good.sum() < 2:
        return f"{failed:,} of its {len(good):,} requests failed or were cut off"
    warmup_s, until_s = window_s
    if not ((rows["sent"] >= warmup_s * 1e9) & (rows["due"] >= warmup_s * 1e9)).any():
        return "it has no good requests after its warm-up"
    several = rows["units"] > np.maximum(rows["first_units"], 1)
    if several.any() and not np.median((rows["last"] - rows["first"])[several]):
        return "its replies came in one piece, so their tokens have no times"
    rows = {name: values[np.argsort(rows["sent"], kind="stable")] for name, values in rows.items()}
    of, at_s = _reads(files, rows["index"])
    settings = trial.settings
    return ReplicaTrial(
        source=source,
        treatment=treatment,
        due_s=np.where(trial.load.closed, rows["sent"], rows["due"]) / 1e9,
        sent_s=rows["sent"] / 1e9,
        first_s=rows["first"] / 1e9,
        last_s=rows["last"] / 1e9,
        prompt_tokens=np.full(len(rows["index"]), int(str(settings["prompt_len"])), np.int64),
        reply_tokens=rows["units"],
        first_tokens=np.minimum(np.maximum(rows["first_units"], 1), rows["units"]),
        token_of=of,
        token_at_s=at_s,
        concurrency=int(str(settings["concurrency"])) if trial.load.closed else None,
        warmup_s=warmup_s,
        until_s=until_s,
    )


def replica_limits(
    trial: Trial, seen: ReplicaTrial, record: DeploymentRecord | None, gpu: str | None
) -> ReplicaLimits:
    """Return the limits of the server of a trial: what it said at its start, its settings, else vLLM's defaults on
    that kind of GPU, and blocks for all that may run at once."""
    sequences = trial.settings.get("max_num_seqs")
    most = sequences if isinstance(sequences, int) else DEFAULT_SEQUENCES
    longest = int((seen.prompt_tokens + seen.reply_tokens).max())
    tokens = None if record is None else record.kv_tokens
    return ReplicaLimits(
        kv_blocks=max(1, tokens // BLOCK_TOKENS) if tokens else most * -(-longest // BLOCK_TOKENS),
        kv_counted=bool(tokens),
        block_tokens=BLOCK_TOKENS,
        max_num_seqs=most,
        max_num_batched_tokens=max(_step_tokens(gpu), most),
    )


def _step_tokens(gpu: str | None) -> int:
    """Return the tokens of a step that vLLM allows by default on a kind of GPU, such as h100-80; None: a CPU."""
    name, _, size = (gpu or "").rpartition("-")
    if name == "a100" or not size.isdigit():
        return DEFAULT_STEP_TOKENS
    return next((tokens for least_gb, tokens in STEP_TOKENS_OF_GPUS if int(size) >= least_gb), DEFAULT_STEP_TOKENS)


def _misfit(settings: Mapping[str, Value]) -> str | None:
    """Return why requests of these settings cannot be replayed."""
    if settings.get("prompt_len_shape", "fixed") != "fixed":
        return "its prompts differ in length, and their lengths are not recorded"
    if settings.get("prefix_len"):
        return "its prompts have a common prefix, and what a cache saves is not recorded"
    if settings.get("batch", 1) != 1:
        return "its requests have several prompts each"
    return None


def _requests(trial: Trial, files: TrialFolder) -> dict[str, Ints]:
    """Return the requests that were sent before the load ended, by column; times in ns. Those that are not good have
    no last time. Raises DamagedError."""
    names = ("index", "due", "sent", "first", "last", "units", "first_units")
    columns: dict[str, list[Ints]] = {name: [] for name in names}
    for batch in open_samples(files.samples, trial.config_hash).batches():
        sent = batch.sent != MISSING_NS
        good = batch.good & (batch.first != MISSING_NS) & (batch.units > 0)
        for name in names:
            values = np.where(good, batch.last, MISSING_NS) if name == "last" else getattr(batch, name)
            columns[name].append(values[sent])
    return {name: np.concatenate(parts) if parts else np.array([], np.int64) for name, parts in columns.items()}


def _reads(files: TrialFolder, index: Ints) -> tuple[Ints, Floats]:
    """Return the place of the request of each read of chunks, and its time in seconds, in the order of time. Raises
    DamagedError."""
    try:
        table = pq.read_table(regular(files.chunks), columns=["index", "at_ns"], page_checksum_verification=True)
    except (pa.ArrowException, OSError, KeyError) as cause:
        raise DamagedError(f"{files.chunks.name} is damaged: {' '.join(str(cause).split())[:200]}") from cause
    numbers, at_ns = (table.column(name).to_numpy() for name in ("index", "at_ns"))
    places = np.full(int(max(index.max(), numbers.max(initial=0))) + 1, -1, np.int64)
    places[index] = np.arange(len(index))
    known = places[numbers] >= 0
    order = np.argsort(at_ns[known], kind="stable")
    return places[numbers[known]][order], at_ns[known][order] / 1e9


OF_A_LOAD = frozenset(setting.name for setting in LOAD_SETTINGS)
T = TypeVar("T", StationTrial, ReplicaTrial)
Key = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class FitGroup(Generic[T]):
    """Trials of one server, at several loads. `name` tells it from the others; `limits` are those of a replica.
    `served` says on which server each trial was."""

    name: str
    trials: list[T] = field(default_factory=list)
    limits: list[ReplicaLimits] = field(default_factory=list)
    served: list[ServedTrial] = field(default_factory=list)


def told_apart(groups: Sequence[FitGroup[StationTrial] | FitGroup[ReplicaTrial]]) -> list[str]:
    """Return a name of its own for each group: those of one name get the settings in which they differ, and a number
    where nothing else tells them apart."""
    names: list[str] = []
    for group in groups:
        alike = [other for other in groups if other.name == group.name]
        settings = group.served[0].trial.settings
        others = [other.served[0].trial.settings for other in alike]
        differ = [
            f"{name}={settings[name]}"
            for name in sorted(settings)
            if name not in OF_A_LOAD and any(name not in other or other[name] != settings[name] for other in others)
        ]
        names.append(" ".join([group.name, *differ]))
    return [
        name if names.count(name) == 1 else f"{name} ({1 + names[:number].count(name)})"
        for number, name in enumerate(names)
    ]


def add_trial(
    known: dict[Key, FitGroup[T]],
    served: ServedTrial,
    taken: T,
    varied: Mapping[str, Value],
    besides: frozenset[str],
) -> FitGroup[T]:
    """Add a trial, of which a model sees what was `taken`, to the group of its settings and kind of GPU, but for the
    settings `besides`."""
    name = name_of(served.trial, varied, besides, served.gpu)
    group = known.setdefault(key_of(served.trial, besides, served.gpu), FitGroup(name=name))
    group.trials.append(taken)
    group.served.append(served)
    return group


def key_of(trial: Trial, besides: frozenset[str], gpu: str | None) -> Key:
    """Return service, kind of GPU and settings of a trial, but for some."""
    kept = sorted((name, repr(value)) for name, value in trial.settings.items() if name not in besides)
    return (trial.service, gpu, *kept)


def name_of(trial: Trial, varied: Mapping[str, Value], besides: frozenset[str], gpu: str | None) -> str:
    """Return the service with the settings that vary in its scenario, but for some, and its kind of GPU."""
    shown = [f"{name}={value}" for name, value in varied.items() if name in trial.settings and name not in besides]
    return " ".join([trial.service, *shown, *([f"on {gpu}"] if gpu else [])])


UNFIT = {
    "saturated": "saturated",
    "over_saturated": "saturated",
    "schedule_lag": "the client was late",
    "loop_lag": "the client was late",
    "client_stalled": "the client was late",
    "clock_offset": "the clocks of its clients differ",
    "rate_not_sent": "the client was late",
    "client_bound": "the client was the limit",
    "client_underdriven": "the client was the limit",
    "outage": "the server was away",
    "server_restarted": "the server was started anew in it",
    "unfinished": "requests were not finished",
    "shard_lost": "a worker of the load was lost, and with it the times of requests that were served",
    "timestamp_order": "its times contradict each other",
    "tokens_not_counted": "the server did not count its tokens",
}
"""Reasons of verdicts for which a trial says nothing about its server as it usually is."""
UNFIT_IF_SUSPECT = ("tokens_not_counted", "clock_offset")
"""Of these, those that say as a note that there is too little of it to matter."""
OF_ITS_LENGTH = frozenset({"duration_s", "warmup_s", "requests"})
"""Settings of a load in which equal loads may differ."""
FAILED = 0.001
"""Largest share of failed requests: they kept the server busy, and for how long is not known."""


@dataclass(frozen=True, kw_only=True)
class FitInputs:
    """Groups of trials, and those that stay out."""

    stations: list[FitGroup[StationTrial]] = field(default_factory=list)
    replicas: list[FitGroup[ReplicaTrial]] = field(default_factory=list)
    starts: list[StartModel] = field(default_factory=list)
    left_out: list[FitSource] = field(default_factory=list)
    machines: set[str] = field(default_factory=set)


def fit_inputs(results: Iterable[tuple[Plan, ScenarioFolder]]) -> FitInputs:
    """Read the trials of some scenarios. Trials of equal servers and requests are one group, in all scenarios.

    Trials with streamed replies of several tokens are those of LLM replicas, whose requests may differ in length;
    all others are those of stations.
    """
    inputs = FitInputs()
    stations: dict[Key, FitGroup[StationTrial]] = {}
    replicas: dict[Key, FitGroup[ReplicaTrial]] = {}
    starts: dict[Key, tuple[str, str, list[float]]] = {}
    for plan, folder in results:
        levels = levels_of(plan)
        for trial in plan.measured:
            view = TrialView.of(trial, folder)
            source = FitSource(
                scenario=plan.scenario,
                trial=trial.id,
                trial_id=trial.trial_id,
                config_hash=trial.config_hash,
                suspect=tuple(dict.fromkeys(reason.code for reason in view.reasons if reason.verdict == "SUSPECT")),
            )
            taken = _taken(view, source)
            if isinstance(taken, str):
                inputs.left_out.append(replace(source, why=taken))
                continue
            varied, gpu = levels[trial.treatment], gpu_of(plan, folder, trial)
            served = ServedTrial(plan=plan, folder=folder, trial=trial, gpu=gpu)
            if isinstance(taken, StationTrial):
                add_trial(stations, served, taken, varied, OF_A_LOAD)
            else:
                group = add_trial(replicas, served, taken, varied, OF_A_LOAD | OF_REQUESTS)
                record = read_or_none(folder.deployment(trial.deployment).record, DeploymentRecord)
                group.limits.append(replica_limits(trial, taken, record, gpu))
            if view.load is not None and view.load.node:
                inputs.machines.add(view.load.node)
        _add_starts(starts, plan, folder, levels)
    inputs.starts.extend(
        StartModel(
            name=name,
            service=service,
            starts=len(times_s),
            mean_s=float(np.mean(times_s)),
            std_s=float(np.std(times_s, ddof=1)) if len(times_s) > 1 else None,
        )
        for name, service, times_s in starts.values()
    )
    names = iter(told_apart([*stations.values(), *replicas.values()]))
    return replace(
        inputs,
        stations=[replace(station, name=next(names)) for station in stations.values()],
        replicas=[replace(replica, name=next(names)) for replica in replicas.values()],
    )


def _add_starts(
    starts: dict[Key, tuple[str, str, list[float]]],
    plan: Plan,
    folder: ScenarioFolder,
    levels: Mapping[str, Mapping[str, Value]],
) -> None:
    """Add the time of each start of a plan to those of equal servers, with their name and service; a server that was
    never healthy has none."""
    first = {trial.deployment: trial for trial in reversed(plan.measured)}
    for deployment, trial in first.items():
        record = read_or_none(folder.deployment(deployment).record, DeploymentRecord)
        started_s = None if record is None else record.time_to_service_s.get("start")
        if started_s is not None:
            gpu = gpu_of(plan, folder, trial)
            besides = OF_A_LOAD | OF_REQUESTS
            name = name_of(trial, levels[trial.treatment], besides, gpu)
            _, _, times_s = starts.setdefault(key_of(trial, besides, gpu), (name, trial.service, []))
            times_s.append(float(started_s))


def _taken(view: TrialView, source: FitSource) -> StationTrial | ReplicaTrial | str:
    """Return what a model sees of a trial, or why it stays out."""
    if view.good is None:
        return f"it {'is not measured' if view.status == 'missing' else 'failed'}"
    if view.virtual_clock:
        return "simulated itself"
    streamed = is_streamed(view)
    if view.trial.load.closed and not streamed:
        return "a closed loop: its rate follows from the server"
    for reason in view.reasons:
        if reason.code in UNFIT and not (reason.code in UNFIT_IF_SUSPECT and reason.severity == "note"):
            return UNFIT[reason.code]
    if view.verdict == "INVALID":
        return f"INVALID: {', '.join(dict.fromkeys(flag.code for flag in view.reasons if flag.verdict == 'INVALID'))}"
    if view.load is None:
        return "its load.json is missing"
    if view.window_s is None or view.good.window.length_s is None:
        return "it has no measured window"
    settings = view.trial.settings  # trials of equal loads and requests are repeats, of whichever scenario
    names = sorted((OF_A_LOAD | OF_REQUESTS) - OF_ITS_LENGTH)
    load = " ".join(f"{name}={settings[name]}" for name in names if name in settings)
    try:
        return (replica_trial if streamed else _station_trial)(view, view.window_s, source, load)
    except DamagedError as damage:
        return str(damage)


def _station_trial(
    view: TrialView, window_s: tuple[float, float], source: FitSource, treatment: str
) -> StationTrial | str:
    """Return what a station sees of a trial, or why it cannot take part. Raises DamagedError."""
    warmup_s, until_s = window_s
    due, last, failed = [], [], 0
    for batch in open_samples(view.folder.samples, view.trial.config_hash).batches():
        chosen = (batch.due >= 0) & (batch.due < until_s * 1e9)
        good = chosen & batch.good & (batch.last != MISSING_NS)
        failed += int((chosen & ~good).sum())
        due.append(batch.due[good])
        last.append(batch.last[good])
    due_ns, last_ns = (
        np.concatenate(due or [np.array([], np.int64)]),
        np.concatenate(last or [np.array([], np.int64)]),
    )
    if len(due_ns) < 2:
        return "it has no good requests"
    if failed > FAILED * (len(due_ns) + failed):
        return f"{in_percent(failed / (len(due_ns) + failed), 1)} of its requests failed"
    if not (due_ns >= warmup_s * 1e9).any():
        return "it has no good requests after its warm-up"
    order = np.argsort(due_ns, kind="stable")
    return StationTrial(
        source=source,
        treatment=treatment,
        arrival_s=due_ns[order] / 1e9,
        end_s=last_ns[order] / 1e9,
        warmup_s=warmup_s,
        until_s=until_s,
    )
