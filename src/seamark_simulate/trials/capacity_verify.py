"""The scenario that measures a capacity plan below, at and above its load, with what the plan predicts of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from seamark.config.workload import NAME
from seamark.errors import UserError
from seamark.model.scenario import PredictedLoad, Prediction, Slo
from seamark.model.service import Service
from seamark.stats.quantiles import samples_needed
from seamark.storage.codec import encode
from seamark_simulate.fit.planned_load import QUANTILES, Objective, PlannedLoad, objective_of
from seamark_simulate.fit.prediction import CONFIDENCE, predicted_of
from seamark_simulate.fit.service_model import ServiceModel
from seamark_simulate.model.capacity_plan import CapacityPlan
from seamark_simulate.model.fitted_model import ReplicaModel
from seamark_simulate.trials.capacity_judged import EXTRAPOLATED, nearest_inside
from seamark_simulate.trials.capacity_layouts import Choice

FACTORS = (0.8, 1.0, 1.2)
"""Loads of the scenario over the planned one."""
APART = 0.02
"""Loads nearer than this to the planned one are left out."""
REPETITIONS = 3
CONNECTIONS = 256
DIGITS = 4
WIDTH = 110


def require_new_scenario(path: Path) -> str:
    """Return the name of the scenario that a file will hold. Raises UserError for a file that cannot be one."""
    name = path.stem
    if path.suffix not in (".yaml", ".yml") or not NAME.fullmatch(name) or "--" in name:
        raise UserError(
            f"--verify {path}: no name of a scenario's file. Name one such as {path.parent / 'plan.yaml'}."
        )
    if path.exists():
        raise UserError(f"--verify {path}: it exists already. Name another file, or remove it.")
    if not path.absolute().parent.is_dir():
        raise UserError(f"--verify {path}: no folder {path.parent}. Name a file in a folder that exists.")
    return name


def verifying_scenario(
    name: str,
    path: Path,
    plan: CapacityPlan,
    load: PlannedLoad,
    planned: Choice,
    slos: Sequence[Slo],
    recipes: Mapping[str, Service],
) -> str:
    """Return the text of the scenario. Raises UserError for a fit that does not say how its server was started."""
    model, service, layout = planned.model, planned.service, planned.layout
    assert model is not None
    assert service is not None
    server = model.server
    if not server.settings or not server.resources:
        remedy = (
            "Run `bench fit` again." if model.sources else "Fit measured trials with `bench fit`, or leave it out."
        )
        raise UserError(f"--verify: {plan.fit} does not say how {model.name} was started. {remedy}")
    if model.service not in recipes:
        raise UserError(f"--verify: no recipe of '{model.service}' in config/services. Add it to this study.")
    recipe = recipes[model.service]
    count, share, notes = layout.replicas or 1, 1.0, [plan.sentence]
    if count > 1 and recipe.replicas is None:
        notes.append(
            f"The recipe {recipe.name} has no setting for {count} replicas, so one is measured with its share of the"
            " load; the router is not."
        )
        count, share = 1, 1 / count
    planned_rps = share * load.rate_rps
    loads = _loads(service, replace(load, rate_rps=planned_rps), count, notes, extrapolate=plan.question.extrapolate)
    objectives = tuple(objective_of(slo, service.times) for slo in slos)
    predictions = tuple(
        _predicted(service, count, point, objectives, trials=plan.question.trials, seed=plan.question.seed)
        for point in loads
    )
    workload: dict[str, object] = {"service": model.service, **server.settings}
    if isinstance(model, ReplicaModel):
        workload |= {"prompt_len": load.prompt_tokens, "gen_tokens": load.reply_tokens}
    if recipe.replicas is not None:
        workload[recipe.replicas] = count
    busy = workload.get("concurrency")
    workload |= {
        "pattern": "poisson",
        "rate_rps": [predicted.rate_rps for predicted in predictions],
        "concurrency": max(busy if type(busy) is int else 0, CONNECTIONS),
        "duration_s": load.duration_s,
        "warmup_s": load.warmup_s,
        "slos": [objective.name for objective in objectives],
    }
    prediction = Prediction(
        loads=predictions,
        interval=CONFIDENCE,
        fit=plan.fit,
        notes=" ".join(notes),
    )
    gpus = count * layout.gpus_per_replica
    places = {"site": server.site, "partition": server.partition, "account": server.account}
    document = {
        "scenario": name,
        **{key: value for key, value in places.items() if value is not None and value != "local"},
        "repetitions": REPETITIONS,
        "resources": dict(server.resources) | ({"gpus": gpus} if gpus else {}),
        "workload": workload,
    }
    head = (
        f"# Measures a plan of bench capacity below, at and above its load: bench submit -c {path}\n"
        f"# Prediction against measurement: bench capacity --score {path}\n"
    )
    return head + _yaml(document) + "\n" + _yaml({"prediction": _shown(prediction)})


def _yaml(document: object) -> str:
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=WIDTH, default_flow_style=None))


def _loads(
    service: ServiceModel, load: PlannedLoad, count: int, notes: list[str], *, extrapolate: bool
) -> list[PlannedLoad]:
    """Return the loads below, at and above the planned one, moved into the fit unless it may be left; add a note for
    each that was moved or left out."""
    planned = load.rate_rps
    loads: list[PlannedLoad] = []
    for factor in FACTORS:
        rate = planned * factor
        if not extrapolate and factor != 1:
            inside = nearest_inside(service, load, count, rate)
            if abs(inside / rate - 1) > 1e-6:
                notes.append(f"{_rounded(rate):g} requests/s lie outside of the fit.")
            rate = inside
        if factor == 1 or abs(rate / planned - 1) > APART:
            loads.append(replace(load, rate_rps=_rounded(rate)))
    return loads


def _rounded(rate: float) -> float:
    return float(f"{rate:.{DIGITS}g}")


def _predicted(
    service: ServiceModel, count: int, load: PlannedLoad, objectives: Sequence[Objective], *, trials: int, seed: int
) -> PredictedLoad:
    """Simulate trials of one load, and return the figures that they would measure, with intervals."""
    wanted = _figures(service, load, objectives)
    values: dict[str, list[float]] = {name: [] for name in ("requests_per_s", *wanted)}
    met = 0
    for number in range(trials):
        trial = service.trial(load, count, number, seed)
        values["requests_per_s"].append(trial.requests_per_s)
        for name, figure in wanted.items():
            values[name].append(figure.value_s(trial.times_s[figure.of]))
        met += all(objective.value_s(trial.times_s[objective.of]) <= objective.limit_s for objective in objectives)
    rows = {name: vars(predicted_of(column)).values() for name, column in values.items()}
    return PredictedLoad(
        rate_rps=load.rate_rps,
        met=round(met / trials, 4),
        figures={name: tuple(float(f"{value:.5g}") for value in row) for name, row in rows.items()},
        suspect=EXTRAPOLATED if service.outside(load, count) else None,
    )


def _figures(service: ServiceModel, load: PlannedLoad, objectives: Sequence[Objective]) -> dict[str, Objective]:
    """Return the figures that are predicted: mean, p50 and p99 of the main times, as far as a trial has enough
    requests, and those of the objectives."""
    main = ("latency", "ttft", "tpot") if "ttft" in service.times else ("latency",)
    expected = load.rate_rps * load.duration_s
    names = [
        f"{time}_{statistic}_s"
        for time in main
        for statistic in ("mean", "p50", "p99")
        if statistic == "mean" or samples_needed(QUANTILES[statistic]) <= expected
    ]
    asked = {objective.name.partition(" ")[0]: objective for objective in objectives}
    limit = float("inf")
    return {name: objective_of(Slo(metric=name, op="<=", limit=limit), service.times) for name in names} | asked


def _shown(prediction: Prediction) -> dict[str, object]:
    """Return a prediction as its block in the scenario, without what it does not say."""
    loads = [{key: value for key, value in encode(load).items() if value is not None} for load in prediction.loads]
    return {"fit": prediction.fit, "interval": prediction.interval, "notes": prediction.notes, "loads": loads}
