"""The first sentence of a report, as data: the answer to what the scenario asks, its numbers, and how sure it is."""

from dataclasses import replace

import pytest

from seamark.model.results.comparison import (
    EXACT,
    Compared,
    ComparedSide,
    Comparisons,
    Effect,
    Front,
    FrontPoint,
    PredictionScore,
)
from seamark.model.results.summary import (
    Knee,
    ObjectiveSummary,
    SearchSummary,
    Spread,
    Summary,
    SummaryRow,
    ThroughputSpread,
)
from seamark.model.results.times import BoundedDistribution
from seamark.model.scenario import Comparing
from seamark.model.trial import Plan
from seamark.report.comparison import answer
from seamark.report.headline import headline_of, number_text
from seamark.report.numbers import objective_text, side_name
from seamark.report.tables.summary import workload_table

PLAN = Plan(
    scenario="s", source="s.yaml", seed=0, repetitions=5, max_retries=0, factors={}, deployments=(), trials=()
)
ASKED = replace(PLAN, compare=Comparing(metrics=("throughput",)))
P90 = {"metric": "latency_p90_s", "op": "<=", "limit": 0.1}


def row(name, throughput=None, **more):
    spread = ThroughputSpread(median=throughput, unit="replies_per_s")
    own = {"workload": "w", "service": "known", "repetitions": 3, "planned": 3, "throughput": spread, **more}
    return SummaryRow(treatment=name, **own)


def summary(*rows, **more):
    return Summary(treatments=rows, **more)


def sweep(met, name="concurrency"):
    """Return treatments whose trials meet an objective, or do not."""
    return [
        row(str(at), 100.0 * at, factors={name: at}, slos=(ObjectiveSummary(**P90, met=3 * meets, of=3),))
        for at, meets in met.items()
    ]


def side(level, median, origin="measured"):
    return ComparedSide(level=level, median=median, units=5, trials=5, origin=origin)


def pair(base, new, values, verdict, factor="size", **more):
    """Return a comparison of two levels by throughput, with the ratio of their medians."""
    one, other = values
    effect = Effect(value=other / one, low=0.98 * other / one, high=1.02 * other / one)
    own = {
        "metric": "throughput",
        "better": "higher",
        "ratio": effect,
        "confidence": 0.95,
        "p_adjusted": 0.01,
        **more,
    }
    sides = {"base": side(base, one), "new": side(new, other)}
    return Compared(workload="w", factor=factor, **sides, verdict=verdict, **own)


@pytest.mark.covers("E-FR27")
@pytest.mark.parametrize(
    ("search", "says"),
    [
        ({"found": 200.0, "bracket": (200.0, 219.0)}, "Largest rate with p90 <= 100 ms: 200/s (219 fails)."),
        (
            {"found": 27.4, "bracket": (None, None)},
            "No rate is sure to meet p90 <= 100 ms yet: 27.4/s passed, but not for sure (no load is shown to fail).",
        ),
        ({"found": None, "bracket": (None, 40.0), "outcomes": {"none_pass": 1}}, "none (40.0 fails)"),
        ({"found": 500.0, "bracket": (500.0, None), "outcomes": {"all_pass": 1}}, "at least 500/s"),
    ],
)
def test_a_search_begins_with_the_load_that_it_found_and_the_one_that_fails(search, says):
    own = {"setting": "rate_rps", "of": 1, "confidence": 0.95, **search, "found": Spread(median=search["found"])}
    headline = headline_of(PLAN, summary(row("a", search=SearchSummary(**own), slos=(ObjectiveSummary(**P90),))))
    assert headline.kind == "search"
    assert says in headline.answer
    [number] = headline.numbers
    assert (number.value, number.low, number.high) == (search["found"], *search["bracket"])


@pytest.mark.covers("E-FR27")
@pytest.mark.parametrize(
    ("met", "says"),
    [
        ({1: True, 2: True, 4: False}, "Largest concurrency that meets p90 <= 100 ms: 2 (4 misses it)"),
        ({1: True, 2: True}, "2 (every level meets it)"),
        ({1: False, 2: False}, "No level of concurrency meets p90 <= 100 ms: 1 misses it"),
        ({1: False, 2: True, 4: True}, "p90 <= 100 ms: met by 2, 4 of concurrency"),
    ],
)
def test_a_sweep_begins_with_the_largest_level_that_meets_the_objectives(met, says):
    headline = headline_of(PLAN, summary(*sweep(met)))
    assert (headline.kind, says in headline.answer) == ("sweep", True), headline.answer
    assert [number.value for number in headline.numbers] == [100.0 * at for at in met]


