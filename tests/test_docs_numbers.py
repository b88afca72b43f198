"""Every number that the page on measurement states of the code stands there as the code has it."""

import re
from pathlib import Path

import pytest
from scipy.special import comb

from seamark.analysis.checks import host, load, result
from seamark.analysis.metrics import (
    distribution,
    energy,
    outages,
    processors,
    startup,
    steady,
    timeline,
    window_counts,
)
from seamark.analysis.metrics.table import VERSION
from seamark.analysis.summary import repetitions
from seamark.drivers.openai import driver as openai
from seamark.drivers.openai import stream
from seamark.drivers.postgres import replies
from seamark.load.coordinator import coordinator, handle
from seamark.load.engine import http, loops, mix, saturation
from seamark.load.workers import trace_bodies
from seamark.model import load_profile, scenario
from seamark.platform import pinning
from seamark.services.supervisor import health
from seamark.stats import decision, histogram, knee, quantiles
from seamark.telemetry import energy as telemetry_energy
from seamark.telemetry import prometheus
from seamark.trials.kinds import parties
from seamark.trials.search import steps

ROOT = Path(__file__).parent.parent
NUMBERS = {2: "two"}
WORDS = {2: "twice", 3: "three", 4: "four", 5: "five", 6: "six", 10: "ten", 20: "20"}


def percent(ratio: float) -> str:
    return f"{100 * ratio:g} %"


def shared(ratio: float) -> str:
    return {0.9: "nine tenths", 0.1: "a tenth", 0.25: "a quarter", 0.5: "half"}[ratio]


def in_unit(size_bytes: int, unit: int) -> int:
    assert size_bytes % unit == 0
    return size_bytes // unit


