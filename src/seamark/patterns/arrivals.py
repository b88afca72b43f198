"""When requests are due: a trial's pattern, and the one seeded schedule that all its workers share. No clock here."""

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from seamark.model.load_profile import NEEDED, PATTERNS, steps_of
from seamark.model.service import Value
from seamark.patterns.patterns import Bursts, Constant, Diurnal, Gamma, Pattern, Poisson, Ramp, Steps
from seamark.patterns.trace import Trace

Nanoseconds = npt.NDArray[np.int64]


def pattern_of(settings: Mapping[str, Value], over_s: float) -> Pattern | None:
    """Return the open-loop pattern of a trial's settings, None for a closed loop. Raises ValueError.

    `over_s` is the length of the load, warm-up and duration: that of a ramp, and of steps without lengths.
    """
    name = str(settings.get("pattern") or "closed")
    if name not in PATTERNS:
        raise ValueError(f"pattern '{name}' is not one of {', '.join(PATTERNS)}")
    missing = [each for each in NEEDED[name] if settings.get(each) is None]
    if missing:
        raise ValueError(f"pattern '{name}' needs {', '.join(missing)}")

    def number(key: str) -> float:
        return float(settings[key] or 0.0)

    match name:
        case "constant":
            return Constant(rate_rps=number("rate_rps"))
        case "poisson":
            return Poisson(rate_rps=number("rate_rps"))
        case "gamma":
            return Gamma(rate_rps=number("rate_rps"), burstiness=number("burstiness"))
        case "ramp":
            return Ramp(rate_rps=number("rate_rps"), to_rps=number("ramp_to_rps"), over_s=over_s)
        case "steps":
            steps = steps_of(str(settings["step_rates"]))
            lengths_s = tuple(step.length_s or over_s / len(steps) for step in steps)
            return Steps(rates_rps=tuple(step.rate_rps for step in steps), lengths_s=lengths_s)
        case "bursts":
            return _bursts(number("rate_rps"), number("burst_rps"), number("burst_s"), number("burst_every_s"))
        case "diurnal":
            return Diurnal(rate_rps=number("rate_rps"), amplitude=number("amplitude"), period_s=number("period_s"))
        case "trace":
            time_scale = settings.get("time_scale")
            return Trace(path=str(settings["trace"]), time_scale=1.0 if time_scale is None else float(time_scale))
    return None


def _bursts(rate_rps: float, burst_rps: float, burst_s: float, every_s: float) -> Bursts:
    if burst_s >= every_s:
        raise ValueError(f"a burst of {burst_s:g} s does not fit into a period of {every_s:g} s")
    return Bursts(rate_rps=rate_rps, burst_rps=burst_rps, burst_s=burst_s, every_s=every_s)


def schedule(
    pattern: Pattern, *, seed: int, until_s: float, requests: int | None = None, worker: int = 0, workers: int = 1
) -> Iterator[Nanoseconds]:
    """Yield when worker `worker` of `workers` is to send, as arrays of ns from the start of load.

    Every worker makes the whole sequence and takes arrivals `worker`, `worker + workers`, ... of it: one worker or
    sixteen send the same. The sequence ends before `until_s`, after `requests` arrivals, or with the pattern's own,
    if it has an end. Constant memory.
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
