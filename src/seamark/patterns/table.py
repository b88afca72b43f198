"""Table of load patterns: one row adds a pattern with its own settings. A user's own come by dotted path."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from seamark.model.dotted import is_dotted, resolved
from seamark.model.load_profile import COMMON_SETTINGS, HIGHEST_RPS, LoadProfile, profile_settings
from seamark.model.service import LONGEST_S, Service, Setting, Value
from seamark.patterns.patterns import (
    Bursts,
    Constant,
    Diurnal,
    Gamma,
    Pattern,
    Poisson,
    Ramp,
    Steps,
    Trace,
    steps_of,
)

Settings = Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class PatternKind:
    """A load pattern: its settings, and the function that turns them into arrivals.

    `make(settings, over_s)` returns the arrivals, None for a closed loop; `over_s` is the length of the load, warm-up
    and duration, in seconds. It raises ValueError for contradictory settings. `needs` and `reads` name required and
    optional settings, among those that not every pattern reads; `settings` are defined by this pattern.
    """

    make: Callable[[Settings, float], Pattern | None]
    needs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()
    rate: Literal["steady", "changing"] | None = None
    """Whether the rate is meant to change, so that the load is not meant to be steady; None: replies determine it."""
    may_end: bool = False
    """Whether the arrivals may end before the load does."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Setting -> value that a message proposes if it is missing; 100 for settings not listed here."""


_number_setting = partial(Setting, type="float", role="workload")
_rate_setting = partial(_number_setting, minimum=1e-6, maximum=HIGHEST_RPS, unit="requests/s")
_time_setting = partial(_number_setting, maximum=LONGEST_S, unit="s")
RATE = _rate_setting(name="rate_rps", help="Mean rate of an open loop; first rate of a ramp; rate outside of bursts.")
SATURATION = ("stop_when_saturated",)


def _number(settings: Settings, name: str) -> float:
    return float(settings[name] or 0.0)


def _steps(settings: Settings, over_s: float) -> Steps:
    steps = steps_of(str(settings["step_rates"]))
    lengths_s = tuple(length_s or over_s / len(steps) for _, length_s in steps)
    return Steps(rates_rps=tuple(rate_rps for rate_rps, _ in steps), lengths_s=lengths_s)


def _bursts(settings: Settings, over_s: float) -> Bursts:
    rate_rps, burst_rps, burst_s, every_s = (
        _number(settings, name) for name in ("rate_rps", "burst_rps", "burst_s", "burst_every_s")
    )
    if burst_s >= every_s:
        raise ValueError(f"a burst of {burst_s:g} s does not fit into a period of {every_s:g} s")
    return Bursts(rate_rps=rate_rps, burst_rps=burst_rps, burst_s=burst_s, every_s=every_s)


def _trace(settings: Settings, over_s: float) -> Trace:
    time_scale, lengths = settings.get("time_scale"), settings.get("trace_lengths")
    return Trace(
        path=str(settings["trace"]),
        time_scale=Trace.time_scale if time_scale is None else float(time_scale),
        lengths=Trace.lengths if lengths is None else bool(lengths),
        block_tokens=int(settings.get("trace_block_tokens") or Trace.block_tokens),
    )


