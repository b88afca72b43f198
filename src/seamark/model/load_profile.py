"""The settings that every workload has: how its load is shaped, and what some of them name in a text.

Arrivals themselves are made in load/; what a trace holds is read in patterns/trace_file.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from seamark.model.service import Setting, Value

PATTERNS = ("closed", "constant", "poisson", "gamma", "ramp", "steps", "bursts", "diurnal", "trace")

CHANGING = ("ramp", "steps", "bursts", "diurnal", "trace")
"""Patterns whose rate is meant to change, so that a load of them is not meant to be steady."""

STEADY = ("constant", "poisson", "gamma")
"""Open-loop patterns of one rate."""

NEEDED: dict[str, tuple[str, ...]] = {
    "closed": (),
    "constant": ("rate_rps",),
    "poisson": ("rate_rps",),
    "gamma": ("rate_rps", "burstiness"),
    "ramp": ("rate_rps", "ramp_to_rps"),
    "steps": ("step_rates",),
    "bursts": ("rate_rps", "burst_rps", "burst_s", "burst_every_s"),
    "diurnal": ("rate_rps", "amplitude", "period_s"),
    "trace": ("trace",),
}
OPTIONAL: dict[str, tuple[str, ...]] = {
    "closed": ("think_time_s",),
    "trace": ("time_scale", "trace_lengths"),
    **dict.fromkeys(STEADY, ("stop_when_saturated",)),
}
"""What a pattern reads besides, of the settings that not all patterns read."""

HIGHEST_RPS = 1e6
"""More than the clients of one machine can send. A load writes one row for each request that is due, sent or not."""
LONGEST_S = 604800.0
"""A week."""

DURATION_S = 10.0
AUTO = "auto"
AUTO_RATIO = 0.25
"""With `warmup_s: auto` the longest warm-up is so much of `duration_s`."""

LOAD_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="pattern",
        type="str",
        role="workload",
        default="closed",
        allowed=PATTERNS,
        help="closed: each of `concurrency` users sends when its last reply is in. Others are open loop.",
    ),
    Setting(
        name="concurrency",
        type="int",
        role="workload",
        default=1,
        minimum=1,
        maximum=65536,
        unit="requests",
        help="Closed loop: users. Open loop: connections or threads that may be busy at once.",
    ),
    Setting(
        name="rate_rps",
        type="float",
        role="workload",
        minimum=1e-6,
        maximum=HIGHEST_RPS,
        unit="requests/s",
        help="Mean rate of an open loop; where a ramp starts; the rate outside of bursts.",
    ),
    Setting(
        name="ramp_to_rps",
        type="float",
        role="workload",
        minimum=1e-6,
        maximum=HIGHEST_RPS,
        unit="requests/s",
        help="Rate at the end of a ramp, reached linearly over warm-up and duration.",
    ),
    Setting(
        name="burstiness",
        type="float",
        role="workload",
        minimum=0.001,
        maximum=1e6,
        help="gamma: shape of the gaps' distribution, as vLLM's. 1 is Poisson, less is burstier, more is more even.",
    ),
    Setting(
        name="step_rates",
        type="str",
        role="workload",
        help="steps: rates one after the other, '50,100,200', of equal length over warm-up and duration; or each "
        "with its seconds, '50:10,200:5', of which the last goes on to the end of load.",
    ),
    Setting(
        name="burst_rps",
        type="float",
        role="workload",
        minimum=1e-6,
        maximum=HIGHEST_RPS,
        unit="requests/s",
        help="bursts: the whole rate inside a burst.",
    ),
    Setting(
        name="burst_s",
        type="float",
        role="workload",
        minimum=1e-6,
        maximum=LONGEST_S,
        unit="s",
        help="bursts: length of one.",
    ),
    Setting(
        name="burst_every_s",
        type="float",
        role="workload",
        minimum=1e-6,
        maximum=LONGEST_S,
        unit="s",
        help="bursts: from the start of one to the start of the next. Each lies in the middle of such a period.",
    ),
    Setting(
        name="amplitude",
        type="float",
        role="workload",
        minimum=0.0,
        maximum=1.0,
        help="diurnal: how far the rate swings to each side of `rate_rps`, as a part of it.",
    ),
    Setting(
        name="period_s",
        type="float",
        role="workload",
        minimum=1e-3,
        maximum=LONGEST_S,
        unit="s",
        help="diurnal: length of one swing. It begins at the mean, on the way up.",
    ),
    Setting(
        name="trace",
        type="str",
        role="workload",
        help="trace: file of arrivals to replay: Mooncake's JSONL, Azure's LLM inference CSV, or JSONL with `at_s`.",
    ),
    Setting(
        name="trace_lengths",
        type="bool",
        role="workload",
        help="trace: whether prompts and replies have the lengths that the file records. None is true.",
    ),
    Setting(
        name="time_scale",
        type="float",
        role="workload",
        minimum=1e-9,
        maximum=1e6,
        help="trace: factor on its times. 0.5 is twice as fast. None is 1.",
    ),
    Setting(
        name="turns",
        type="int",
        role="workload",
        minimum=1,
        maximum=100,
        unit="requests",
        help="Requests of a session, each sent when the reply to the one before is in. None is 1: no sessions.",
    ),
    Setting(
        name="think_time_s",
        type="float",
        role="workload",
        default=0.0,
        minimum=0.0,
        maximum=LONGEST_S,
        unit="s",
        help="Pause of a user between a reply and the next request: in a closed loop, and between turns.",
    ),
    Setting(
        name="duration_s",
        type="float",
        role="workload",
        default=DURATION_S,
        minimum=0.1,
        maximum=LONGEST_S,
        unit="s",
        help="Length of the measured part of the load, after the warm-up.",
    ),
    Setting(
        name="warmup_s",
        type="float",
        role="workload",
        default=1.0,
        minimum=0.0,
        maximum=LONGEST_S,
        unit="s",
        words=(AUTO,),
        help="Load before the measured part; it runs into it without a drain. auto: a quarter of `duration_s`, of "
        "which only a start-up is cut off, and the rest measured.",
    ),
    Setting(
        name="requests",
        type="int",
        role="workload",
        minimum=1,
        maximum=10**12,
        help="Stop after so many requests, if that comes before the end of the duration.",
    ),
    Setting(
        name="timeout_s",
        type="float",
        role="workload",
        default=30.0,
        minimum=0.001,
        maximum=LONGEST_S,
        unit="s",
        help="A request with no complete reply this long after it was sent is recorded as timed out, however much of "
        "its reply has come: connecting, TLS and every byte are in it.",
    ),
    Setting(
        name="mix",
        type="str",
        role="workload",
        help="Classes of requests, each with a `weight` and settings of its own: {chat: {weight: 3, ...}, ...}.",
    ),
    Setting(
        name="shards",
        type="int",
        role="workload",
        default=1,
        minimum=1,
        maximum=1024,
        help="Worker processes that share one schedule.",
    ),
    Setting(
        name="stop_when_saturated",
        type="bool",
        role="workload",
        help="End the load as soon as the server falls behind for good: outstanding requests grow. None is false.",
    ),
)


def warmup_of(settings: Mapping[str, Value]) -> float:
    """Return the warm-up that a load has by its settings, the longest one where it is `auto`, in seconds."""
    warmup = settings.get("warmup_s")
    return AUTO_RATIO * duration_of(settings) if warmup == AUTO else float(warmup or 0.0)


def duration_of(settings: Mapping[str, Value]) -> float:
    """Return the length of the measured part that a load asks for, in seconds."""
    duration_s = settings.get("duration_s")
    return DURATION_S if duration_s is None else float(duration_s)


def load_length_of(settings: Mapping[str, Value]) -> float:
    """Return how long a load is: warm-up and duration, in seconds."""
    return warmup_of(settings) + duration_of(settings)


@dataclass(frozen=True, kw_only=True)
class Step:
    """A rate that holds for `length_s` seconds; None: for as long as every other step."""

    rate_rps: float
    length_s: float | None


def steps_of(text: str) -> tuple[Step, ...]:
    """Return the steps that a `step_rates` names. Raises ValueError that says what is wrong and how to write it."""
    steps = tuple(_step(part.strip()) for part in text.split(","))
    if len({step.length_s is None for step in steps}) > 1:
        raise ValueError("either every step has its seconds ('50:10,200:5') or none has ('50,200')")
    if len(steps) < 2:
        raise ValueError("one rate is no step: write several, such as '50,100,200', or set 'pattern' to constant")
    if not any(step.rate_rps for step in steps):
        raise ValueError("a load in which every rate is 0 sends nothing")
    return steps


def _step(part: str) -> Step:
    rate, colon, length = part.partition(":")
    try:
        step = Step(rate_rps=float(rate), length_s=float(length) if colon else None)
    except ValueError:
        raise ValueError(f"'{part}' is no rate: write rates such as '50,100,200' or '50:10,200:5'") from None
    if not (0 <= step.rate_rps <= HIGHEST_RPS and (step.length_s is None or 0 < step.length_s <= LONGEST_S)):
        raise ValueError(
            f"'{part}': a rate is 0 to {HIGHEST_RPS:.0f} requests/s, and its seconds are more than 0 and at most"
            f" {LONGEST_S:.0f}"
        )
    return step
