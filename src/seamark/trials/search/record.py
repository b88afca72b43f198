"""search.json: the probes and the state of a search. Written again after each probe; read when the search resumes."""

from dataclasses import replace

from seamark.model.digest import digest
from seamark.model.results.load_record import LoadRecord, SearchOutcome
from seamark.model.results.search_record import ProbeResult, RunningProbe, SearchRecord
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.model.server_identity import ServerRecord
from seamark.model.service import Value
from seamark.model.trial import SCHEMA_VERSION, Trial
from seamark.patterns.table import has_rate
from seamark.planning.identity import seed_of, trial_uuid
from seamark.storage.documents import read_or_none, write
from seamark.storage.paths import PROBES, TrialFolder
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


class SearchWriter:
    """Writes search.json as a search goes on. Seconds that probes of an earlier run took count as spent."""

    def __init__(self, trial: Trial, folder: TrialFolder, server: ServerRecord) -> None:
        assert trial.search is not None
        search, earlier = trial.search, read_or_none(folder.search, SearchRecord)
        self._trial = trial
        self._folder = folder
        self._took_s = {probe.folder.rpartition("/")[2]: probe.spent_s for probe in earlier.probes} if earlier else {}
        self._begun = False
        self._record = SearchRecord(
            schema_version=SCHEMA_VERSION,
            trial=trial.id,
            trial_id=trial.trial_id,
            config_hash=trial.config_hash,
            server_identity=server.brief(),
            setting=search.setting,
            from_level=search.level(search.from_level),
            to_level=search.level(search.to_level),
            within=search.within,
            confirm=search.confirm,
            slos=trial.slos,
            budget_s=search.budget_s,
        )

    def took_s(self, folder: str, took_s: float) -> float:
        """Return how long a probe took: what an earlier run of this search has recorded, else `took_s`."""
        return self._took_s.get(folder, took_s)

    def begin(self, probe: Probe) -> None:
        """Record the running probe. Nothing is written before the first: until then an earlier record is read."""
        self._begun = True
        number, folder = len(self._record.probes) + 1, folder_name(self._trial, probe)
        running = RunningProbe(probe=number, level=probe.level, folder=folder, at=provenance.now())
        self._record = replace(self._record, running=running)
        write(self._folder.search, self._record)

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
        """Add a finished probe."""
        result = ProbeResult(
            level=probe.level,
            look=probe.look,
            attempt=probe.attempt,
            times=probe.times,
            verdict=verdict,
            why=why,
            slos=metrics.slos,
            requests=metrics.counts.requests,
            achieved_rps=metrics.achieved_rps,
            over_saturated_at_s=load.over_saturated_at_s,
            trial_verdict=metrics.verdict,
            reasons=tuple(reason.code for reason in metrics.reasons),
            spent_s=round(took_s, 3),
            folder=f"{self._folder.probes.name}/{folder}",
        )
        spent_s = round(self._record.spent_s + took_s, 3)
        self._record = replace(self._record, spent_s=spent_s, running=None, probes=(*self._record.probes, result))
        if self._begun:
            write(self._folder.search, self._record)

    def end(self, found: SearchResult) -> SearchOutcome:
        """Record the result of the search; return the part that load.json and metrics.json keep."""
        outcome = SearchOutcome(
            setting=self._record.setting,
            outcome=found.outcome,
            found=found.found,
            confirmed=found.confirmed,
            bracket=found.bracket,
            confidence=found.confidence,
            spent_s=self._record.spent_s,
            probes=len(self._record.probes),
        )
        self._record = replace(
            self._record,
            outcome=outcome.outcome,
            found=outcome.found,
            confirmed=outcome.confirmed,
            bracket=outcome.bracket,
            confidence=outcome.confidence,
            running=None,
        )
        write(self._folder.search, self._record)
        return outcome
