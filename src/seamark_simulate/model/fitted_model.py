"""The document of `bench fit`: models of servers, with the trials that they come from and what stands against
them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from seamark.model.plurals import counted
from seamark.model.results.values import Moment, Number, Word
from seamark.model.service import Value

Family = Literal["exponential", "gamma", "lognormal", "constant"]
Router = Literal["one-queue", "random", "round-robin", "power-of-two", "least-loaded"]
Place = Literal["inside", "beyond", "overload"]
"""Of a treatment that was left out: its load is among those of the others, outside of them, or too much to serve."""

UNFIT = "its own trials contradict it"
"""Why a model with contradictions is unfit for plans."""


@dataclass(frozen=True, kw_only=True)
class FitSource:
    """A trial that a model was fitted to, with the codes for which it is SUSPECT, or one that stayed out, and
    `why`."""

    scenario: str
    trial: str
    trial_id: str
    config_hash: str
    why: Word = None
    suspect: tuple[str, ...] = ()


def codes_of(sources: Sequence[FitSource]) -> tuple[str, ...]:
    """Return the codes for which some trials are SUSPECT."""
    return tuple(dict.fromkeys(code for source in sources for code in source.suspect))


def suspect_text(sources: Sequence[FitSource]) -> str | None:
    """Return `2 of 6 trials SUSPECT: busy_elsewhere 2, drift 1`; None where all are VALID."""
    codes = Counter(code for source in sources for code in source.suspect)
    count = sum(bool(source.suspect) for source in sources)
    reasons = ", ".join(f"{code} {times}" for code, times in codes.most_common())
    return f"{count} of {counted(len(sources), 'trial')} SUSPECT: {reasons}" if count else None


@dataclass(frozen=True, kw_only=True)
class FittedServer:
    """The server of some trials: what a plan for more of it needs.

    `settings` are those that differ from their defaults and that all trials have, without rate and length of a load;
    `model` is the name or folder of a language model, `resources` are those of the deployment. `gpu` is the kind of
    its GPUs, such as a100-40, None without any. `kv_tokens_known`: the server itself counted the tokens that fit its
    memory.
    """

    settings: Mapping[str, Value] = field(default_factory=dict)
    model: Word = None
    resources: Mapping[str, int] = field(default_factory=dict)
    gpu: Word = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    kv_tokens_known: bool = False
    site: Word = None
    partition: Word = None
    account: Word = None

    @property
    def gpus(self) -> int:
        """GPUs of one replica, 0 without any."""
        return self.tensor_parallel * self.pipeline_parallel if self.gpu is not None else 0


@dataclass(frozen=True, kw_only=True)
class StationParameters:
    """A distribution of service times, of that `variation` (standard deviation over mean), and the part of a response
    that lies outside of the server."""

    mean_s: float
    variation: float
    overhead_s: float


@dataclass(frozen=True, kw_only=True)
class FitScore:
    """Errors of one figure over the trials of one place whose treatments were left out and predicted.

    `median_error` and `largest_error` are relative; `in_spreads` is the median error over the standard deviation of
    repeats, None without repeats. `inside_interval` is the share of trials that lie in their 90 % interval.
    """

    place: Place
    figure: str
    trials: int
    median_error: float
    largest_error: float
    in_spreads: Number = None
    inside_interval: float


@dataclass(frozen=True, kw_only=True)
class HeldOutFigure:
    """One figure of a trial whose treatment was left out: measured, and predicted from the other treatments with the
    limits of its 90 % interval. Names of figures have their units."""

    scenario: str
    trial: str
    place: Place
    figure: str
    measured: float
    predicted: float
    low: float
    high: float

    @property
    def is_hit(self) -> bool:
        """Whether the measured figure lies in the interval."""
        return self.low <= self.measured <= self.high


@dataclass(frozen=True, kw_only=True)
class StationModel:
    """A queueing model of a server: one queue, first come, first served.

    `family` is that of the service times. `between` is the standard deviation of the logarithm of a trial's mean
    service time beyond what its number of requests explains. `loads` and `rates_rps` are the lowest and the highest
    utilisation and rate of its trials. `draws` are parameters from resampled trials. With `contradictions` it is
    unfit for plans. `why_no_score` where there are too few treatments.
    """

    name: str
    service: str
    servers: int
    family: Family
    parameters: StationParameters
    between: float
    loads: tuple[float, float]
    rates_rps: tuple[float, float]
    requests: int
    out_of_order: int
    sources: tuple[FitSource, ...]
    contradictions: tuple[str, ...] = ()
    scores: tuple[FitScore, ...] = ()
    held_out: tuple[HeldOutFigure, ...] = ()
    why_no_score: Word = None
    draws: tuple[StationParameters, ...] = ()
    server: FittedServer = FittedServer()

    @property
    def fit_for_plans(self) -> bool:
        """Whether its own trials do not contradict it."""
        return not self.contradictions


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """Time of a step of an LLM replica in seconds: of each step, token of a prompt, request that decodes, and token
    held."""

    base_s: float
    prompt_token_s: float
    sequence_s: float
    kv_token_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ReplicaParameters(StepCost):
    """The cost of a step, and the time that passes before a request reaches the replica."""

    overhead_s: float = 0.0

    def slower(self, by: float) -> "ReplicaParameters":
        """Return them with every time of a step multiplied."""
        costs = {name: value * by for name, value in vars(self).items()}
        return ReplicaParameters(**costs | {"overhead_s": self.overhead_s})


@dataclass(frozen=True, kw_only=True)
class InputRange:
    """Lowest and highest mean of an input over the trials of a model."""

    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Return whether a value lies in it, by a thousandth of it at most outside."""
        return self.low * 0.999 <= value <= self.high * 1.001


