"""A search as a trial: its probes are measured one after another on one server, and the best one is the trial's own.

Whatever is done is in files, so a search that was ended goes on: it asks for its steps again from the beginning, and
takes the answers of the probes that are there.
"""

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seamark import provenance, store
from seamark.analysis import write_metrics
from seamark.bench import Bench, abandoned
from seamark.calibration import ceiling_of
from seamark.metrics import is_older
from seamark.model.trial import Trial
from seamark.monitors.cut import cut_telemetry
from seamark.plurals import counted
from seamark.record import put_aside, record_of, samples_complete, write_config, write_meta
from seamark.search.probe import folder_name, probe_trial
from seamark.search.record import SearchRecord
from seamark.search.steps import Answer, Found, Probe, next_step, spent
from seamark.search.verdict import ends_search, judged
from seamark.store import TrialFolder, read_json
from seamark.trial import alone_on_this_node, clear, ended_by_signals, measure_here, republished

Document = dict[str, Any]


def measure_search(bench: Bench, trial: Trial, parent_pid: int, *, max_retries: int = 0) -> None:
    """Search for the largest load that meets the trial's objectives, unless that is done; load.json says what came
    of it. A probe that is there, finished, is not measured again."""
    folder = bench.results.trial(trial.id)
    with alone_on_this_node(bench, parent_pid), ended_by_signals():
        if republished(folder, trial):
            return
        before, started_at = provenance.look(), provenance.now()
        clear(folder)
        folder.own_parts.mkdir(parents=True)
        write_config(folder, trial, bench)
        document = _search(bench, trial, folder, parent_pid, max_retries)
        document.setdefault("started_at", started_at)
        clear(folder)
        write_meta(bench, trial, folder, before)
        status, reason = document["status"], document["reason"]
        store.append_log(folder.log, trial.trial_id, "search ended", status=status, reason=reason)
        if status == "ok":
            store.write_json(folder.record, document)
        store.write_json(folder.load, document)


def _search(bench: Bench, trial: Trial, folder: TrialFolder, parent_pid: int, max_retries: int) -> Document:
    """Ask for one probe after another until something is found; return the document of load.json."""
    search = trial.search
    assert search is not None
    record, answers = SearchRecord(trial, folder), list[Answer]()
    while isinstance(step := next_step(search, answers), Probe):
        its = probe_trial(trial, step, bench.scenario)
        own = bench.results.trial(its.id)
        began_s = time.monotonic()
        known = finished(own, its)
        if not known:
            if record.spent_s >= search.budget_s:
                step = spent(search, answers)
                break
            record.begin(step)
            if own.load.exists():
                put_aside(own)
            measure_here(bench, its, parent_pid, max_retries=max_retries)
            load = read_json(own.load)
            if ends_search(load):
                return record_of(bench, trial, None, (load["category"], load["reason"]), load["log_tail"])
        load, metrics = read_json(own.load), _metrics(bench, its, own)
        verdict, why = judged(metrics, load)
        answers.append(Answer(probe=step, verdict=verdict))
        took_s = load["warmup_s"] + load["duration_s"] if known else time.monotonic() - began_s
        record.add(step, folder_name(trial, step), verdict, why, metrics, load, took_s)
        if reason := abandoned(bench, parent_pid):
            return record_of(bench, trial, None, ("interrupted", reason), [])
    assert isinstance(step, Found)
    return record.end(step) | _published(bench, trial, folder, step, answers)


def finished(folder: TrialFolder, trial: Trial) -> bool:
    """Whether a probe was measured to its end, well or badly, as this very trial."""
    try:
        load = read_json(folder.load)
    except (OSError, ValueError):
        return False
    if load.get("status") == "ok":
        return samples_complete(folder, trial.config_hash)
    return load.get("config_hash") == trial.config_hash and not ends_search(load)


def _metrics(bench: Bench, trial: Trial, folder: TrialFolder) -> Mapping[str, Any]:
    """Return a probe's metrics.json, made as the rules `monitor` and `metrics` make a trial's."""
    try:
        known = read_json(folder.metrics)
        if known.get("trial_id") == trial.trial_id and not (is_older(known) and folder.samples.exists()):
            return known
    except (OSError, ValueError):
        pass
    load = read_json(folder.load)
    cut_telemetry(bench.folder.telemetry, folder.client_telemetry, load, folder)
    ceiling = ceiling_of(bench.study.results, load)
    in_client = bool(load.get("in_client"))
    return write_metrics(trial, folder, bench.deployment, client_is_server=in_client, ceiling=ceiling)


def _published(bench: Bench, trial: Trial, folder: TrialFolder, found: Found, answers: list[Answer]) -> Document:
    """Make the best probe's samples the trial's own; return load.json but for what is known of the search."""
    good = [answer.probe for answer in answers if answer.verdict == "pass" and answer.probe.level == found.found]
    if not good:
        return record_of(bench, trial, None, _nothing(trial, found, len(answers)), [])
    best = good[-1]  # the last confirmation: it was not picked for having passed
    its = probe_trial(trial, best, bench.scenario)
    own = bench.results.trial(its.id)
    for source, target in (
        (own.samples, folder.samples),
        (own.chunks, folder.chunks),
        (own.client_telemetry, folder.client_telemetry),
    ):
        _link(source, target)
    probe = {"folder": str(own.root.relative_to(folder.root)), "level": best.level, "config_hash": its.config_hash}
    names = {"trial": trial.id, "trial_id": trial.trial_id, "config_hash": trial.config_hash, "probe": probe}
    return read_json(own.record) | names


def _nothing(trial: Trial, found: Found, probes: int) -> tuple[str, str]:
    """Return category and reason of a search that found no level."""
    search = trial.search
    assert search is not None
    setting, tried = search.setting, counted(probes, "probe")
    if found.outcome == "budget_spent":
        why = f"the budget of {search.budget_s:g} s was spent before a {setting} met the objectives ({tried})"
        return "no_level_met_the_slo", why
    if found.outcome == "not_judged":
        return (
            "no_probe_could_tell",
            f"at {setting} {found.bracket[1]} no probe could tell whether objectives are met",
        )
    return "no_level_met_the_slo", f"no {setting} down to {found.bracket[1]} meets the objectives ({tried})"


def _link(source: Path, target: Path) -> None:
    """Put a file of a probe into the trial's folder, whole or not at all, without a second copy where that can be."""
    target.unlink(missing_ok=True)
    if not source.exists():
        return
    with store.replacing(target) as temporary:
        try:
            os.link(source, temporary)
        except OSError:
            shutil.copyfile(source, temporary)
