"""Report of a scenario: one self-contained HTML file, the same as Markdown, and its figures."""

import base64
import multiprocessing
import os
import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from functools import partial
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from seamark.analysis.comparison.predicted import score_of
from seamark.model.results.summary import SummaryRow
from seamark.platform.process_tree import die_with_parent
from seamark.report.figures.factors import factor_pictures
from seamark.report.figures.latency_cdf import latency_pictures
from seamark.report.figures.search import search_picture
from seamark.report.figures.stages import stages_picture
from seamark.report.figures.timelines import order_picture, phases_picture, timeline_picture
from seamark.report.headline import headline_of
from seamark.report.ordering import only_simulated
from seamark.report.page.answers import answers_section
from seamark.report.page.comparisons import comparison_blocks, comparisons_section, front_blocks, fronts_section
from seamark.report.page.content import Block, Picture, Section, Text
from seamark.report.page.page_part import page_parts
from seamark.report.page.provenance import configuration_section, deployments_table, nodes_section, reproduce_section
from seamark.report.page.sections import (
    about_section,
    counts,
    failures_section,
    glossary_section,
    numbers,
    prediction_section,
    verdicts_section,
    where,
)
from seamark.report.source import Results, read_results
from seamark.report.tables.search import search_tables, searched_treatments
from seamark.report.tables.stages import stages_of, stages_table
from seamark.report.tables.summary import slug, summary_section, trials_section
from seamark.storage.documents import write_text
from seamark.storage.redaction import visible

TICKED = re.compile(r"`([^`]+)`")
RUN, COMPARED, FRONTS = "", "=", "/"
"""Keys of figures of the run, of comparisons and fronts, among those of workloads and of plugins."""


