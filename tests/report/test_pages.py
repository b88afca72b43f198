"""The report of a scenario: every section is there, nothing is fetched, and what is not known is no number."""

import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pandas as pd
import pytest
from make_results import META, SERVICES, Made, make_results

from seamark.report.figures.timelines import timeline_pictures
from seamark.report.page.render import _cell_md, write_report
from seamark.report.page.sections import about
from seamark.report.source import read_results
from seamark.storage.documents import read_json, write_json
from seamark.storage.paths import ScenarioFolder

pytestmark = pytest.mark.slow

TWO = tuple(made for made in SERVICES if made.service in ("postgres", "faiss"))


class Page(HTMLParser):
    """Gathers what a page would load, its anchors, its links and the text of its cells."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "srcset", "data", "poster") or (name == "href" and tag != "a"):
                self.loads.append(value or "")
            elif name == "href":
                self.links.append(value or "")
            elif name == "id":
                self.ids.append(value or "")

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("made")
    results = make_results(root / "results", services=TWO, fail=(3,), suspect=(6,))
    return results, write_report(results, root / "reports").parent


@pytest.mark.slow
@pytest.mark.covers("E-FR12", "E-FR27", "E-INT04")
def test_the_report_has_every_section_and_the_contents_lead_to_them(made):
    page = Page((made[1] / "index.html").read_text())
    wanted = ["results", "failed", "verdicts", "run", "trials", "configuration", "reproduce", "glossary"]
    assert [name for name in wanted if name not in page.ids] == []
    assert {"service-postgres", "service-faiss"} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert [link for link in page.links if not link.startswith("#") or link[1:] not in page.ids] == []


def test_the_page_stands_alone_and_fetches_nothing(made):
    html = (made[1] / "index.html").read_text()
    page = Page(html)
    assert page.loads
    assert [load[:60] for load in page.loads if not load.startswith("data:")] == []
    assert "script" not in page.tags
    style = html.split("<style>")[1].split("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


@pytest.mark.slow
def test_no_text_of_the_page_has_a_raw_backtick_or_control_character(tmp_path):
    results = make_results(tmp_path / "results", services=TWO[1:], fail=(1,), suspect=(), telemetry=False)
    first = ScenarioFolder(root=results).trial(read_json(results / "plan.json")["trials"][0]["id"])
    reason = {
        "code": "odd",
        "severity": "suspect",
        "text": "`bench` saw \x1b[31m\x07it\x9b",
        "remedy": "Call `bench doctor`.",
    }
    write_json(first.metrics, read_json(first.metrics) | {"verdict": "SUSPECT", "reasons": [reason]})
    page = write_report(results, tmp_path / "reports")
    html = page.read_text()
    body = re.sub(r"<(style|pre|code)\b.*?</\1>", "", html.split("<body>")[1], flags=re.DOTALL)
    assert "Call <code>bench doctor</code>." in html
    assert re.findall(r".{30}`.{30}", body) == []
    for text in (html, page.with_name("report.md").read_text()):
        assert "saw ␛[31m␇it" in text
        assert re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text) == []


def test_rows_and_figures_are_not_cut_by_the_end_of_a_printed_page():
    style = files("seamark.report.page").joinpath("page.css").read_text()
    printed = style[style.index("@media print{") :]
    rules = {
        selector.strip(): body
        for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", printed.removeprefix("@media print{"))
        for selector in selectors.split(",")
    }
    assert {rules[each] for each in ("tr", "figure.picture", "dl div")} == {"break-inside:avoid"}
    assert style.count("{") == style.count("}")


@pytest.mark.covers("E-NFR04")
def test_a_failed_trial_is_listed_with_its_reason_and_the_last_lines_of_the_log(made):
    results, report = made
    failed = read_json(results / "summary.json")["failed"]
    assert len(failed) == 1
    html = (report / "index.html").read_text()
    text = Page(html).text
    section = text.split("Failed trials")[-1]
    assert read_results(results).names[failed[0]["trial"]] in section
    assert f'title="{failed[0]["trial"]}"' in html
    assert "ended with code 137" in section
    assert "FATAL:  <out of memory> & gone" in section
    assert "15 of 20" not in text
    assert "19 of 20 trials ok" in text


@pytest.mark.slow
def test_the_head_says_that_blocks_lie_within_a_start_and_what_has_no_p(made):
    results = read_results(made[0])
    pairs = dict(about(results).pairs)
    assert "in randomised blocks, within each of 2 starts that follow one another" in pairs["Design"]
    assert "Comparisons" not in pairs
    factors = {**results.plan.factors, "deployment": {"files": (1, 2)}}
    pairs = dict(about(replace(results, plan=replace(results.plan, factors=factors))).pairs)
    assert pairs["Comparisons"].startswith(
        "Of files: no p and no smallest effect: each level of files is measured on"
    )


def test_a_withheld_percentile_is_a_dash_or_its_grey_interval(made):
    results, report = made
    withheld = [t for t in read_json(results / "summary.json")["treatments"] if t["latency_ms"]["p99"] is None]
    assert withheld, "the model should make a treatment of few samples"
    rows = re.findall(r"<tr>(.*?)</tr>", (report / "index.html").read_text(), re.DOTALL)
    dashes = [row for row in rows if "withheld: too few samples" in row]
    assert len(dashes) >= len(withheld)
    for row in dashes:
        cell = re.search(r'<span class="hint (absent|faint)" title="withheld[^"]*">(.*?)</span>', row)
        assert cell is not None, row
        assert (cell.group(2) == "–") == (cell.group(1) == "absent")


def test_a_suspect_trial_shows_its_reason_its_count_and_what_to_do(made):
    text = Page((made[1] / "index.html").read_text()).text
    section = text[text.rindex("Verdicts") :]
    assert "client_cpu" in section
    assert "1 of 19" in section
    assert "Raise shards" in section


@pytest.mark.slow
def test_names_from_results_cannot_become_html(tmp_path):
    bad = Made(
        service="<b>x</b>",
        component="inference",
        unit="item",
        service_ms=5,
        cap_rps=300,
        factors={"model": ("<script>alert(1)</script>", 'a"onload="x|y`z'), "concurrency": (1, 2)},
    )
    results = make_results(tmp_path / "results", services=(bad,), fail=(0,), suspect=())
    index = write_report(results, tmp_path / "reports")
    html = index.read_text()
    page = Page(html)
    assert "script" not in page.tags
    assert "b" not in page.tags
    assert "<script>alert(1)</script>" in page.text
    markdown = (index.parent / "report.md").read_text()
    outside = re.sub(r"(`{3,}).*?\1", "", markdown, flags=re.DOTALL)
    assert "<script>" not in outside
    assert "<b>" not in outside


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("say `slos: ['p99 <= 1', 'score >= 2']`", "say `slos: ['p99 <= 1', 'score >= 2']`"),
        ("<b>x</b> <!-- a|b", "&lt;b>x&lt;/b> &lt;!-- a\\|b"),
        ("> quoted", "&gt; quoted"),
    ],
)
def test_in_markdown_nothing_but_tags_and_quotations_is_escaped(text, shown):
    assert _cell_md(text) == shown


@pytest.mark.covers("E-FR27")
def test_the_markdown_says_the_same_and_its_links_exist(made):
    _results, report = made
    markdown = (report / "report.md").read_text()
    targets = re.findall(r"\]\(([^)#]+)\)", markdown)
    assert any(target.endswith(".png") for target in targets)
    assert any(target.endswith(".svg") for target in targets)
    assert [target for target in targets if not (report / target).is_file()] == []
    headings = re.findall(r"<h[23]><a[^>]*>(.*?)</a>", (report / "index.html").read_text())
    assert headings == re.findall(r"^#{2,3} (?!Contents)(.*)$", markdown, re.MULTILINE)
    tables = [line for line in markdown.splitlines() if line.startswith("|")]
    assert tables
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in tables}
    assert min(widths) > 2
    for first, rule in zip(markdown.splitlines(), markdown.splitlines()[1:], strict=False):
        if rule.startswith("| ---"):
            assert first.count("|") == rule.count("|")


@pytest.mark.covers("E-FR27")
def test_every_figure_is_there_as_png_and_svg(made):
    figures = made[1] / "figures"
    names = {path.stem for path in figures.iterdir()}
    assert {"postgres-by-concurrency", "postgres-response-time", "postgres-over-time", "time-to-service"} <= names
    for name in names:
        assert (figures / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (figures / f"{name}.svg").read_bytes()


@pytest.mark.covers("E-NFR04")
def test_a_scenario_without_one_good_trial_still_gets_a_report(tmp_path):
    results = make_results(tmp_path / "results", services=TWO[:1], fail=range(100), suspect=())
    text = Page(write_report(results, tmp_path / "reports").read_text()).text
    assert "0 of 12 trials ok" in text
    assert "there is nothing to draw" in text
    assert "server_died" in text


@pytest.mark.sweep
@pytest.mark.covers("E-NFR04")
def test_a_first_treatment_that_failed_in_every_repetition_spoils_no_report(tmp_path):
    results = make_results(tmp_path / "results", services=TWO[1:], fail=(), suspect=(), telemetry=False)
    plan = read_json(results / "plan.json")
    treatments = list(dict.fromkeys(trial["id"].rsplit("--r", 1)[0] for trial in plan["trials"]))
    for treatment in treatments:
        failed = [n for n, trial in enumerate(plan["trials"]) if trial["id"].startswith(f"{treatment}--r")]
        made = make_results(tmp_path / treatment, services=TWO[1:], fail=failed, suspect=(), telemetry=False)
        page = Page(write_report(made, tmp_path / treatment / "reports").read_text())
        assert "6 of 8 trials ok" in page.text
        assert "Left at defaults" in page.text


@pytest.mark.slow
def test_damaged_and_missing_files_of_one_trial_are_told_and_spoil_nothing(tmp_path):
    results = make_results(tmp_path / "results", services=TWO[:1], fail=(), suspect=(), telemetry=False)
    plan = read_json(results / "plan.json")
    folder = ScenarioFolder(root=results)
    first, second, third, fourth = (folder.trial(trial["id"]) for trial in plan["trials"][:4])
    first.metrics.write_text('{"status": "o')
    second.metrics.unlink()
    third.samples.write_bytes(b"PAR1 and then nothing")
    fourth.series.write_text("second,throughput\n0,many\n")
    fourth.meta.write_text("{")
    text = Page(write_report(results, tmp_path / "reports").read_text()).text
    assert "10 of 12 trials ok" in text
    assert "damaged_file" in text
    assert "missing_file" in text


@pytest.mark.slow
def test_the_same_results_give_the_same_figures_and_those_of_an_earlier_report_go(made, tmp_path):
    results, report = made
    old = tmp_path / "made" / "figures" / "gone.svg"
    old.parent.mkdir(parents=True)
    old.write_text("<svg/>")
    again = write_report(results, tmp_path).parent
    one, two = ({path.name: path.read_bytes() for path in (each / "figures").iterdir()} for each in (report, again))
    assert one == two


@pytest.mark.slow
def test_a_report_of_one_trial_speaks_of_one(tmp_path):
    one = Made(service="faiss", component="vectordb", unit="query", service_ms=0.8, cap_rps=2_500)
    results = make_results(tmp_path / "results", services=(one,), repetitions=1, fail=(), suspect=())
    text = Page(write_report(results, tmp_path / "reports").read_text()).text
    assert "1 of 1 trial ok" in text
    assert "1 treatment × 1 repetition in one start" in text
    assert re.findall(r"\b1 (?:trials|treatments|repetitions|nodes|deployments)\b", text) == []


def test_the_commands_to_reproduce_are_exact(made):
    results, report = made
    text = Page((report / "index.html").read_text()).text
    assert read_json(results / "plan.json")["source"] == str(results.parent / "made.yaml")
    assert "bench submit -c results/made.yaml" in text
    assert f"git checkout {META['git_commit']}" in text
    assert re.search(r"snakemake results/made/\S+/metrics\.json --config scenario=", text)


@pytest.mark.slow
def test_a_summary_without_optional_parts_is_enough(tmp_path):
    results = make_results(tmp_path / "results", services=TWO[:1], fail=(), suspect=())
    summary = read_json(results / "summary.json")
    kept = ("treatment", "workload", "service", "repetitions", "planned", "throughput", "verdict", "factors")
    summary["treatments"] = [{name: t[name] for name in kept} for t in summary["treatments"]]
    write_json(results / "summary.json", summary)
    assert write_report(results, tmp_path / "reports").is_file()


def test_the_timeline_of_a_slow_server_is_in_seconds(made, tmp_path):
    folder, _ = made
    slow = tmp_path / "results"
    shutil.copytree(folder, slow)
    for path in slow.rglob("series.csv"):
        seconds = pd.read_csv(path)
        seconds["latency_p99_s"] = 92.53
        seconds.to_csv(path, index=False)
    results = read_results(slow)
    [workload, *_] = next(iter(results.services.values()))
    [picture] = timeline_pictures(workload)
    assert "response (s)" in picture.svg.decode()