PATTERNS: Mapping[str, PatternKind] = {
    "closed": PatternKind(make=lambda settings, over_s: None, reads=("think_time_s",)),
    "constant": PatternKind(
        make=lambda settings, over_s: Constant(rate_rps=_number(settings, "rate_rps")),
        needs=("rate_rps",),
        reads=SATURATION,
        rate="steady",
    ),
    "poisson": PatternKind(
        make=lambda settings, over_s: Poisson(rate_rps=_number(settings, "rate_rps")),
        needs=("rate_rps",),
        reads=SATURATION,
        rate="steady",
    ),
    "gamma": PatternKind(
        make=lambda settings, over_s: Gamma(
            rate_rps=_number(settings, "rate_rps"), burstiness=_number(settings, "burstiness")
        ),
        needs=("rate_rps", "burstiness"),
        reads=SATURATION,
        rate="steady",
        settings=(
            _number_setting(
                name="burstiness",
                minimum=0.001,
                maximum=1e6,
                help="gamma: shape of the gaps' distribution, as vLLM's. 1 is Poisson, smaller is burstier, larger "
                "is more even.",
            ),
        ),
        examples={"burstiness": "0.5"},
    ),
    "ramp": PatternKind(
        make=lambda settings, over_s: Ramp(
            rate_rps=_number(settings, "rate_rps"), to_rps=_number(settings, "ramp_to_rps"), over_s=over_s
        ),
        needs=("rate_rps", "ramp_to_rps"),
        rate="changing",
        settings=(
            _rate_setting(
                name="ramp_to_rps", help="Rate at the end of a ramp, reached linearly over warm-up and duration."
            ),
        ),
    ),
    "steps": PatternKind(
        make=_steps,
        needs=("step_rates",),
        rate="changing",
        may_end=True,
        settings=(
            Setting(
                name="step_rates",
                type="str",
                role="workload",
                help="steps: rates one after another, '50,100,200', of equal length over warm-up and duration; or "
                "each with its seconds, '50:10,200:5', where the last lasts to the end of the load.",
            ),
        ),
        examples={"step_rates": "50,100,200"},
    ),
    "bursts": PatternKind(
        make=_bursts,
        needs=("rate_rps", "burst_rps", "burst_s", "burst_every_s"),
        rate="changing",
        settings=(
            _rate_setting(name="burst_rps", help="bursts: total rate inside a burst."),
            _time_setting(name="burst_s", minimum=1e-6, help="bursts: length of a burst."),
            _time_setting(
                name="burst_every_s",
                minimum=1e-6,
                help="bursts: period between the starts of bursts. Each lies in the middle of its period.",
            ),
        ),
        examples={"burst_s": "1", "burst_every_s": "10"},
    ),
    "diurnal": PatternKind(
        make=lambda settings, over_s: Diurnal(
            rate_rps=_number(settings, "rate_rps"),
            amplitude=_number(settings, "amplitude"),
            period_s=_number(settings, "period_s"),
        ),
        needs=("rate_rps", "amplitude", "period_s"),
        rate="changing",
        settings=(
            _number_setting(
                name="amplitude",
                minimum=0.0,
                maximum=1.0,
                help="diurnal: amplitude of the rate around `rate_rps`, as a ratio of it.",
            ),
            _time_setting(
                name="period_s", minimum=1e-3, help="diurnal: period of the rate. It begins at the mean, rising."
            ),
        ),
        examples={"amplitude": "0.5", "period_s": "60"},
    ),
    "trace": PatternKind(
        make=_trace,
        needs=("trace",),
        reads=("time_scale", "trace_lengths", "trace_block_tokens"),
        rate="changing",
        may_end=True,
        settings=(
            Setting(
                name="trace",
                type="str",
                role="workload",
                help="trace: file of arrivals to replay: Mooncake's JSONL, Azure's LLM inference CSV, or JSONL with "
                "`at_s`.",
                file=True,
            ),
            Setting(
                name="trace_lengths",
                type="bool",
                role="workload",
                help="trace: whether prompts and replies have the lengths that the file records. None is true.",
            ),
            Setting(
                name="trace_block_tokens",
                type="int",
                role="workload",
                minimum=1,
                maximum=1_000_000,
                unit="tokens",
                help="trace: tokens of each block in `hash_ids`. None is 512, as in Mooncake's traces.",
            ),
            _number_setting(
                name="time_scale",
                minimum=1e-9,
                maximum=1e6,
                help="trace: factor on recorded times. 0.5 is twice as fast. None is 1.",
            ),
        ),
        examples={"trace": "arrivals.jsonl"},
    ),
}

PATTERN = Setting(
    name="pattern",
    type="str",
    role="workload",
    default=LoadProfile.pattern,
    allowed=tuple(PATTERNS),
    help="closed: each of `concurrency` users sends when its last reply is complete. Others are open loop; "
    "`module:name` is a pattern of your own, in a file of the working folder.",
)
CONCURRENCY, *_REST = COMMON_SETTINGS
LOAD_SETTINGS: tuple[Setting, ...] = (
    PATTERN,
    CONCURRENCY,
    RATE,
    *(setting for kind in PATTERNS.values() for setting in kind.settings),
    *_REST,
)
"""Every setting of a load of requests: the pattern, the settings of patterns, and those of every load."""
FINITE_SETTINGS = profile_settings("finite")
"""Every setting of a finite load, but for the defaults of `limit_s` and `timeout_s`: those are the recipe's."""
PROGRAM_SETTINGS = profile_settings("program")
"""The same for a program."""