def test_a_sweep_with_a_knee_names_it_first_and_one_without_objectives_its_greatest_level():
    knee = Knee(
        workload="w",
        factor="concurrency",
        levels=(1, 2, 4, 8),
        power=(1.0, 2.0, 1.0, 0.5),
        place="inside",
        knee=2,
        between=(1, 4),
        agree=3,
        of=3,
        requests_per_s=120.0,
        latency_mean_ms=8.0,
    )
    rows = [replace(each, slos=()) for each in sweep({1: True, 2: True, 4: True, 8: True})]
    assert headline_of(PLAN, summary(*rows, knees=(knee,))).answer.startswith("Knee by concurrency: 2, with 120 ")
    some_without = replace(knee, mean_conditional=True)  # requests without an answer are not in the mean
    assert "a mean of (8.00 ms)." in headline_of(PLAN, summary(*rows, knees=(some_without,))).answer
    assert "at concurrency 8" in headline_of(PLAN, summary(*rows)).answer


@pytest.mark.covers("E-FR27")
def test_a_declared_comparison_says_which_by_how_much_and_how_sure():
    rows = sweep({16: True, 256: True}, "size")
    found = Comparisons(family=1, comparisons=(pair(16, 256, (100.0, 107.0), "better"),))
    headline = headline_of(ASKED, summary(*rows, comparisons=found))
    assert headline.kind == "comparison"
    assert headline.answer.startswith("size = 256 gave 1.07 times the throughput of 16 (95 % interval 1.05 to 1.09,")
    [number] = headline.numbers
    assert (number.value, number.low) == (pytest.approx(1.07), pytest.approx(1.07 * 0.98))


def test_a_saturated_pair_leads_only_where_there_is_no_other():
    full = pair(16, 64, (100.0, 300.0), "better", p_adjusted=0.001)
    full = replace(full, new=replace(full.new, suspect_reasons={"saturated": 3}))
    rows = sweep({16: True, 64: True, 256: True}, "size")
    found = Comparisons(family=2, comparisons=(full, pair(16, 256, (100.0, 107.0), "better")))
    assert headline_of(ASKED, summary(*rows, comparisons=found)).answer.startswith("size = 256 gave 1.07 times")
    assert answer(replace(found, comparisons=(full,))).startswith("size = 64 gave ")


def test_a_sweep_of_rates_without_a_question_points_to_the_fit():
    rows = [replace(one, slos=()) for one in sweep({8.0: True, 14.0: True}, "rate_rps")]
    assert "`bench fit -c s`" in headline_of(PLAN, summary(*rows)).answer
    assert "bench fit" not in headline_of(PLAN, summary(*sweep({8.0: True, 14.0: True}, "rate_rps"))).answer


def test_an_inconclusive_comparison_still_says_ratio_and_interval():
    rows = sweep({16: True, 256: True}, "size")
    found = Comparisons(
        family=1, comparisons=(pair(16, 256, (100.0, 101.0), "inconclusive", reason="r", remedy="q"),)
    )
    headline = headline_of(ASKED, summary(*rows, comparisons=found))
    assert "1.01 x (0.99 to 1.03)" in headline.answer
    assert "1 inconclusive" in headline.certainty


def test_of_exact_values_the_largest_difference_is_named_with_both_values():
    rows = sweep({1: True, 2: True}, "gpus")
    exact = {"method": EXACT, "p_adjusted": None, "confidence": None, "factor": "gpus"}
    few = pair(1, 2, (62.9, 54.4), "better", **exact, fixed={"arrivals": "zero"})
    more = pair(1, 4, (62.9, 57.0), "better", **exact, fixed={"arrivals": "zero"})
    headline = headline_of(ASKED, summary(*rows, comparisons=Comparisons(comparisons=(more, few))))
    assert headline.answer.startswith("gpus = 2 gave ")
    assert "54.4 against 62.9" in headline.answer
    assert "p =" not in headline.answer + headline.certainty
    assert "repetition" not in headline.answer


@pytest.mark.covers("E-FR27")
@pytest.mark.parametrize(
    ("met", "says"),
    [
        ({1: False, 2: True, 3: True}, " met by all but replicas 1."),
        ({1: False, 2: False, 3: True}, " met by replicas 3."),
        ({1: True, 2: True}, " met by every treatment."),
        ({1: False, 2: False}, " met by none."),
    ],
)
def test_a_declared_comparison_says_which_treatments_meet_the_objectives(met, says):
    rows = sweep(met, "replicas")
    found = Comparisons(comparisons=(pair(1, 2, (100.0, 200.0), "better", "replicas"),))
    headline = headline_of(ASKED, summary(*rows, comparisons=found))
    assert headline.kind == "comparison"
    assert headline.answer.endswith(says)