@dataclass(frozen=True, kw_only=True)
class ReplicaModel:
    """A replica of a language model that works in steps, with limits by the names of vLLM.

    `between` is the standard deviation of the logarithm of a trial's time per token over that of its replay, `speed`
    by what replays of the summed steps had to be slowed down. `ranges` are those of rate, concurrency and lengths.
    With `contradictions` it is unfit for plans.
    """

    name: str
    service: str
    kv_blocks: int
    block_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    parameters: ReplicaParameters
    between: float
    speed: float
    ranges: Mapping[str, InputRange]
    requests: int
    sources: tuple[FitSource, ...]
    contradictions: tuple[str, ...] = ()
    scores: tuple[FitScore, ...] = ()
    held_out: tuple[HeldOutFigure, ...] = ()
    why_no_score: Word = None
    draws: tuple[ReplicaParameters, ...] = ()
    server: FittedServer = FittedServer()

    @property
    def fit_for_plans(self) -> bool:
        """Whether its own trials do not contradict it."""
        return not self.contradictions


Model = StationModel | ReplicaModel


def contradiction_of(model: Model) -> str:
    """Return why a model is unfit for plans: the first of its contradictions, and how many more there are."""
    first, more = model.contradictions[0], len(model.contradictions) - 1
    return f"{UNFIT}: {first}{f' (and {more} more)' if more else ''}"


@dataclass(frozen=True, kw_only=True)
class StartModel:
    """Times in seconds from starting the processes of a server until it is healthy, its model loaded: mean and
    standard deviation over `starts`, the latter None for one start."""

    name: str
    service: str
    starts: int
    mean_s: float
    std_s: Number = None


@dataclass(frozen=True, kw_only=True)
class FittedModels:
    """All models of one `bench fit`, the trials that stayed out, what could not be fitted and why, and the machines
    that were measured."""

    schema_version: int = 1
    fitted_at: Moment = None
    seed: int
    machines: tuple[str, ...] = ()
    stations: tuple[StationModel, ...] = ()
    replicas: tuple[ReplicaModel, ...] = ()
    starts: tuple[StartModel, ...] = ()
    left_out: tuple[FitSource, ...] = ()
    not_fitted: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[Model, ...]:
        """The models of servers, stations first."""
        return (*self.stations, *self.replicas)