def write_report(scenario_folder: Path, reports_folder: Path, say: Callable[[str], object] = lambda _: None) -> Path:
    """Write index.html, report.md and figures/ of one scenario and return the path of index.html.

    `say` gets `12 of 29 parts` as the figures are drawn.
    `scenario_folder` is the scenario's folder of results, with plan.json and summary.json in it; the report goes
    to a folder of the same name below `reports_folder`. No samples are read. Raises ValueError when plan or summary
    are damaged and FileNotFoundError when they are missing.
    """
    results = read_results(scenario_folder)
    folder = reports_folder / scenario_folder.name
    _emptied(folder / "figures")
    sections = page(results, folder / "figures", say)
    score = score_of(results.plan, results.folder)
    headline = headline_of(results.plan, results.summary, score)
    environment = _environment()
    content = {
        "title": results.scenario,
        "headline": headline,
        "numbers": numbers(headline),
        "counts": counts(results),
        "where": where(results),
        "sections": sections,
        "style": files(__package__).joinpath("page.css").read_text(encoding="utf-8"),
        "made_at": datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    for name, template in (("report.md", "page.md.j2"), ("index.html", "page.html.j2")):
        write_text(folder / name, visible(environment.get_template(template).render(content)))
    return folder / "index.html"


def _emptied(folder: Path) -> None:
    """Make `folder` and remove the figures of an earlier report."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("*.svg", "*.png"):
        for old in folder.glob(kind):
            old.unlink()


def page(results: Results, figures: Path, say: Callable[[str], object]) -> tuple[Section, ...]:
    """Return the sections of a report; its figures are written below `figures`."""
    drawn = _drawn(results, figures, say)
    simulated = only_simulated(results.summary)  # no start, order or machine is in a figure
    sections = (
        summary_section(results),
        prediction_section(results),
        fronts_section(results, drawn[FRONTS]),
        comparisons_section(results, drawn[COMPARED]),
        answers_section(results),
        failures_section(results),
        verdicts_section(results),
        *(part.section(drawn.get(part.id, ())) for part in page_parts()),
        *services(results, drawn),
        run_timeline_section(results, drawn[RUN]) if not simulated else None,
        trials_section(results),
        configuration_section(results),
        nodes_section(results) if not simulated else None,
        reproduce_section(results),
        about_section(results),
        glossary_section(results.summary),
    )
    return tuple(section for section in sections if section is not None)


def _drawn(results: Results, figures: Path, say: Callable[[str], object]) -> Mapping[str, Sequence[Block]]:
    """Draw every figure; return those of each workload by its stem, those of the run under RUN."""
    tasks: list[tuple[str, Task]] = []
    parts = page_parts()
    for service, workloads in results.services():
        for workload, treatments in workloads:
            stem = _stem(service, workload)
            what = (results, workload, treatments, stem, figures)
            tasks.append((stem, partial(_search, *what)))
            tasks += [(stem, partial(draw, *what)) for part in parts for draw in part.first_blocks]
            tasks.append((stem, partial(factor_pictures, *what)))
            if treatments[0].component != "program":  # it is one run: no distribution, no seconds
                tasks.append((stem, partial(latency_pictures, *what)))
                tasks.append((stem, partial(_one, timeline_picture, *what)))
            tasks += [(stem, partial(draw, *what)) for part in parts for draw in part.last_blocks]
            if any(stages_of(results, treatment) for treatment in treatments):
                tasks.append((stem, partial(_stages, *what)))
    if not only_simulated(results.summary):
        tasks += [(RUN, partial(_one, draw, results, figures)) for draw in (phases_picture, order_picture)]
    tasks += [(part.id, partial(draw, results, figures)) for part in parts for draw in part.own_blocks]
    tasks.append((COMPARED, partial(comparison_blocks, results, figures)))
    tasks.append((FRONTS, partial(front_blocks, results, figures)))
    drawn: dict[str, list[Block]] = {RUN: [], **{name: [] for name, _ in tasks}}
    for (name, _), blocks in zip(tasks, draw_in_parallel([task for _, task in tasks], say), strict=True):
        drawn[name] += blocks
    return drawn


def _search(
    results: Results, workload: str, treatments: Sequence[SummaryRow], stem: str, figures: Path
) -> list[Block]:
    searched = searched_treatments(results, treatments)
    return [search_picture(searched, workload, stem, figures), *search_tables(searched)] if searched else []


def _stages(
    results: Results, workload: str, treatments: Sequence[SummaryRow], stem: str, figures: Path
) -> list[Block]:
    table = stages_table(results, treatments, f"{workload}: stages")
    picture = stages_picture(results, workload, treatments, stem, figures)
    return [block for block in (picture, table) if block is not None]


def _one(draw: Callable[..., Picture | None], *what: object) -> list[Block]:
    picture = draw(*what)
    return [] if picture is None else [picture]


def _stem(service: str, workload: str) -> str:
    return slug(f"{service} {workload}" if service not in workload else workload)


def services(results: Results, drawn: Mapping[str, Sequence[Block]]) -> list[Section]:
    """Return a section for each service, with the figures of each of its workloads."""
    sections = []
    for service, workloads in results.services():
        inner = []
        for workload, _ in workloads:
            stem = _stem(service, workload)
            nothing = Text(text="No trial of this workload is ok: there is nothing to draw.", kind="warning")
            blocks = tuple(drawn[stem]) or (nothing,)
            inner.append(Section(id=f"workload-{stem}", title=workload, blocks=blocks))
        if len(inner) == 1:
            sections.append(Section(id=f"service-{slug(service)}", title=service, blocks=inner[0].blocks))
        else:
            sections.append(Section(id=f"service-{slug(service)}", title=service, sections=tuple(inner)))
    return sections


def run_timeline_section(results: Results, drawn: Sequence[Block]) -> Section:
    """Return deployments with their time to service, and drift over the order of the run."""
    blocks = list(drawn)
    if results.deployments:
        blocks.append(deployments_table(results))
    if not blocks:
        blocks = [Text(text="No deployment left a record, and no treatment was repeated.")]
    return Section(id="run", title="Run timeline", blocks=tuple(blocks))


def _environment() -> Environment:
    here = files(__package__)
    environment = Environment(
        loader=FunctionLoader(lambda name: here.joinpath(name).read_text(encoding="utf-8")),
        autoescape=lambda name: name is not None and name.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["data_uri"] = lambda svg: f"data:image/svg+xml;base64,{base64.b64encode(svg).decode('ascii')}"
    environment.filters["cell_md"] = _cell_md
    environment.filters["ticks"] = _ticks
    environment.filters["plain"] = lambda text: TICKED.sub(r"\1", text)
    environment.filters["fenced"] = _fenced
    environment.filters["anchor"] = lambda title: "".join(
        c for c in title.lower() if c.isalnum() or c in " -_"
    ).replace(" ", "-")
    environment.tests["instance"] = lambda block, name: type(block).__name__ == name
    return environment


def _ticks(text: str) -> Markup:
    """Return text as HTML, with `backticks` as code."""
    parts = TICKED.split(text)
    return Markup("").join(Markup("<code>{}</code>").format(p) if i % 2 else escape(p) for i, p in enumerate(parts))


def _fenced(text: str, language: str) -> str:
    """Return text as a fenced block; the fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    return f"{'`' * (longest + 1)}{language}\n{text.rstrip()}\n{'`' * (longest + 1)}"


def _cell_md(text: str) -> str:
    """Return text escaped for a Markdown table. Of < and > only what begins a tag or a quotation is escaped: `code`
    shows an escape as it is."""
    escaped = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text.replace("\\", "\\\\").replace("|", "\\|"))
    return " ".join(re.sub(r"^\s*>", "&gt;", escaped).split())


MOST = 8
"""Maximum number of processes: a login node is shared."""

Task = Callable[[], Sequence[Block]]
_tasks: Sequence[Task] = ()


def draw_in_parallel(tasks: Sequence[Task], say: Callable[[str], object] = lambda _: None) -> list[Sequence[Block]]:
    """Run tasks in forked processes; return their results in order. Raises the first exception of a task.

    `say` gets the number of tasks that are done and of all: how many figures a task draws is known at its end.
    """
    many = min(len(tasks), len(os.sched_getaffinity(0)), MOST)
    if many < 2:
        return _counted((task() for task in tasks), len(tasks), say)
    # forked, so that results and tasks are there and need not be sent
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(many, mp_context=fork, initializer=_take, initargs=(tasks, os.getpid())) as pool:
        return _counted(pool.map(_run, range(len(tasks))), len(tasks), say)


def _counted(results: Iterable[Sequence[Block]], tasks: int, say: Callable[[str], object]) -> list[Sequence[Block]]:
    drawn: list[Sequence[Block]] = []
    for blocks in results:
        drawn.append(blocks)
        say(f"{len(drawn)} of {tasks} parts")
    return drawn


def _take(tasks: Sequence[Task], parent: int) -> None:
    die_with_parent(parent)
    global _tasks
    _tasks = tasks


def _run(index: int) -> Sequence[Block]:
    try:
        return _tasks[index]()
    except MemoryError:
        raise
    except Exception as error:  # some exceptions cannot be sent to another process: their text can
        raise RuntimeError(f"a figure could not be drawn: {error}\n{traceback.format_exc()}") from None
