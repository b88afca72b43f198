"""search.json: the probes and the state of a search. Written again after each probe; read when the search resumes."""

from dataclasses import replace
from typing import Any

from seamark.model.digest import digest
from seamark.model.results.load_record import LoadRecord, SearchOutcome
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.model.server_identity import ServerRecord
from seamark.model.service import Value
from seamark.model.trial import SCHEMA_VERSION, Trial
from seamark.patterns.table import has_rate
from seamark.planning.identity import seed_of, trial_uuid
from seamark.storage import paths
from seamark.storage.codec import encode
from seamark.storage.paths import PROBES, TrialFolder, read_json
from seamark.telemetry import provenance
from seamark.trials.search.steps import Probe, SearchResult, Verdict


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


Document = dict[str, Any]


class SearchRecord:
    """The record of one search, as it grows. Time that probes of an earlier run took counts as spent."""

    def __init__(self, trial: Trial, folder: TrialFolder, server: ServerRecord) -> None:
        assert trial.search is not None
        search = trial.search
        self._trial = trial
        self._folder = folder
        self._before = _spent_before(folder)
        self._begun = False
        self._document: Document = {
            "schema_version": SCHEMA_VERSION,
            "trial": trial.id,
            "trial_id": trial.trial_id,
            "config_hash": trial.config_hash,
            "server_identity": encode(server.brief()),
            "setting": search.setting,
            "from": search.level(search.from_level),
            "to": search.level(search.to_level),
            "within": search.within,
            "confirm": search.confirm,
            "slos": [{"metric": slo.metric, "op": slo.op, "limit": slo.limit} for slo in trial.slos],
            "budget_s": search.budget_s,
            "spent_s": 0.0,
            "outcome": None,
            "found": None,
            "confirmed": False,
            "bracket": [None, None],
            "confidence": None,
            "running": None,
            "probes": [],
        }

    @property
    def spent_s(self) -> float:
        """Total seconds of all probes so far, metrics included."""
        return float(self._document["spent_s"])

    def took_s(self, folder: str, took_s: float) -> float:
        """Return the duration of a probe: the recorded one of an earlier run of this search, else `took_s`."""
        return self._before.get(folder, took_s)

    def begin(self, probe: Probe) -> None:
        """Record the current probe. Nothing is written before the first: until then the old record is read."""
        self._begun = True
        number = len(self._document["probes"]) + 1
        folder = folder_name(self._trial, probe)
        self._document["running"] = {"probe": number, "level": probe.level, "folder": folder, "at": provenance.now()}
        self._write()

    def add(
        self,
        probe: Probe,
        folder: str,
        verdict: Verdict,
        why: str,
        metrics: TrialMetrics,
        load: LoadRecord,
        took_s: float,
    ) -> None:
        """Add the verdict of a probe."""
        self._document["spent_s"] = round(self.spent_s + took_s, 3)
        self._document["running"] = None
        self._document["probes"].append(
            {
                "level": probe.level,
                "look": probe.look,
                "attempt": probe.attempt,
                "times": probe.times,
                "verdict": verdict,
                "why": why,
                "slos": encode(metrics.slos),
                "requests": metrics.counts.requests,
                "achieved_rps": metrics.achieved_rps,
                "over_saturated_at_s": load.over_saturated_at_s,
                "trial_verdict": metrics.verdict,
                "reasons": [reason.code for reason in metrics.reasons],
                "spent_s": round(took_s, 3),
                "folder": f"{self._folder.probes.name}/{folder}",
            }
        )
        if self._begun:
            self._write()

    def end(self, found: SearchResult) -> SearchOutcome:
        """Record the result of the search; return the part that load.json and metrics.json keep."""
        ended = {"outcome": found.outcome, "found": found.found, "confirmed": found.confirmed}
        self._document |= {**ended, "bracket": list(found.bracket), "confidence": found.confidence, "running": None}
        self._write()
        return SearchOutcome(
            setting=self._document["setting"],
            outcome=found.outcome,
            found=found.found,
            confirmed=found.confirmed,
            bracket=found.bracket,
            confidence=found.confidence,
            spent_s=self.spent_s,
            probes=len(self._document["probes"]),
        )

    def _write(self) -> None:
        paths.write_json(self._folder.search, self._document)


def _spent_before(folder: TrialFolder) -> dict[str, float]:
    """Return the durations of probes recorded by an earlier run of this search, by folder name."""
    try:
        probes = read_json(folder.search)["probes"]
        return {str(probe["folder"]).rpartition("/")[2]: float(probe["spent_s"]) for probe in probes}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