RECALL = {"metric": "recall_at_10", "op": ">=", "limit": 0.95}


def stores(rates, recalls=(1.0, 0.97, 0.96), slos=True):
    """Return treatments of two services, one of which has two levels of its own, at two numbers of users."""
    variants = [("faiss", "flat"), ("faiss", "ivf"), ("milvus", "hnsw")]
    return [
        row(
            f"{service}-{index}-{users}",
            users * rate,
            service=service,
            verdict="VALID",
            factors={"service": service, "index": index, "concurrency": users},
            quality={"recall_at_10": recall},
            slos=(ObjectiveSummary(**RECALL, met=5 * (recall >= 0.95), of=5),) if slos else (),
        )
        for users in (1, 4)
        for (service, index), rate, recall in zip(variants, rates[users], recalls, strict=True)
    ]


IN_ORDER = "worst best median worst median best"


@pytest.mark.covers("E-FR29")
@pytest.mark.parametrize(
    ("recalls", "slos", "best", "places"),
    [
        ((1.0, 0.97, 0.96), True, ("faiss (index ivf)", "milvus (index hnsw)"), IN_ORDER),
        ((1.0, 0.60, 0.96), True, ("faiss (index flat)", "milvus (index hnsw)"), "best  worst worst  best"),
        ((1.0, 0.60, 0.96), False, (), None),
        ((0.96, 0.96, 0.96), False, ("faiss (index ivf)", "milvus (index hnsw)"), IN_ORDER),
    ],
)
def test_services_begin_with_the_best_of_equal_quality_at_each_level_of_the_load(recalls, slos, best, places):
    rows = stores({1: (10.0, 30.0, 5.0 if recalls[1] < 0.9 else 20.0), 4: (10.0, 20.0, 30.0)}, recalls, slos)
    sides = {"base": replace(side("faiss", 10.0), own={"index": "flat"}), "new": side("milvus", 20.0)}
    found = Comparisons(family=1, comparisons=(replace(pair("", "", (10.0, 20.0), "better", "service"), **sides),))
    headline = headline_of(ASKED, summary(*rows, comparisons=found))
    assert headline.answer.startswith("Greatest throughput: ") is bool(best)
    for name, users in zip(best, (1, 4), strict=False):
        assert f"{name} at concurrency {users}" in headline.answer
    columns = [column for column in workload_table(rows, found).columns if column.name == "place"]
    marks = [" ".join(cell.text for cell in column.cells) for column in columns]
    assert marks == ([] if places is None else [places])


def test_a_service_is_named_with_what_it_alone_was_given():
    milvus = replace(side("milvus", 1.0), own={"index": "hnsw", "m": 16})
    assert side_name(milvus, "service") == "milvus (index hnsw, m 16)"
    assert side_name(side("milvus", 1.0), "service") == "milvus"
    sides = {"base": side("faiss", 10.0), "new": milvus}
    found = Comparisons(family=1, comparisons=(replace(pair("", "", (10.0, 20.0), "better", "service"), **sides),))
    [number] = headline_of(ASKED, summary(row("a", 1.0, factors={"service": "faiss"}), comparisons=found)).numbers
    assert "milvus (index hnsw, m 16) against faiss" in number.name


@pytest.mark.covers("E-FR27")
def test_policies_begin_with_the_best_one_and_its_margin_over_the_next():
    rows = [row(name, factors={"policy": name}) for name in ("fifo", "heft", "easy")]
    own = {"metric": "completion_mean_s", "better": "lower", "unit": "s"}
    pairs = (
        pair("fifo", "heft", (22.0, 20.0), "better", "policy", **own),
        pair("fifo", "easy", (22.0, 21.0), "better", "policy", **own),
    )
    headline = headline_of(ASKED, summary(*rows, comparisons=Comparisons(family=2, comparisons=pairs)))
    assert headline.kind == "policies"
    assert "heft (20.0 s, 5 % ahead of easy)" in headline.answer, "named once"
    assert "(1)" not in headline.certainty
    assert [number.value for number in headline.numbers] == [20.0, 21.0]


