"""Load profile: what every load has, whatever its pattern. Settings of patterns are in patterns/table.py.

Each field has its one default and its limits here, as the setting of its name, in loads of requests unless `loads`
names others. Where the setting has `default=None`, a scenario without it says nothing. A scenario's settings become a
profile by `LoadProfile.of`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seamark.model.annotations import Limits, hints, limited, limits_of, shape_of
from seamark.model.service import LONGEST_S, SHORTEST_TIMEOUT_S, LoadKind, Setting, Value

HIGHEST_RPS = 1e6
"""More than the clients of one machine can send. A load writes one row per due request, sent or not."""
SHORTEST_LATE_S, LATE_RATIO = 1.0, 0.05
"""An open loop sends late requests for this ratio of its duration after its end, and at least for so long."""
AUTO = "auto"
AUTO_RATIO = 0.25
"""With `warmup_s: auto`, the longest warm-up as a ratio of `duration_s`."""

_READ: Mapping[str, Callable[[Any], Value]] = {"int": int, "float": float, "str": str, "bool": bool, "structure": str}
ANY_LOAD: tuple[LoadKind, ...] = ("requests", "finite")


@dataclass(frozen=True, kw_only=True)
class LoadProfile:
    """The load of a trial: how requests are sent, how many and for how long.

    `warmup_s` is the longest warm-up where it is detected (`auto`, then `detects_warmup`). `parameters` has the
    settings that are no field, of which a pattern reads its own, such as `rate_rps` and `trace`. A load with
    `limit_s` is finite, without a warm-up, and lasts so long at most: a closed loop over the items of a work list, or
    a program.
    """

    pattern: str = "closed"
    concurrency: int = limited(
        1,
        minimum=1,
        maximum=65536,
        loads=ANY_LOAD,
        unit="requests",
        help="Closed loop: users. Open loop: connections or threads that may be busy at once.",
    )
    turns: int = limited(
        1,
        default=None,
        minimum=1,
        maximum=100,
        unit="requests",
        help="Requests per session, each sent after the reply to the previous one. Default 1: no sessions.",
    )
    think_time_s: float = limited(
        0.0,
        minimum=0.0,
        maximum=LONGEST_S,
        unit="s",
        help="Pause of a user between a reply and the next request: in a closed loop, and between turns.",
    )
    duration_s: float = limited(
        10.0,
        minimum=0.1,
        maximum=LONGEST_S,
        unit="s",
        help="Length of the measured part of the load, after the warm-up.",
    )
    warmup_s: float = limited(
        1.0,
        minimum=0.0,
        maximum=LONGEST_S,
        unit="s",
        words=(AUTO,),
        help="Load before the measured part; it runs into it without a drain. auto: a quarter of `duration_s`, of "
        "which only a detected start-up is cut, and the rest measured.",
    )
    requests: int | None = limited(
        None,
        minimum=1,
        maximum=10**12,
        help="Stop after this number of requests, if it is reached before the end of the duration.",
    )
    timeout_s: float = limited(
        30.0,
        minimum=SHORTEST_TIMEOUT_S,
        maximum=LONGEST_S,
        loads=ANY_LOAD,
        unit="s",
        help="A request without a complete reply after this time is recorded as timed out, even in the middle of "
        "its reply. Connecting, TLS and every byte count.",
    )
    mix: str | None = limited(
        None,
        type="structure",
        help="Classes of requests, each with a `weight` and settings of its own: {chat: {weight: 3, ...}, ...}.",
    )
    shards: int = limited(
        1,
        minimum=1,
        maximum=1024,
        loads=ANY_LOAD,
        help="Worker processes that share one schedule.",
    )
    stop_when_saturated: bool = limited(
        False,
        default=None,
        help="End the load once the server falls behind permanently: outstanding requests grow. Default false.",
    )
    until_last_reply: bool = limited(
        False,
        default=None,
        help="The load is its `requests`: the measured window goes from the first to the last reply, and "
        "`duration_s` is its time limit. Default false.",
    )
    warmup_items: int = limited(
        0,
        minimum=0,
        maximum=10**9,
        loads=("finite",),
        unit="items",
        help="Items at the start of the load that no metric counts.",
    )
    limit_s: float | None = limited(
        None,
        minimum=0.1,
        maximum=LONGEST_S,
        loads=("finite", "program"),
        unit="s",
        help="A load that has not ended by then has failed: `timeout`.",
    )
    keep_replies: bool = limited(
        False,
        default=None,
        loads=ANY_LOAD,
        help="Keep the bytes of every reply, in replies.parquet. Default false.",
    )
    keep_events: bool = limited(
        False,
        default=None,
        loads=("requests", "finite", "program"),
        help="Record the stages that each request goes through, in events.parquet, where the driver knows any. "
        "Default false.",
    )
    detects_warmup: bool = False
    parameters: Mapping[str, Value] = field(default_factory=dict)

    @staticmethod
    def of(settings: Mapping[str, Value]) -> "LoadProfile":
        """Return the profile of a trial's settings; one that is None or missing has its default."""
        given = dict(settings)
        own: dict[str, Any] = {"pattern": given.pop("pattern", None) or LoadProfile.pattern}
        if settings.get("warmup_s") == AUTO:
            given["warmup_s"] = AUTO_RATIO * float(settings.get("duration_s") or LoadProfile.duration_s)
            own["detects_warmup"] = True
        for setting in PROFILE_SETTINGS:
            value = given.pop(setting.name, None)
            if value is not None:
                own[setting.name] = _READ[setting.type](value)
        if "limit_s" in own:
            own |= {"warmup_s": 0.0, "duration_s": own["limit_s"]}
            own.setdefault("timeout_s", 0.0)  # a program has no requests
        return LoadProfile(**own, parameters=given)

    @property
    def closed(self) -> bool:
        """Whether users send when their last reply is complete, rather than by a schedule."""
        return self.pattern == "closed"

    @property
    def finite(self) -> bool:
        """Whether the load ends when its work is done."""
        return self.limit_s is not None

    @property
    def has_own_end(self) -> bool:
        """Whether the load ends with its items or its requests, which may be long before its time limit."""
        return self.finite or self.until_last_reply

    @property
    def length_s(self) -> float:
        """Latest due time from the start of load: warm-up plus duration. A closed loop sends nothing after it."""
        return self.warmup_s + self.duration_s

    @property
    def late_s(self) -> float:
        """How long after its end an open loop sends what was due before; what is left then is never sent."""
        return 0.0 if self.closed else min(self.timeout_s, max(SHORTEST_LATE_S, LATE_RATIO * self.duration_s))

    @property
    def arrivals(self) -> int | None:
        """Limit on the arrivals of an open loop (session starts), None without one."""
        return None if self.requests is None else -(-self.requests // self.turns)


def _setting(name: str, limits: Limits) -> Setting:
    """Return the setting that sets a field of the profile."""
    _, options = shape_of(hints(LoadProfile)[name])
    facts = {"type": options[0].__name__, "default": getattr(LoadProfile, name), **limits}
    return Setting(name=name, role="workload", **{key: fact for key, fact in facts.items() if key != "loads"})


_LIMITED = {name: limits for name, limits in limits_of(LoadProfile).items() if limits}
PROFILE_SETTINGS: tuple[Setting, ...] = tuple(_setting(name, limits) for name, limits in _LIMITED.items())
"""Settings that are fields of the profile, of every kind of load."""


def profile_settings(kind: LoadKind) -> tuple[Setting, ...]:
    """Return the settings of one kind of load, without those of patterns."""
    return tuple(own for own in PROFILE_SETTINGS if kind in _LIMITED[own.name].get("loads", ("requests",)))


COMMON_SETTINGS = profile_settings("requests")
"""Settings of every load of requests, whatever its pattern."""
