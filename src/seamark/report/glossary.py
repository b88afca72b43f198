"""What the words and numbers of a report mean."""

from seamark.report.content import Facts, Section

TERMS = (
    ("treatment", "One combination of the factors' levels. A trial is a treatment measured once."),
    (
        "deployment",
        "One start of a server with its settings; it serves its trials one after another.",
    ),
    (
        "response time",
        "From the intended start of a request to its complete reply: what a user waits. In a closed loop a request "
        "is intended when its user is free, so response and service time are the same.",
    ),
    ("service time", "From the actual sending of a request to its complete reply."),
    (
        "schedule lag",
        "Actual minus intended sending: lateness of the load generator itself, not of the service.",
    ),
    (
        "throughput",
        "Units of work completed in the measured window, divided by its length. The value of a treatment is "
        "the median of its trials; minimum and maximum stand beside it.",
    ),
    ("bandwidth", "Payload a second: MB/s are 10^6 bytes, MiB/s are 2^20 bytes."),
    (
        "p50, p95, p99",
        "Half, 95 % and 99 % of the requests were faster. For a treatment the raw samples of all trials are "
        "pooled; percentiles are never averaged. p99 is withheld below 1,000 samples and p99.9 below 10,000. A "
        "request that timed out, or had no answer when the load ended, took at least so long: ≥ stands before a "
        "percentile that reaches into those.",
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


def glossary_section() -> Section:
    """Return the glossary."""
    return Section(id="glossary", title="What the numbers mean", blocks=(Facts(pairs=TERMS, long=True),))
