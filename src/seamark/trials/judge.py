"""Scoring of a trial's kept replies: answers.parquet and answers.json. Measures nothing, so it can be repeated."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seamark.analysis.answers import FACT, PLAIN, TIMED_BY, TIMES, said_by_item, times_by_item_s
from seamark.load.driver import Target
from seamark.load.workers.judging import TEXTS, JudgingError, judge_replies
from seamark.load.workers.records import ReplySegment
from seamark.model.digest import digest
from seamark.model.dotted import mark_of
from seamark.model.failure_categories import ALL_FAILED, FAILURE_CATEGORIES, STATED_BY_SERVERS, TIMEOUT
from seamark.model.items import item_sources, key_digest
from seamark.model.results.answers import AnswersRecord, AskedRecord, Score
from seamark.model.results.load_record import LoadRecord
from seamark.model.sample import Failure
from seamark.model.scenario import filled
from seamark.model.service import Quality, Service, Value
from seamark.model.trial import Trial, whole_of
from seamark.planning.judges import scored_trials, scoring_functions
from seamark.planning.study import Study
from seamark.services.runtimes.environments import environment_folder
from seamark.stats.paired import mean_difference
from seamark.storage.codec import encode, parse
from seamark.storage.documents import read_or_none, regular, replacing, write
from seamark.storage.paths import TrialFolder

TIME_LIMIT_S = 3600.0
METADATA_KEY = b"seamark"
"""Key of the record in the metadata of answers.parquet."""


def _version(services: Mapping[str, Service], trial: Trial) -> str:
    return " ".join(map(mark_of, scoring_functions(services, trial)))


def judge_trial(study: Study, trial: Trial, folder: TrialFolder) -> AnswersRecord:
    """Score the replies of a trial, and write both files; answers.json last, whatever came of it. Replies to items
    that were sent again (`keep_busy`) are not scored: each item counts once. Replies to requests that have another
    content by now, as after a change of a task's data, are not scored either: that is a failed scoring.

    Where the replies were pruned, the scores that there are stay. Of a trial with parties those of each party are
    scored; the whole has no answers of its own.
    """
    if trial.parties:
        judged = [
            judge_trial(study, party, folder.party(str(party.party)))
            for party in scored_trials(study.services, trial)
        ]
        version = _version(study.services, trial)
        answers = sum(judgement.answers for judgement in judged)
        record = AnswersRecord(status="ok", answers=answers, quality_version=version)
        write(folder.answers_record, record)
        return record
    service = study.services[trial.service]
    assert service.judge is not None
    version = _version(study.services, trial)
    load = read_or_none(folder.load, LoadRecord)
    if load is None or not load.ok:
        record = AnswersRecord(status="skipped", reason="the load has failed", quality_version=version)
        if load is not None and load.category == ALL_FAILED:
            errors: Mapping[str, int] = {}
            with suppress(JudgingError, OSError, ValueError):
                errors = _judged(study, service, trial, folder, load).errors if folder.replies.exists() else {}
            record = _why_all_failed(record, service, errors, load.worst_failure)
        folder.answers.unlink(missing_ok=True)
    elif not folder.replies.exists():
        nothing = AnswersRecord(status="skipped", reason="the replies are not there", quality_version=version)
        record = _kept_record(folder) or nothing
    else:
        try:
            record = _judged(study, service, trial, folder, load)
        except (JudgingError, OSError, ValueError) as error:
            folder.answers.unlink(missing_ok=True)
            record = AnswersRecord(status="failed", reason=str(error), quality_version=version)
    write(folder.answers_record, record)
    return record


def _why_all_failed(
    record: AnswersRecord, service: Service, errors: Mapping[str, int], worst: str | None
) -> AnswersRecord:
    """Return the record of a load without a good reply: of the recipe's category that the server gave most errors,
    or `timeout` if it gave none and most requests failed so (`worst`)."""
    record = replace(record, errors=errors)
    code = record.commonest_error or (TIMEOUT if worst == TIMEOUT else "")
    shared = FAILURE_CATEGORIES[code] if code in (*STATED_BY_SERVERS, TIMEOUT) else None
    known = service.failures.get(code) or shared
    return replace(record, category=code, remedy=known.remedy) if known else record


def _judged(study: Study, service: Service, trial: Trial, folder: TrialFolder, load: LoadRecord) -> AnswersRecord:
    judge, python = str(service.judge), _python(study, service)
    with TemporaryDirectory(prefix="seamark-judge-") as name:
        place = Path(name)
        target = Target(settings=filled(trial.settings), data=place)
        kept = pq.read_table(regular(folder.replies))
        if load.items is not None:
            kept = kept.filter(pc.field("index") < load.items)
        with ReplySegment(place / "replies") as segment:
            segment.add_all(zip(kept["index"].to_pylist(), kept["reply"].to_pylist(), strict=True))
        batches = list(judge_replies(judge, target, place / "replies", place, python, TIME_LIMIT_S))
    ids, clusters, finish, errors, said, asked = (_texts(batches, name) for name in TEXTS)
    items = [item for batch in batches for item in batch["items"]]
    if asked is not None:
        _require_asked(folder, load, {str(item): str(text) for item, text in zip(items, asked, strict=True)}, trial)
    scores = _columns(batches, service.qualities)
    facts = _facts(batches)
    texts = {"id": ids, "cluster": clusters, "error": errors, "finish": finish, "answer": said}
    table = _table(folder, load, kept, items, texts, scores, facts).sort_by("item")
    good = table.filter(pc.field("failure").is_null())  # a failed request can have a reply: one that came too late
    answered = pc.count_distinct(good["item"]).as_py()
    good_scores = {name: good[name].to_pylist() for name in scores}
    good_clusters = None if clusters is None else good["cluster"].to_pylist()
    record = AnswersRecord(
        status="ok",
        quality_version=_version(study.services, trial),
        answers=len(items),
        clusters=len(set(clusters)) if clusters is not None else None,
        scores={name: score_of(values, good_clusters) for name, values in good_scores.items()},
        errors=Counter(error for error in errors or () if error is not None),
        published=_published(trial, good_scores, good),
        answers_sha256=digest(said_by_item(table)),
        key_sha256=key_digest(trial.settings, dict(zip(items, map(str, ids), strict=True))) if ids else None,
        answered=answered,
    )
    with replacing(folder.answers) as temporary:
        about = {METADATA_KEY: json.dumps(encode(record)).encode()}
        pq.write_table(table.replace_schema_metadata(about), temporary, compression="zstd", write_page_checksum=True)
    return record


def _require_asked(folder: TrialFolder, load: LoadRecord, now: Mapping[str, str], trial: Trial) -> None:
    """Raise ValueError where an item of a load is another by now. A load whose driver recorded no contents has those
    of its first scoring."""
    record = read_or_none(folder.asked, AskedRecord)
    if record is None or record.epoch_unix_ns != load.epoch_unix_ns:
        known = _ids(folder) or {}  # results of an earlier version: an id names what was asked
        earlier = {str(item): text for item, text in known.items()} or now
        record = AskedRecord(epoch_unix_ns=load.epoch_unix_ns, asked=earlier)
        write(folder.asked, record)
    if changed := [item for item in now if record.asked.get(item, now[item]) != now[item]]:
        raise ValueError(
            f"{len(changed)} of {len(now)} replies are to questions that are others by now, item {changed[0]} first:"
            " the data, or what makes them, have changed since. Put these back and remove answers.json, then `bench"
            f" collect` scores the replies; or ask the new questions: `bench retry {whole_of(trial.id)}`"
        )


def _ids(folder: TrialFolder) -> Mapping[int, str] | None:
    """Return the ids of a trial's scored items, None where they cannot be read."""
    try:
        kept = pq.read_table(regular(folder.answers), columns=["item", "id"])
    except (OSError, ValueError, pa.ArrowException):
        return None
    return dict(zip(kept["item"].to_pylist(), map(str, kept["id"].to_pylist()), strict=True))


