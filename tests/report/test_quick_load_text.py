"""What `bench load` prints of a metrics.json document: whatever of it is not known, the rest is printed."""

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import numpy as np
import pytest
from make_results import Made, make_results

from seamark.analysis.metrics.schema import metrics_schema
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.report.terminal import BARS, quick_load_text
from seamark.stats.histogram import of
from seamark.storage.codec import decode
from seamark.storage.documents import read_json
from seamark.storage.paths import ScenarioFolder

GIVEN = ("counts", "window")
"""What a load that ran always has; null for trials that failed alone."""
ROW = re.compile(r"<= *([\d.,e+-]+) ms (#*) +([\d.]+) %")


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    made = Made(service="slow", component="inference", unit="item", service_ms=100.0, cap_rps=1_000)
    root = make_results(tmp_path_factory.mktemp("m"), services=(made,), repetitions=1, fail=(), suspect=())
    folder = ScenarioFolder(root=root)
    found = read_json(folder.trial(read_json(folder.plan)["trials"][0]["id"]).metrics)
    lag = {"ranges": {}, "p50": 0.1, "p99": 0.2, "max": 0.3}
    return found | {"schedule_lag_ms": lag, "offered_rps": 10.0}


def paths(node: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Give the path of everything in a document."""
    items = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*at, key)
        yield from paths(value, (*at, key))


def without(document: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = None
    return changed


@pytest.mark.slow
@pytest.mark.covers("E-CLI02")
def test_a_document_is_printed_whatever_in_it_is_null_where_the_schema_allows_it(document):
    validator = jsonschema.Draft202012Validator(metrics_schema())
    validator.validate(document)
    tried = 0
    for path in paths(document):
        changed = without(document, path)
        if path[0] not in GIVEN and validator.is_valid(changed):
            text = quick_load_text(decode(changed, TrialMetrics), None)
            assert document["verdict"] in text, path
            tried += 1
    assert tried > 30


def test_what_the_server_says_of_failed_requests_stands_below_their_number(document):
    seen = {"503 Service Unavailable": {"category": "server_error", "count": 7, "words": "no room"}}
    failed = document["errors"] | {"by_category": {"server_error": 7}, "own": seen}
    text = quick_load_text(decode(document | {"errors": failed}, TrialMetrics), None)
    assert "failures: server_error 7\n  503 Service Unavailable (7): no room\n" in text


def rows(text: str) -> list[tuple[str, int, float]]:
    return [(bound, len(bar), float(share)) for bound, bar, share in ROW.findall(text)]


@pytest.mark.parametrize("spread", [0.001, 0.01, 0.1, 1.0])
def test_the_bars_are_of_whole_buckets_with_no_comb_of_empty_rows_and_no_label_twice(document, spread):
    times = (2e7 * np.random.default_rng(3).lognormal(0, spread, 100_000)).astype(np.int64)
    found = rows(quick_load_text(decode(document, TrialMetrics), of(times, 0.01)))
    assert 1 <= len(found) <= BARS
    assert [bound for bound, _, _ in found] == list(dict.fromkeys(bound for bound, _, _ in found))
    assert sum(share for _, _, share in found) == pytest.approx(100, abs=0.1)
    shares = [share for _, _, share in found]
    middle = shares.index(max(shares))
    assert shares[:middle] == sorted(shares[:middle])
    assert shares[middle:-1] == sorted(shares[middle:-1], reverse=True)


def test_few_replies_have_few_bars(document):
    assert (
        len(rows(quick_load_text(decode(document, TrialMetrics), of(np.array([10**6, 2 * 10**6, 9 * 10**6]))))) <= 3
    )
