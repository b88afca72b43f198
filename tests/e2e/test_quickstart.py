"""The main job as a new user runs it: every shipped service, for real, from submit to the report."""

import json
from html.parser import HTMLParser

import pytest

from seamark.storage.documents import read_json

pytestmark = [pytest.mark.e2e, pytest.mark.services]

QUICKSTART = ("submit", "-c", "config/scenarios/quickstart.yaml")


class Loaded(HTMLParser):
    """Collects what a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag in ("script", "img", "link", "iframe"):
            self.urls += [given[name] for name in ("src", "href") if name in given]


@pytest.mark.covers("E-FR16", "E-FR17", "E-FR18", "E-FR19", "E-FR21", "E-FR23", "E-FR26", "E-FR27", "E-NFR05")
def test_the_quickstart_measures_every_service_and_a_second_run_measures_nothing(study):
    done = study.bench(*QUICKSTART, pages=True, timeout=1200)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    results = study.root / "results" / "quickstart"
    summary = read_json(results / "summary.json")
    assert (summary["trials"], summary["ok"]) == (36, 36)
    assert {row["service"] for row in summary["treatments"]} == {"fileio", "postgres", "s3", "faiss", "triton"}
    for row in summary["treatments"]:
        assert row["throughput"]["median"] > 0
        assert row["latency_ms"]["p50"] > 0
        assert row["errors"]["rate"] == 0
    recall = {
        row["config"]["index"]: row["quality"]["recall_at_10"]
        for row in summary["treatments"]
        if "index" in row["config"]
    }
    assert recall["flat"] == 1.0
    assert 0.7 < recall["hnsw"] < 1.0
    page = (study.root / "reports" / "quickstart" / "index.html").read_text()
    parser = Loaded()
    parser.feed(page)
    assert [url for url in parser.urls if not url.startswith("data:")] == []
    assert not study.processes()
    study.bench(*QUICKSTART, pages=True, code=0)
    assert "Nothing to be done" in sorted((results / "logs").glob("submit-*"))[-1].read_text()
    counts = [(path.parent / "log.jsonl").read_text().count("load ended") for path in results.glob("*/load.json")]
    assert counts == [1] * 36
    meta = json.loads(next(results.glob("postgres*--*/meta.json")).read_text())
    assert meta["software"]["lock"] == "postgres.lock"
    assert meta["machine"]["cpu_model"]
