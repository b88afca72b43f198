"""Sections of text: headline and facts of the run, failed trials, verdicts, prediction, glossary."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from seamark.analysis.comparison.predicted import score_of
from seamark.model.origin import any_virtual
from seamark.model.plurals import counted
from seamark.model.results.headline import Headline
from seamark.model.results.summary import Summary
from seamark.model.results.trial_meta import Machine, TrialMeta
from seamark.model.results.trial_metrics import VerdictReason
from seamark.model.scenario import why_no_p
from seamark.model.trial import PARTY
from seamark.report.headline import number_text
from seamark.report.numbers import ABSENT, duration, size
from seamark.report.ordering import ORIGIN, about_servers, only_simulated, simulated_services
from seamark.report.page.content import Block, Code, Facts, Section, Table, Text, column, figures, named
from seamark.report.predicted import figure_rows, score_sentence, verdict_line
from seamark.report.source import Results
from seamark.report.tables.summary import origin_columns
from seamark.storage.redaction import redacted, redacted_text

MOST_PLACES, SHORT = 8, 12
OF_MACHINE = ("Host", "CPU", "RAM", "Kernel")


def counts(results: Results) -> Text:
    """Return how many trials have a result, and how many of them are valid, suspect and invalid."""
    planned, ok = len(results.trials), len(results.ok)
    verdicts = Counter(results.frame.loc[results.frame["ok"], "verdict"])
    text = f"{ok} of {counted(planned, 'trial')} ok"
    if ok:
        text += f": {verdicts['VALID']} valid, {verdicts['SUSPECT']} suspect, {verdicts['INVALID']} invalid"
    if ok < planned:
        return Text(text=f"{text}. {planned - ok} without a result: see Failed trials.", kind="warning")
    doubtful = verdicts["SUSPECT"] + verdicts["INVALID"]
    return Text(text=f"{text}.{' See Verdicts.' if doubtful else ''}", kind="note" if doubtful else "good")


def numbers(headline: Headline) -> Table:
    """Return the numbers that a headline rests on."""
    names = column("the answer rests on", [number.name for number in headline.numbers])
    return Table(columns=(names, figures("value", [number_text(number) for number in headline.numbers])))


def where(results: Results) -> str:
    """Return scenario, host, kernel and commit in a line; of what was simulated no host."""
    facts = dict(machine(results.meta))
    commit = (facts.get("Git commit") or "").partition(" ")
    names = () if only_simulated(results.summary) else ("Host", "Kernel")
    parts = [f"`{results.source}`", *(facts[name] for name in names if name in facts)]
    parts += [f"commit {commit[0][:SHORT]}{commit[1]}{commit[2]}"] if commit[0] else []
    return f"{', '.join(parts)}. More in About this run."


def about(results: Results) -> Facts:
    """Return scenario, services, design, time and machine; of what was simulated without the machine."""
    simulated_alone = only_simulated(results.summary)
    facts = {**dict(machine(results.meta)), **_places(results)}
    started, finished = results.frame["started_at"].dropna(), results.frame["finished_at"].dropna()
    simulated = simulated_services(results.summary)
    pairs: list[tuple[str, str]] = [
        ("Scenario", f"`{results.source}`"),
        ("Services", ", ".join(dict.fromkeys(view.trial.service for view in results.trials)) or ABSENT),
        *([("Simulated, not measured", ", ".join(simulated))] if simulated else []),
        ("Design", _design(results)),
        (
            "Simulated" if simulated_alone else "Measured",
            _between(min(started), max(finished)) if len(started) and len(finished) else ABSENT,
        ),
        *about_servers(results.summary),
        *((name, value) for name, value in facts.items() if not (simulated_alone and name in OF_MACHINE)),
    ]
    if names := results.plan.factors_without_p:
        pairs.append(("Comparisons", f"Of {', '.join(names)}: {why_no_p(names)}."))
    if results.plan.notes:
        pairs.append(("Notes", results.plan.notes))
    return Facts(pairs=tuple(pairs))


def _design(results: Results) -> str:
    """Return number and order of trials: blocks lie within one start of a server, or have starts of their own."""
    treatments = results.frame["treatment"].nunique()
    if only_simulated(results.summary):
        blocks = f"{counted(results.plan.repetitions, 'block')} of one seed each"
        return f"{counted(treatments, 'treatment')} × {blocks}, seed {results.plan.seed}"
    names = results.plan.names
    servers = results.frame["deployment"].map(lambda start: names.get(start, start).partition(PARTY)[0]).nunique()
    if results.plan.restarts == "each":
        count = counted(results.plan.repetitions, "randomised block")
        every = f"{servers} servers are started anew" if servers > 1 else "the server is started anew"
        return f"{counted(treatments, 'treatment')} × {count}, in each of which {every}, seed {results.plan.seed}"
    starts = results.frame["deployment"].map(lambda start: start.partition(PARTY)[0]).nunique()
    loads = [view.load for view in results.trials]
    devices = sorted({f"{load.device.kind} {load.device.id}" for load in loads if load and load.device})
    lanes = f"in lanes on {', '.join(devices)}" if devices else ""
    within = f", within each of {starts} starts {lanes or 'that follow one another'}" if starts > 1 else ""
    several = treatments > starts
    alone = "in one start" if starts == 1 else f"in {starts} starts, one after the other"
    order = f"in randomised blocks{within}" if several else f"in {starts} starts {lanes}" if lanes else alone
    repetitions = counted(results.plan.repetitions, "repetition")
    return f"{counted(treatments, 'treatment')} × {repetitions} {order}, seed {results.plan.seed}"


def _places(results: Results) -> dict[str, str]:
    """Return nodes and jobs of all deployments where there are several: a meta.json has those of one trial."""
    texts = {}
    for name, key in (("Host", "node"), ("Batch job", "slurm_job_id")):
        places = {str(place) for record in results.deployments.values() if (place := getattr(record, key))}
        seen = sorted(places, key=lambda text: (int(text) if text.isdigit() else 0, text))
        if len(seen) > 1:
            texts[name] = ", ".join(seen[:MOST_PLACES]) + (", ..." if len(seen) > MOST_PLACES else "")
    return texts


def _between(started: str, finished: str) -> str:
    try:
        first, last = (datetime.fromisoformat(at) for at in (started, finished))
        took_s = (last - first).total_seconds()
    except ValueError:
        return f"{started} to {finished}"
    return f"{first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S %Z} ({duration(took_s)})"


def machine(meta: TrialMeta) -> list[tuple[str, str]]:
    """Return machine and software as recorded in meta.json; missing facts are left out."""
    node, software = meta.machine or Machine(), meta.software
    processors = f" ({node.cpus_logical} logical CPUs)" if node.cpus_logical else ""
    commit = software.git_commit or meta.git_commit
    changed = " with uncommitted changes" if software.git_dirty else ""
    pairs = (
        ("Host", node.hostname or meta.host or meta.node),
        ("CPU", f"{node.cpu_model or ''}{processors}".strip()),
        ("RAM", size(float(node.memory_bytes)) if node.memory_bytes else None),
        ("Kernel", node.kernel),
        ("Operating system", node.os),
        ("Python", software.python),
        ("Seamark", software.seamark),
        ("Git commit", f"{commit}{changed}" if commit else None),
        ("Batch job", meta.slurm_job_id),
        ("Partition", meta.partition),
        ("Container digest", meta.container_digest),
    )
    return [(name, value) for name, value in pairs if value]


SEVERITY = {"invalid": 0, "suspect": 1, "note": 2}
OF_COMPARISONS = ("nodes_differ", "servers_mixed", "servers_differ", "configuration_differs", "carry_over")
"""Reasons found by comparing trials: summary.json has them by treatment."""
MOST_TRIALS, MOST_FAILED, LOG_LINES = 4, 60, 15


def verdicts_section(results: Results) -> Section:
    """Return each reason once: number of trials, text, remedy, and the trials' ids."""
    of_comparisons = [
        (trial, reason)
        for row in results.treatments
        for reason in row.reasons
        if reason.code in OF_COMPARISONS
        for trial in results.trials_of(row)
        if trial.ok
    ]
    every = [*((trial, reason) for trial in results.ok for reason in trial.reasons), *of_comparisons]
    if not every:
        text = (
            "No check found anything against these numbers." if results.ok else "No trial is ok, so none was checked."
        )
        return Section(id="verdicts", title="Verdicts", blocks=(Text(text=text, kind="plain"),))
    groups: dict[tuple[str, str, str], list[tuple[str, VerdictReason]]] = {}
    for trial, reason in every:
        cases = groups.setdefault((reason.severity, reason.code, str(trial.origin)), [])
        cases.append((results.names.get(trial.id, trial.id), reason))
    ordered = sorted(groups.items(), key=lambda group: (SEVERITY[group[0][0]], -len(group[1])))
    checked = Counter(str(trial.origin) for trial in results.ok)
    origins = [column(ORIGIN, [origin for (_, _, origin), _ in ordered])] if any_virtual(results.trials) else []
    columns = (
        column("severity", [severity.upper() for (severity, _, _), _ in ordered], "verdict"),
        column("code", [code for (_, code, _), _ in ordered], "code"),
        *origins,
        figures("trials", [f"{len(cases)} of {checked[origin]}" for (_, _, origin), cases in ordered]),
        column("what was seen", [_commonest(reason.text for _, reason in cases) for _, cases in ordered]),
        column("what to do", [cases[0][1].remedy for _, cases in ordered]),
        column("which trials", [_first([name for name, _ in cases], group[0]) for group, cases in ordered]),
    )
    explained = Text(
        text="INVALID: do not use the number. SUSPECT: the number may be right, but something speaks against it. "
        "NOTE: nothing is wrong; something is not shown, or is good to know."
    )
    return Section(id="verdicts", title="Verdicts", blocks=(explained, Table(columns=columns)))


