"""Models of the servers that some trials were measured on, with their scores, as the document of `bench fit`."""

from datetime import UTC, datetime

from seamark.errors import UserError
from seamark.fit import Scored, contradictions, fit_station, score
from seamark.fit.station_fit import Draw
from seamark.model.results.fitted_model import FitScore, StationModel, FittedModels, StationParameters
from seamark.trials.simulation.fit_inputs import FitGroup, FitInputs

SCORE_DRAWS = 100


def fitted_models(inputs: FitInputs, *, servers: int | None, seed: int) -> FittedModels:
    """Fit a station to each group of trials. Raises UserError where no group can be fitted, with all reasons."""
    stations, reasons = [], []
    for group in inputs.groups:
        try:
            stations.append(_fitted(group, servers, seed))
        except ValueError as reason:
            reasons.append(f"{group.name}: {reason}.")
    if not stations:
        counts: dict[str, int] = {}
        for each in inputs.left_out:
            counts[str(each.why)] = counts.get(str(each.why), 0) + 1
        reasons += [f"{count} left out: {why}." for why, count in counts.items()]
        raise UserError(
            f"bench fit: no model can be fitted. {' '.join(reasons)} A fit needs open loads of one server, such as"
            " `pattern: poisson` with several `rate_rps` and repetitions."
        )
    return FittedModels(
        fitted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seed=seed,
        machines=tuple(sorted(inputs.machines)),
        stations=tuple(stations),
        left_out=tuple(inputs.left_out),
    )


def _fitted(group: FitGroup, servers: int | None, seed: int) -> StationModel:
    station = fit_station(group.trials, servers=servers, seed=seed)
    scores: tuple[Scored, ...] = ()
    why_no_score = None
    try:
        scores = score(group.trials, servers=servers, seed=seed, draws=SCORE_DRAWS)
    except ValueError as reason:
        why_no_score = str(reason)
    rates = [trial.rate_rps for trial in group.trials]
    return StationModel(
        name=group.name,
        service=group.service,
        servers=station.servers,
        family=station.service.family,
        parameters=_parameters(Draw(service=station.service, overhead_s=station.overhead_s)),
        between=station.between,
        loads=station.loads,
        rates_rps=(min(rates), max(rates)),
        requests=station.requests,
        out_of_order=station.out_of_order,
        sources=tuple(group.sources),
        contradictions=contradictions(station, group.trials),
        scores=tuple(FitScore(**vars(each)) for each in scores),
        why_no_score=why_no_score,
        draws=tuple(map(_parameters, station.draws)),
    )


def _parameters(draw: Draw) -> StationParameters:
    return StationParameters(mean_s=draw.service.mean_s, variation=draw.service.variation, overhead_s=draw.overhead_s)
