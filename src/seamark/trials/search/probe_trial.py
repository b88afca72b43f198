"""Probes as trials: the folder of a probe, its trial, and the trial of a search with what its best probe found."""

from dataclasses import replace

from seamark.model.digest import digest
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.search_record import Probe
from seamark.model.service import Value
from seamark.model.trial import Trial
from seamark.patterns.table import has_rate
from seamark.planning.identity import seed_of, trial_uuid
from seamark.storage.paths import PROBES


def folder_name(trial: Trial, probe: Probe) -> str:
    """Return the name of a probe's folder: `rate_rps-120`, `rate_rps-120-look2`, `rate_rps-120-again`."""
    assert trial.search is not None
    look = f"-look{probe.look}" if probe.look > 1 else ""
    return f"{trial.search.setting}-{probe.level:.10g}{look}{'-again' if probe.attempt > 1 else ''}"


def probe_trial(trial: Trial, probe: Probe, scenario: str) -> Trial:
    """Return the trial of a probe. Its id is the path of its folder in the scenario's."""
    assert trial.search is not None
    name = f"{trial.id}/{PROBES}/{folder_name(trial, probe)}"
    seed = seed_of(trial.seed, trial.search.setting, probe.level, probe.look - 1, probe.attempt)
    told: dict[str, Value] = {trial.search.setting: probe.level}
    if probe.times > 1:
        told["duration_s"] = probe.times * trial.load.duration_s
    if has_rate(trial.load.pattern, "steady"):
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


def found_trial(trial: Trial, load: LoadRecord) -> Trial:
    """Return a search's trial with the settings of its best probe, by load.json; any other trial unchanged."""
    probe = load.probe
    if trial.search is None or probe is None:
        return trial
    told: dict[str, Value] = {trial.search.setting: probe.level}
    if probe.times > 1:
        told["duration_s"] = probe.times * trial.load.duration_s
    return replace(
        trial,
        settings={**trial.settings, **told},
        changed={**trial.changed, **told},
        config_hash=probe.config_hash,
    )