def _commonest(texts: Iterable[str]) -> str:
    """Return the commonest text, and how many others there are."""
    counts = Counter(texts)
    more = f" (and {len(counts) - 1} more like it)" if len(counts) > 1 else ""
    return f"{counts.most_common(1)[0][0]}{more}"


def _first(trials: Sequence[str], severity: str) -> str:
    most = 2 if severity == "note" else MOST_TRIALS
    rest = f" and {len(trials) - most} more" if len(trials) > most else ""
    return "; ".join(trials[:most]) + rest


def failures_section(results: Results) -> Section | None:
    """Return failed trials with category, reason and the last lines of the server's log; None when all are ok."""
    failed = [trial for trial in results.trials if not trial.ok]
    if not failed:
        return None
    shown = failed[:MOST_FAILED]
    columns = (
        column("trial", named([trial.id for trial in shown], results.names)),
        *origin_columns(shown),
        column("status", [trial.status for trial in shown], "verdict"),
        column("category", [trial.category or "unknown" for trial in shown], "code"),
        column("reason", [redacted(trial.reason) or "no reason was recorded" for trial in shown]),
    )
    more = len(failed) - len(shown)
    notes = (f"{more:,} more {'is' if more == 1 else 'are'} in the results' summary.",) if more else ()
    logs: dict[tuple[str, ...], list[str]] = {}
    for trial in shown:
        if trial.load and trial.load.log_tail:
            tail = tuple(map(redacted_text, trial.load.log_tail[-LOG_LINES:]))
            logs.setdefault(tail, []).append(results.names.get(trial.id, trial.id))
    lacking = "has no result and is" if len(failed) == 1 else "have no result and are"
    warning = (
        f"{len(failed)} of {counted(len(results.trials), 'trial')} {lacking} in no figure of this report. "
        f"`bench retry -c {results.source}` runs them again."
    )
    blocks: list[Block] = [Text(text=warning, kind="warning"), Table(columns=columns, footnotes=notes)]
    for tail, ids in list(logs.items())[:10]:
        caption = f"Last lines of the log: {'; '.join(ids[:3])}{' …' if len(ids) > 3 else ''}"
        blocks.append(Code(text="\n".join(tail), caption=caption))
    return Section(id="failed", title="Failed trials", blocks=tuple(blocks))


