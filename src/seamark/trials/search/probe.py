"""A probe as a trial of its own: name, settings, seed and identity; and a search's trial once its load is found."""

from dataclasses import replace

from seamark.model.digest import digest
from seamark.model.results.load_record import LoadRecord
from seamark.model.service import Value
from seamark.model.trial import Trial
from seamark.patterns.table import has_rate
from seamark.planning.identity import seed_of, trial_uuid
from seamark.storage.paths import PROBES
from seamark.trials.search.steps import Probe


def folder_name(trial: Trial, probe: Probe) -> str:
    """Return the name of a probe's folder: `rate_rps-120`, `rate_rps-120-look2`, `rate_rps-120-again`."""
    assert trial.search is not None
    look = f"-look{probe.look}" if probe.look > 1 else ""
    return f"{trial.search.setting}-{probe.level:.10g}{look}{'-again' if probe.attempt > 1 else ''}"


def probe_trial(trial: Trial, probe: Probe, scenario: str) -> Trial:
    """Return the trial that a probe is. Its id is the path of its folder in the scenario's."""
    assert trial.search is not None
    name = f"{trial.id}/{PROBES}/{folder_name(trial, probe)}"
    seed = seed_of(trial.seed, trial.search.setting, probe.level, probe.look - 1, probe.attempt)
    told: dict[str, Value] = {trial.search.setting: probe.level}
    if probe.times > 1:
        told["duration_s"] = probe.times * duration_of(trial)
    if has_rate(trial.settings.get("pattern"), "steady"):
        told["stop_when_saturated"] = True
    return replace(
        trial,
        id=name,
        trial_id=trial_uuid(scenario, name),
        settings={**trial.settings, **told},
        changed={**trial.changed, **told},
        seed=seed,
        config_hash=digest({"search": trial.config_hash, "settings": told, "seed": seed}),
        search=None,
    )


def duration_of(trial: Trial) -> float:
    """Return how long a probe's first look takes, without its warm-up: the scenario's `duration_s`."""
    return float(trial.settings["duration_s"])  # type: ignore[arg-type]


def found_trial(trial: Trial, load: LoadRecord) -> Trial:
    """Return a search's trial as its best probe measured it, as load.json says; any other trial as it is."""
    probe = load.probe
    if trial.search is None or probe is None:
        return trial
    told: dict[str, Value] = {trial.search.setting: probe.level}
    if probe.times > 1:
        told["duration_s"] = probe.times * duration_of(trial)
    return replace(
        trial,
        settings={**trial.settings, **told},
        changed={**trial.changed, **told},
        config_hash=probe.config_hash,
    )