MEASUREMENT = {
    "samples that are exact": f"exact up to {distribution.EXACT_LIMIT:,} samples",
    "histogram": f"from a histogram of {percent(histogram.RELATIVE_ERROR)} relative error above",
    "samples beyond a percentile": f"needs {WORDS[quantiles.BEYOND]} samples on each side: "
    f"p99 needs {quantiles.samples_needed(0.99):,}, p99.9 needs {quantiles.samples_needed(0.999):,}",
    "percentiles of the series": f"percentiles of each second are within {percent(timeline.SERIES_ERROR)}",
    "sequence of a mix": f"n ≤ {mix.SEQUENCE:,} places",
    "uncounted tokens": f"With more than {percent(window_counts.FEW_UNCOUNTED)} of those",
    "length of a load with auto": f"the load is {1 + load_profile.AUTO_RATIO:g} times `duration_s` long, "
    f"and at most {shared(load_profile.AUTO_RATIO)} of `duration_s`",
    "parts of a start-up": f"the leading parts, of {startup.MOST_PARTS} equal ones",
    "what is usual": f"what {percent(startup.USUAL[1] - startup.USUAL[0])} of the parts behind the longest "
    f"warm-up have, if they are {WORDS[startup.LEAST_RUN]} or more",
    "slower than the rest": f"than {WORDS[int(startup.SLOWER_THAN_REST)]} what {percent(startup.USUAL[1])} of",
    "versions": f"version {VERSION - 1} bounded percentiles from one side",
    "parts of the window": f"The window is cut into {outages.MOST_PARTS} equal parts; fewer, but at least "
    f"{outages.LEAST_PARTS}, where a part would have fewer than {outages.REPLIES_A_PART} replies or be "
    f"shorter than {outages.SHORTEST_PART_NS / 1e6:g} ms",
    "replies missed in an outage": f"where {outages.LEAST_MISSED} or more were to be expected",
    "how long an outage is": f"lasts {outages.LEAST_S:g} s or longer",
    "many outages": f"{WORDS[result.MANY_OUTAGES + 1].capitalize()} or more are a note",
    "a typical reply": f"longer than {WORDS[outages.TYPICAL]} typical replies",
    "false alarms": f"Of loads that are steady, {percent(steady.SURE)} are called not steady",
    "a change that matters": f"A change of less than {percent(steady.LEAST_CHANGE)} is none",
    "health probe": f"{health.PROBE_TIMEOUT_S:g} s for a health probe "
    f"({2 * health.PROBE_TIMEOUT_S:g} s for a command)",
    "scrape": f"{prometheus.TIMEOUT_S:g} s for a scrape",
    "models": f"at most {openai.MODELS_S:g} s for the models",
    "token counts": f"at most {openai.CHECK_S:g} s for the check of its token counts",
    "heads": f"| {in_unit(http.MAX_HEAD_BYTES, 1 << 10)} KiB each |",
    "bodies": f"body that is read whole (JSON) | {in_unit(http.MAX_BODY_BYTES, 1 << 20)} MiB |",
    "events": f"all its lines | {in_unit(stream.MAX_EVENT_BYTES, 1 << 20)} MiB |",
    "replies of PostgreSQL": f"prepared statement | {in_unit(replies.MAX_REPLY_BYTES, 1 << 20)} MiB |",
    "ticks of a load": {0.1: "Ten times a second"}[coordinator.TICK_S],
    "first judgement": f"from {saturation.LEAST_S:g} s and {saturation.AFTER_WARMUP_S:g} s of measured load on",
    "growth": f"grew by at least {shared(saturation.SHARE)} of what arrived, and by "
    f"{WORDS[int(saturation.ERRORS)]} times the standard error",
    "blocks": {6: "in each sixth of that half"}[saturation.BLOCKS],
    "beyond the objective": f"{WORDS[int(saturation.BEYOND)]} as many are outstanding as it allows",
    "a late overload": f"at least {WORDS[int(1 / saturation.EVEN[0])]} as much piled up as in the first",
    "slow growth": f"A growth of less than {shared(saturation.SHARE)} is not ended early",
    "cores apart": f"From {WORDS[pinning.FEWEST_CORES]} physical cores on",
    "early wake-ups": f"({loops.SHORTEST_EARLY_NS / 1e6:g} to {loops.LONGEST_EARLY_NS / 1e6:g} ms, up to "
    f"{loops.LONGEST_EARLY_OWN_CORE_NS / 1e6:g} ms on a core of its own)",
    "spinning": f"for the last {loops.SPIN_NS / 1e3:g} us, by spinning",
    "exchanges of clocks": f"asks each of them {handle.EXCHANGES} times",
    "error of clocks": f"above {load.LATE_S * 1e3:g} ms of error and drift together",
    "energy that is covered": f"cover {shared(energy.COVERED)} of the window in "
    f"{WORDS[energy.LEAST_STEPS]} steps or more",
    "looks of Slurm": f"read {WORDS[telemetry_energy.LEAST_LOOKS]} times (`AcctGatherNodeFreq`)",
    "work of others": f"`others` over the whole window | {percent(host.OTHERS)} of the processors; "
    f"{percent(host.OTHERS_OF_FULL)} where more than {percent(host.FULL)} were busy |",
    "work of others in a part": f"readings with {percent(processors.OTHERS_BURST)} of the processors or more, at "
    f"least {NUMBERS[processors.FEWEST_CROWDED]} of them | {percent(host.CROWDED)} of the readings",
    "steal": f"steal over the whole window | {percent(host.STEAL)} |",
    "waiting for memory": f"Waiting for memory is one from {percent(host.WAITING_MEMORY)} of the time on",
    "looks at processors": f"fewer than {WORDS[processors.FEWEST_LOOKS]} readings inside the window",
    "repetitions that differ": f"more than {repetitions.THROUGHPUT_FACTOR:g} times above or below the median of all "
    f"repetitions or, where the rate is given, its median response time more than "
    f"{repetitions.RESPONSE_FACTOR:g} times",
    "an early end of a party": f"from {percent(parties.EARLY)} of the planned length on, SUSPECT below "
    f"{percent(host.SHORT)} of it",
    "a busy server without load": f"that used more than {host.BUSY_IDLE:g} cores",
    "levels of a knee": f"over {WORDS[knee.LEAST]} levels or more",
    "a full server": f"reaches {percent(knee.FULL)} of the greatest throughput",
    "batches of a decision": f"means of {decision.BATCHES} batches of successive requests",
    "growth of an error": f"by {decision.MOST_GROWTH:g} at most",
    "error of a look": f"where such a p is at most {steps.LOOK_ERROR:g}. The bracket's confidence is 1 less "
    f"{steps.LOOK_ERROR:g} for each look",
    "smallest p": f"(3 repetitions reach {2 / comb(6, 3):.2f}, 4 reach {2 / comb(8, 4):.3f}, 5 reach "
    f"{2 / comb(10, 5):.4f})",
}
FRESH = scenario.Scenario.__dataclass_fields__
SEARCH = scenario.Search.__dataclass_fields__
SCENARIO = {
    "blocks of a trace": "may take 1 GiB" if trace_bodies.LARGEST_BYTES == 1 << 30 else "?",
    "times of a look": "take 1, 1, 2, 4 and 8 times `duration_s`" if steps.TIMES == (1, 1, 2, 4, 8) else "?",
    "error of a look": f"1 less {steps.LOOK_ERROR:g} for each look",
    "samples of an objective": f"`latency_p99_s` takes some {quantiles.samples_needed(0.99):,} independent "
    f"replies and `latency_p90_s` {quantiles.samples_needed(0.9)}",
    "repetitions": f"how often each treatment is measured, default {FRESH['repetitions'].default}.",
    "retries": f"default {FRESH['max_retries'].default} |",
    "a search": f"`within` ({SEARCH['within'].default:g}), `budget_s` ({SEARCH['budget_s'].default:g}), "
    f"`confirm` ({SEARCH['confirm'].default})",
}
STATED = [("measurement.md", name, text) for name, text in MEASUREMENT.items()]
STATED += [("scenario.md", name, text) for name, text in SCENARIO.items()]


@pytest.mark.parametrize(
    ("page", "text"), [each[::2] for each in STATED], ids=[": ".join(each[:2]) for each in STATED]
)
def test_a_number_of_the_docs_is_that_of_the_code(page, text):
    said = re.sub(r"\s+", " ", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert text in said