TERMS = (
    ("treatment", "One combination of the factors' levels. A trial is a treatment measured once."),
    ("deployment", "One start of a server with its settings; it serves its trials one after another."),
    (
        "response time",
        "From the intended start of a request to its complete reply: what a user waits. In a closed loop a request "
        "is intended when its user is free, so response and service time are the same.",
    ),
    ("service time", "From the actual sending of a request to its complete reply."),
    ("schedule lag", "Actual minus intended sending: lateness of the load generator itself, not of the service."),
    (
        "throughput",
        "Units of work completed in the measured window, divided by its length. The value of a treatment is "
        "the median of its trials; minimum and maximum stand beside it.",
    ),
    ("bandwidth", "Payload a second: MB/s are 10^6 bytes, MiB/s are 2^20 bytes."),
    (
        "p50, p95, p99",
        "Half, 95 % and 99 % of the requests were faster. For a treatment the times of all trials are "
        "pooled, as histograms within 0.5 %; percentiles are never averaged. p99 is withheld below 1,000 samples "
        "and p99.9 below 10,000. A request that timed out, or had no answer when the load ended, took at least so "
        "long: ≥ stands before a percentile that reaches into those.",
    ),
    (
        "TTFT, TTFO, TPOT",
        "Of streamed replies: from the actual sending to the first token (TTFT response: from the intended one, what "
        "a user waits), to the first token that is no reasoning, and the time per token after the first chunk.",
    ),
    (
        "measured window",
        "The part of a trial that counts: everything due after the warm-up, whatever happened in it. The load is not "
        "drained between warm-up and window.",
    ),
    (
        "errors",
        "Failed and timed-out requests as a share of those sent. Those that failed otherwise than by time-out are in "
        "no percentile.",
    ),
    (
        "closed loop, open loop",
        "Closed: each of `concurrency` users sends when its last reply is in. Open: requests are due at times "
        "that do not depend on the replies.",
    ),
    (
        "kind of request",
        "Requests that are alike: of one class of a `mix`, of one operation, or the same turn of their sessions. One "
        "belongs to the window it was due in.",
    ),
    ("saturated", "An open loop offered more than the service answered: its response times have no steady value."),
    ("goodput", "Requests that meet every objective (SLO), a second, and as a share of those sent."),
    ("recall@k", "Share of the true k nearest neighbours that were returned; ties count as found."),
    (
        "verdict",
        "VALID: no check speaks against the trial. SUSPECT: at least one does. INVALID: the number must not be used. "
        "A treatment has the worst verdict of its trials.",
    ),
    ("block", "One repetition of every treatment, in random order, so that drift of the machine hits all alike."),
)


def glossary_section(summary: Summary) -> Section:
    """Return the glossary, with the metrics of the scenario's author."""
    metrics = {name: metric for row in summary.treatments for name, metric in row.own.items()}
    pairs = [(name.replace("_", " "), f"{metric.meaning} ({metric.unit})") for name, metric in metrics.items()]
    return Section(id="glossary", title="What the numbers mean", blocks=(Facts(pairs=(*TERMS, *pairs), long=True),))


def prediction_section(results: Results) -> Section | None:
    """Return how many predictions came true, and each figure at each load; None for a scenario without a
    prediction."""
    score = score_of(results.plan, results.folder)
    if score is None:
        return None
    heads, *rows = figure_rows(score)
    columns = tuple(column(name, [row[at] for row in rows], numeric=at in (0, 2)) for at, name in enumerate(heads))
    table = Table(columns=columns, caption=f"Simulated by models of {score.fit}, and measured")
    verdicts = tuple(Text(text=verdict_line(load)) for load in score.loads)
    blocks: tuple[Block, ...] = (Text(text=score_sentence(score)), table, *verdicts)
    return Section(id="prediction", title="Prediction against measurement", blocks=blocks)
