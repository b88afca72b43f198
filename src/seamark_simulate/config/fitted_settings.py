"""Checks of a workload of the service `fitted`: its model, its load, and both together."""

from collections.abc import Iterator, Mapping

import numpy as np

from seamark.config.levels import combinations
from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import UserError
from seamark.model.scenario import Workload
from seamark.model.service import Service, Value
from seamark.patterns.table import PATTERNS
from seamark_simulate.config.fitted_load import RECORDED, FittedLoad
from seamark_simulate.model.fitted_model import StationModel, contradiction_of
from seamark_simulate.simulation.fitted_service import outside, ranges_of, serve_fitted

OF_REPLICAS = (
    "kv_blocks", "max_num_seqs", "max_num_batched_tokens", "prompt_tokens", "reply_tokens", "cached_tokens",
)  # fmt: skip
SIMULATED = ("poisson", "constant", "gamma", "ramp", "steps", "bursts", "diurnal")
OF_PATTERNS: Mapping[str, tuple[str, ...]] = {
    **{name: PATTERNS[name].needs for name in SIMULATED},
    RECORDED: ("requests_file",),
}
"""Settings that a pattern needs; the others of these have no effect with it."""
PLANNED_SEED = 0
PLANNED_REQUESTS = 20_000
"""The first requests of a load that a check simulates at most: a plan waits for it. A trial takes all of its own."""


def check_fitted(item: Item, workload: Workload, service: Service, repetitions: int, mistakes: Mistakes) -> None:
    """Note what is wrong with each combination of levels, once, whatever the number of repetitions is."""
    known = {setting.name for setting in service.settings}
    if any(name in item.value and name not in workload.levels for name in known):
        return
    noted: set[str] = set()
    for values in combinations(workload, service.settings):
        for name, text in _mistakes(values, workload):
            if text not in noted:
                noted.add(text)
                mistakes.add(item.value.get(name, item), text)


def _mistakes(values: Mapping[str, Value], workload: Workload) -> Iterator[tuple[str, str]]:
    pattern = str(values["pattern"])
    needed = OF_PATTERNS[pattern]
    entries = (entry["pattern"] for entry in workload.include if "pattern" in entry)
    levels = {pattern, *map(str, workload.levels.get("pattern", ())), *map(str, entries)}
    read = {name for level in levels for name in OF_PATTERNS[level]}
    wrong = False
    for name in dict.fromkeys(setting for names in OF_PATTERNS.values() for setting in names):
        if name in needed and values[name] is None:
            wrong = True
            yield "pattern", f"the pattern '{pattern}' needs '{name}'. Add it, or choose another pattern."
        elif name not in read and values[name] is not None:
            wrong = True
            users = " or ".join(user for user, names in OF_PATTERNS.items() if name in names)
            yield name, f"has no effect with the pattern '{pattern}'. Remove it, or set 'pattern' to {users}."
    paths = [str(values[name]) for name in ("model_file", "requests_file") if values[name] is not None]
    if wrong or any(path not in workload.contents for path in paths):
        return  # a missing file is noted already; `$NAME` may be known elsewhere
    load = FittedLoad(settings=values)
    try:
        model = load.service.model
    except UserError as error:
        for line in error.lines:
            yield ("model_file" if values["model"] is None else "model"), line
        return
    if not model.fit_for_plans:
        why = f"{model.name} is unfit for plans: {contradiction_of(model)}."
        yield "model_file", f"{why} Measure its trials again without other work, or name another model."
    if isinstance(model, StationModel):
        for name in OF_REPLICAS:
            if values[name] is not None:
                yield name, f"has no effect: {model.name} is a station, which knows no tokens. Remove it."
    try:
        requests = load.requests(PLANNED_SEED)
    except UserError as error:
        for line in error.lines:
            yield "requests_file" if load.is_recorded else "rate_rps", line
        return
    except ValueError as error:
        yield "pattern", f"{error}."
        return
    if not len(requests) or not (requests.arrival_s >= load.warmup_s).any():
        yield "duration_s", "no request is due after the warm-up. Raise duration_s, or lower warmup_s."
        return
    longest = int(np.argmax(requests.held_at_end))
    try:
        serve_fitted(load.service, requests.part(slice(longest, longest + 1)), PLANNED_SEED)
        found = outside(load.service, requests, load.rate_rps(requests.arrival_s), simulated=PLANNED_REQUESTS)
    except UserError as error:
        for line in error.lines:
            yield "model", f"{model.name}: {line}"
        return
    if found and not values["extrapolate"]:
        ranges = ranges_of(model)
        parts = [
            f"{name} {value:.4g} ({f'{known.low:.4g} to {known.high:.4g}' if known else 'none'})"
            for name, value in found.items()
            for known in (ranges.get(name),)
        ]
        yield (
            "model_file",
            (
                f"{model.name} with {load.service.replicas} replicas: outside of the trials of the fit:"
                f" {', '.join(parts)}."
                " 'extrapolate: true' simulates it all the same, and marks it SUSPECT."
            ),
        )