def key_has_changed(settings: Mapping[str, Value], folder: TrialFolder, record: AnswersRecord) -> bool:
    """Return whether the answers of a trial were scored against another key than that of today. False where that is
    not known, as of older files: then the scores stay as they are."""
    ids = None if record.key_sha256 is None else _ids(folder)
    return ids is not None and key_digest(settings, ids) not in (None, record.key_sha256)


def _python(study: Study, service: Service) -> Path | None:
    """Return the interpreter of the service's environment; None for the base environment."""
    if service.environment is None:
        return None
    return environment_folder(service.environment, study.locks, study.environments) / "bin" / "python"


def _kept_record(folder: TrialFolder) -> AnswersRecord | None:
    """Return how the answers that there are were scored; None without them."""
    try:
        metadata = pq.read_schema(regular(folder.answers)).metadata or {}
        return parse(metadata[METADATA_KEY].decode(), AnswersRecord)
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return None


def score_of(values: Sequence[float | None], clusters: Sequence[str | None] | None = None) -> Score:
    """Return the mean of the values that are known, with its standard error: cluster-robust with `clusters`."""
    known = [index for index, value in enumerate(values) if value is not None]
    if not known:
        return Score()
    scored = [float(values[index] or 0.0) for index in known]
    labels = None if clusters is None else [clusters[index] or f"item {index}" for index in known]
    mean = mean_difference(np.zeros(len(scored)), np.array(scored), clusters=labels)
    return Score(mean=mean.difference, standard_error=mean.standard_error, scored=len(scored))


def _published(trial: Trial, scores: Mapping[str, Sequence[float | None]], rows: pa.Table) -> Mapping[str, float]:
    """Return the figures that the publisher of a trial's items computes, by the rows of good answers."""
    names = (name for name in rows.column_names if name.startswith(FACT))
    facts = {name.removeprefix(FACT): rows[name].to_pylist() for name in names}
    figures = (source.published(trial.settings, scores, facts) for source in item_sources())
    return next(filter(None, figures), {})


