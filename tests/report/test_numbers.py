"""How numbers look in reports."""

import math
import re
from pathlib import Path

import pytest
from fitted_models import station

from seamark.analysis.summary.repetitions import disagreements
from seamark.model.plurals import in_percent, in_time
from seamark.model.results.comparison import Front, FrontPoint, PredictionScore, ScoredFigure, ScoredLoad
from seamark.model.results.summary import SearchSummary
from seamark.report import numbers
from seamark.report.fronts import as_printed
from seamark.report.numbers import bracket, duration, level, number, percent, size, span, unit_words
from seamark.report.predicted import figure_rows
from seamark_simulate.model.fitted_model import StationParameters
from seamark_simulate.report.fitted import model_lines


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0, "0"),
        (0.0, "0"),
        (0.000_012_34, "1.23e-05"),
        (0.0123456, "0.0123"),
        (1.0, "1.00"),
        (9.999, "10.00"),
        (12.345, "12.3"),
        (999.4, "999"),
        (999.6, "1,000"),
        (1234.4, "1,234"),
        (12_345, "12,340"),
        (1_234_567, "1,235,000"),
        (-12.345, "-12.3"),
    ],
)
def test_a_number_has_three_or_four_significant_digits(value, text):
    assert number(value) == text


def test_what_is_not_known_is_never_zero():
    assert percent(None) == number(None) == duration(None) == size(None) == span(None, 3) == "–"
    assert percent(0.0) == "0"


def test_a_span_of_equal_ends_is_one_number():
    assert span(1.0, 1.001) == "1.00"
    assert span(1.0, 2.0) == "1.00 – 2.00"


def test_levels_units_and_sizes_read_as_a_person_writes_them():
    assert level(4096, "block_bytes") == "4 KiB"
    assert level(1000, "block_bytes") == "1,000"
    assert level(4096, "prompt_length") == "4,096"
    assert level(None) == "default"
    assert level(True) == "true"
    assert unit_words("items_per_s") == "items/s"
    assert duration(0.25) == "250 ms"
    assert duration(3725) == "62 min 5 s"
    assert size(1536) == "1.5 KiB"


@pytest.mark.parametrize(
    ("sides", "text"),
    [((155, 205), "155 – 205 (94 %)"), ((200, None), "≥ 200 (94 %)"), ((None, 219), "≤ 219 (94 %)")],
)
def test_an_open_side_of_a_bracket_is_a_bound(sides, text):
    assert bracket(SearchSummary(setting="rate_rps", bracket=sides, confidence=0.94)) == text


def test_a_share_is_printed_in_percent_by_one_function_with_a_space():
    assert (in_percent(0.955), in_percent(0.125, 1), in_percent(12)) == ("96 %", "12.5 %", "1,200 %")
    source = Path(numbers.__file__).parents[2]
    bare = re.compile(r"\.\d%\}|\}%[ ,.;)]")
    others = {
        path.relative_to(source).as_posix()
        for path in source.glob("seamark*/**/*.py")
        if bare.search(path.read_text())
    }
    assert others == {"seamark_simulate/simulation/log_text.py"}  # the course's log of a run, to the letter


def test_times_above_ten_seconds_are_in_seconds_and_others_in_ms():
    assert [in_time(time_s) for time_s in (0.098351, 9.9, 12.346)] == ["98.35 ms", "9900 ms", "12.35 s"]
    slow = StationParameters(mean_s=60.5, variation=1.0, overhead_s=0.02)
    assert " 60.5 s (" in model_lines(station(parameters=slow))[0]
    assert " 20.0 ms " in model_lines(station(parameters=slow))[0]
    figures = tuple(
        ScoredFigure(
            figure=f"latency_{name}_s", value=value_s, low=value_s / 2, high=2 * value_s, measured=(value_s,)
        )
        for name, value_s in (("p50", 2.0), ("p99", 60.0))
    )
    load = ScoredLoad(rate_rps=1.0, predicted_met=1.0, figures=figures)
    score = PredictionScore(scenario="s", interval=0.9, inside=2, compared=2, right=0, judged=0, loads=(load,))
    _, *rows = figure_rows(score)
    assert [row[1:5] for row in rows] == [
        ("latency p50, ms", "2,000", "1,000 to 4,000", "2,000"),
        ("latency p99, s", "60.0", "30.0 to 120", "60.0"),
    ]
    points = (FrontPoint(treatment="a", cost=2_000.0), FrontPoint(treatment="b", cost=30_000.0))
    shown = as_printed(Front(workload="w", factor="f", quality="q", cost="c", cost_unit="ms", points=points))
    assert (shown.cost_unit, [each.cost for each in shown.points]) == ("s", [2.0, 30.0])
    odd = disagreements({"a": 1e3, "b": 9e4}, "median response time", "ms", 2.0)
    assert " 90 s, " in odd["b"].text
    assert " 1 s" in odd["b"].text


def test_no_module_writes_a_time_in_ms_by_itself():
    source = Path(numbers.__file__).parents[2]
    bare = re.compile(r"\} ms\b")
    others = {
        path.relative_to(source).as_posix()
        for path in source.glob("seamark*/**/*.py")
        if bare.search(path.read_text())
    }
    assert others == {"seamark/report/numbers.py", "seamark/trials/calibration.py"}
