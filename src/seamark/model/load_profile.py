"""Settings that every load has, whatever its pattern, and the lengths that follow from them.

Settings of patterns are in patterns/table.py.
"""

from collections.abc import Mapping

from seamark.model.service import Setting, Value

HIGHEST_RPS = 1e6
"""More than the clients of one machine can send. A load writes one row for each request that is due, sent or not."""
LONGEST_S = 604800.0
"""A week."""

DURATION_S = 10.0
AUTO = "auto"
AUTO_RATIO = 0.25
"""With `warmup_s: auto` the longest warm-up is so much of `duration_s`."""

COMMON_SETTINGS: tuple[Setting, ...] = (
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
"""Settings of every load, whatever its pattern."""


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