def _columns(batches: Sequence[Mapping[str, Any]], qualities: Mapping[str, Quality]) -> dict[str, list[float | None]]:
    """Return the scores by name. Raises ValueError for a name or a value that the recipe does not allow."""
    columns: dict[str, list[float | None]] = _by_name(batches, "scores")
    for name, values in columns.items():
        if name not in qualities:
            raise ValueError(
                f"the score '{name}' is none of the recipe's qualities: {', '.join(qualities) or 'none'}"
            )
        if name in PLAIN or name.startswith(FACT):
            raise ValueError(f"the score '{name}' has the name of another column")
        low, high = qualities[name].range
        for value in values:
            if value is not None and ((low is not None and value < low) or (high is not None and value > high)):
                raise ValueError(f"the score '{name}' of an answer is {value:g}, outside of its range")
    return columns


def _facts(batches: Sequence[Mapping[str, Any]]) -> dict[str, pa.Array]:
    """Return the columns of facts of the items. Raises ValueError for values of several types."""
    columns = {}
    for name, values in _by_name(batches, "facts").items():
        try:
            columns[f"{FACT}{name}"] = pa.array(values)
        except pa.ArrowException as error:
            raise ValueError(f"the fact '{name}' has values of several types: {error}") from None
    return columns


def _by_name(batches: Sequence[Mapping[str, Any]], kind: str) -> dict[str, list[Any]]:
    """Return the scores or facts of all items by name, None where an item has none of that name."""
    names = dict.fromkeys(name for batch in batches for name in batch[kind])
    return {
        name: [value for batch in batches for value in batch[kind].get(name, [None] * len(batch["items"]))]
        for name in names
    }


def _texts(batches: Sequence[Mapping[str, Any]], name: str) -> list[str | None] | None:
    if all(batch[name] is None for batch in batches):
        return None
    return [text for batch in batches for text in batch[name] or [None] * len(batch["items"])]


def _table(
    folder: TrialFolder,
    load: LoadRecord,
    kept: pa.Table,
    items: Sequence[int],
    texts: Mapping[str, Sequence[str | None] | None],
    scores: Mapping[str, Sequence[float | None]],
    facts: Mapping[str, pa.Array],
) -> pa.Table:
    """Return the table of answers.parquet: a row for each reply."""
    samples = pq.read_table(regular(folder.samples), columns=["kind", "units", "failure", *TIMED_BY])
    by_index = {number: row for row, number in enumerate(samples["index"].to_pylist())}
    rows = [by_index.get(item) for item in items]
    about = {name: samples[name].to_pylist() for name in ("kind", "units", "failure")}

    def of_sample(name: str) -> list[int | None]:
        return [None if row is None else about[name][row] for row in rows]

    kinds = [None if kind is None or kind >= len(load.kinds) else load.kinds[kind] for kind in of_sample("kind")]
    failures = [None if not failure else Failure(failure).name.lower() for failure in of_sample("failure")]
    nothing: Sequence[None] = [None] * len(items)
    times = times_by_item_s(samples)
    times_s = {name: [times.get(item, (None, None))[at] for item in items] for at, name in enumerate(TIMES)}
    return pa.table(
        {
            "item": pa.array(items, pa.int64()),
            "id": pa.array(texts["id"] or [str(item) for item in items], pa.string()),
            "cluster": pa.array(texts["cluster"] or nothing, pa.string()),
            "kind": pa.array(kinds, pa.string()),
            "units": pa.array(of_sample("units"), pa.int64()),
            "failure": pa.array(failures, pa.string()),
            **{name: pa.array(values, pa.float64()) for name, values in times_s.items()},
            **({"error": pa.array(texts["error"], pa.string())} if texts["error"] else {}),
            "finish": pa.array(texts["finish"] or nothing, pa.string()),
            "answer": pa.array(texts["answer"] or nothing, pa.string()),
            **{name: pa.array(values, pa.float64()) for name, values in scores.items()},
            **facts,
            "reply": kept["reply"],
        }
    )


def needs_judging(study: Study, trial: Trial, folder: TrialFolder) -> bool:
    """Return whether the replies of a trial were never scored, or by another version of the function or of what it
    scores by, or against another answer key, and can be scored here."""
    return any(_needs_judging(study, party, party_folder) for party_folder, party in folder.measured(trial))


def _needs_judging(study: Study, trial: Trial, folder: TrialFolder) -> bool:
    service = study.services[trial.service]
    if not scored_trials(study.services, trial) or not folder.replies.exists():
        return False
    if (python := _python(study, service)) is not None and not python.exists():
        return False
    record = read_or_none(folder.answers_record, AnswersRecord)
    if record is None or folder.answers_record.stat().st_mtime_ns < folder.load.stat().st_mtime_ns:
        return True
    return record.quality_version != _version(study.services, trial) or key_has_changed(
        trial.settings, folder, record
    )