@pytest.mark.covers("E-FR27")
@pytest.mark.parametrize(
    ("new", "says"),
    [(None, "fifo (22.0 s)."), (22.0, "fifo (22.0 s, level with heft)"), (0.0, "heft (0 s, ahead of fifo)")],
)
def test_a_best_policy_is_ahead_of_another_one_only(new, says):
    rows = [row(name, factors={"policy": name}) for name in ("fifo", "heft")]
    own = {"metric": "completion_mean_s", "better": "lower", "unit": "s"}
    one = pair("fifo", "heft", (22.0, 22.0), "inconclusive", "policy", **own)
    found = Comparisons(family=1, comparisons=(replace(one, new=replace(one.new, median=new)),))
    assert says in headline_of(ASKED, summary(*rows, comparisons=found)).answer


@pytest.mark.covers("E-FR27")
def test_an_evaluation_begins_with_the_method_to_take():
    known = {"quality": 0.9, "quality_low": 0.82, "quality_high": 0.95, "cost": 10.0}
    base = FrontPoint(level="dense", treatment="d", trials=6, ratio=1.0, on_front=True, **known)
    fast = replace(base, level="fast", treatment="f", cost=5.0, ratio=0.5, not_worse=True, cheaper=True)
    front = Front(
        workload="w",
        factor="method",
        base="dense",
        quality="score",
        cost="ttft_ms.p50",
        cost_unit="ms",
        items=100,
        margin=0.05,
        points=(base, fast),
    )
    rows = [row(name, factors={"method": name}) for name in ("dense", "fast")]
    headline = headline_of(ASKED, summary(*rows, comparisons=Comparisons(fronts=(front,))))
    assert (headline.kind, headline.answer.split(":")[0]) == ("evaluation", "Take method = fast")
    assert [(one.low, one.high) for one in headline.numbers[:2]] == [(0.82, 0.95)] * 2
    assert "0.900 (0.820 to 0.950)" in headline.certainty


def test_a_prediction_begins_with_how_many_figures_and_verdicts_were_right():
    score = PredictionScore(scenario="s", fit="f", interval=0.9, inside=29, compared=33, right=3, judged=3, loads=())
    headline = headline_of(PLAN, summary(row("a", 1.0)), score)
    assert headline.kind == "prediction"
    assert headline.answer.startswith("29 of 33 ")
    assert "3 of 3 " in headline.answer
    assert [number.value for number in headline.numbers] == [29, 3]


def test_a_tour_says_what_was_measured_and_where_to_look():
    rows = [
        row("a", 10.0, factors={"size": 1}),
        row("b", 30.0, factors={"size": 2}),
        row("c", 5.0, workload="v", service="other"),
    ]
    headline = headline_of(PLAN, summary(*rows))
    assert (headline.kind, headline.answer.startswith("Measured 2 services in 3 treatments: ")) == ("tour", True)
    assert "10.0 – 30.0 replies/s" in headline.answer
    several, alone = headline.numbers
    assert (several.name, several.low, several.high) == ("w: throughput, greatest of 2", 10.0, 30.0)
    assert (alone.name, alone.low, alone.high) == ("v: throughput", None, None)
    assert "Summary" in headline.answer


@pytest.mark.parametrize(("slowest_ms", "says"), [(38.5, "36.6 – 38.5 ms"), (92_530.0, "0.0366 – 92.5 s")])
def test_times_above_ten_seconds_are_in_seconds(slowest_ms, says):
    times = [BoundedDistribution(p50=value_ms) for value_ms in (36.6, slowest_ms)]
    rows = [row(f"{at}", 1.0, latency_ms=one, config={"pattern": "poisson"}) for at, one in enumerate(times)]
    tour = headline_of(PLAN, summary(*rows, row("c", 5.0, workload="v", service="other")))
    assert f"w p50 {says}" in tour.answer
    one = number_text(tour.numbers[0])
    assert one == ("38.5 ms (36.6 to 38.5)" if slowest_ms < 100 else "92.5 s (0.0366 to 92.5)")


def test_without_a_result_that_is_the_answer():
    assert headline_of(PLAN, summary(row("a", repetitions=0))).kind == "nothing"


@pytest.mark.parametrize(
    ("objective", "text"),
    [
        (("latency_p90_s", "<=", 0.1), "p90 <= 100 ms"),
        (("ttft_p99_s", "<=", 30.0), "TTFT p99 <= 30 s"),
        (("error_rate", "<=", 0.01), "error rate <= 0.01"),
    ],
)
def test_objectives_are_in_words(objective, text):
    assert objective_text(*objective) == text