def load_settings_of(service: Service) -> tuple[Setting, ...]:
    """Return the settings that the loads of a service have."""
    kinds = {"requests": LOAD_SETTINGS, "finite": FINITE_SETTINGS, "program": PROGRAM_SETTINGS}
    defaults: dict[str, Value] = {} if service.load == "requests" else {"limit_s": service.limit_s}
    if service.timeout_s is not None:
        defaults["timeout_s"] = service.timeout_s
    if service.judge is not None:
        defaults["keep_replies"] = True
    settings = kinds[service.load]
    return tuple(
        replace(setting, default=defaults[setting.name]) if setting.name in defaults else setting
        for setting in settings
    )


def kind_of(name: str) -> PatternKind:
    """Return a pattern by its name, or a user's own by `module:name`. Raises ValueError with the mistake."""
    if name in PATTERNS:
        return PATTERNS[name]
    if not is_dotted(name):
        raise ValueError(f"pattern '{name}' is not one of {', '.join(PATTERNS)}")
    return resolved(name, PatternKind)


def has_rate(name: str, rate: Literal["steady", "changing"]) -> bool:
    """Return whether the rate of a pattern is of that kind; a pattern whose module is missing counts as changing."""
    try:
        return kind_of(name).rate == rate
    except ValueError:
        return rate == "changing"


def own_settings(patterns: Iterable[Value]) -> tuple[Setting, ...]:
    """Return the settings that a user's own patterns define. Raises ValueError for one that cannot be imported."""
    kinds = [kind_of(name) for name in dict.fromkeys(map(str, patterns)) if is_dotted(name)]
    return tuple({setting.name: setting for kind in kinds for setting in kind.settings}.values())


def pattern_of(load: LoadProfile) -> Pattern | None:
    """Return the open-loop pattern of a load, None for a closed loop. Raises ValueError.

    Warm-up and duration are the length of a ramp, and of steps without lengths.
    """
    kind = kind_of(load.pattern)
    settings = {**load.parameters, **{setting.name: getattr(load, setting.name) for setting in COMMON_SETTINGS}}
    if missing := [name for name in kind.needs if settings.get(name) is None]:
        raise ValueError(f"pattern '{load.pattern}' needs {', '.join(missing)}")
    return kind.make(settings, load.length_s)


def runs_out(load: LoadProfile, pattern: Pattern, until_s: float, requests: int | None = None) -> bool:
    """Return whether a pattern that may end has no arrival left before `until_s` and none after; False where it has
    `requests` of them. Raises as its `blocks`."""
    if not kind_of(load.pattern).may_end:
        return False
    number = 0
    for block in pattern.blocks(np.random.default_rng(0)):
        inside = int(np.searchsorted(block, until_s, side="left"))
        number += inside
        if requests is not None and number >= requests:
            return False
        if inside < block.size:
            return bool(np.isinf(block[inside]))
    return True


Nanoseconds = npt.NDArray[np.int64]


def schedule(
    pattern: Pattern, *, seed: int, until_s: float, requests: int | None = None, worker: int = 0, workers: int = 1
) -> Iterator[Nanoseconds]:
    """Yield the send times of worker `worker` of `workers`, as arrays of ns from the start of the load.

    Every worker computes the whole sequence and takes arrivals `worker`, `worker + workers`, ... of it, so the number
    of workers does not change the requests. The sequence ends before `until_s`, after `requests` arrivals, or with
    the pattern's own, if it has an end. Constant memory.
    """
    first = 0
    for block in pattern.blocks(np.random.Generator(np.random.PCG64(seed))):
        inside = block[: np.searchsorted(block, until_s, side="left")]
        if requests is not None:
            inside = inside[: requests - first]
        own = inside[(worker - first) % workers :: workers]
        if own.size:
            yield np.rint(own * 1e9).astype(np.int64)
        first += inside.size
        if inside.size < block.size:
            return
