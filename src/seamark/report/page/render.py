"""Report of a scenario: one self-contained HTML file, the same as Markdown, and its figures."""

import base64
import json
import multiprocessing
import os
import re
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import datetime
from functools import partial
from importlib.resources import files
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from seamark.analysis.comparison.predicted import score_of
from seamark.platform.process_tree import die_with_parent
from seamark.report.figures.factors import factor_blocks
from seamark.report.figures.latency_cdf import latency_blocks
from seamark.report.figures.timelines import order_pictures, phases_pictures, timeline_pictures
from seamark.report.headline import headline_of
from seamark.report.ordering import only_simulated
from seamark.report.page.answers import answers_section
from seamark.report.page.comparisons import comparison_blocks
from seamark.report.page.content import Block, Fold, Picture, Section, Text
from seamark.report.page.fronts import front_blocks
from seamark.report.page.interference import documents_of, first_slowdown, interference_blocks
from seamark.report.page.io_score import score_section
from seamark.report.page.page_part import PagePart, WorkloadBlocks, page_parts
from seamark.report.page.provenance import configuration_section, deployments_table, nodes_section, reproduce_section
from seamark.report.page.replicas import gateways_of, replica_blocks, replicas_of
from seamark.report.page.search import search_blocks
from seamark.report.page.sections import (
    about,
    counts,
    failures_section,
    glossary_section,
    numbers,
    prediction_section,
    verdicts_section,
    where,
)
from seamark.report.page.stages import first_bottlenecks, stages_blocks, stages_of
from seamark.report.source import Results, read_results, slug
from seamark.report.tables.resources import resources_section
from seamark.report.tables.summary import summary_section, trials_section
from seamark.storage.documents import write_text
from seamark.storage.redaction import visible

RUN = PagePart(id="run", title="Run timeline", own_blocks=(phases_pictures, order_pictures))
COMPARED = PagePart(id="comparisons", title="Comparisons", own_blocks=(comparison_blocks,))
INTERFERENCE = PagePart(id="interference", title="Who slows whom", own_blocks=(interference_blocks,))
FRONTS = PagePart(id="fronts", title="Quality against cost", own_blocks=(front_blocks,))
TICKED = re.compile(r"`([^`]+)`")


def write_report(scenario_folder: Path, reports_folder: Path, say: Callable[[str], object] = lambda _: None) -> Path:
    """Write index.html, report.md and figures/ of one scenario and return the path of index.html.

    `say` gets `12 of 29 parts` as the figures are drawn.
    `scenario_folder` is the scenario's folder of results, with plan.json and summary.json in it; the report goes
    to a folder of the same name below `reports_folder`. No samples are read. Raises ValueError when plan or summary
    are damaged and FileNotFoundError when they are missing.
    """
    results = read_results(scenario_folder)
    folder = reports_folder / scenario_folder.name
    sections = page(results, say)
    _write_figures(folder / "figures", sections)
    _write_interference(folder, results)
    score = score_of(results.plan, results.folder)
    headline = headline_of(results.plan, results.summary, score)
    environment = _environment()
    content = {
        "title": results.scenario,
        "headline": headline,
        "numbers": numbers(headline),
        "finding": first_slowdown(results) or first_bottlenecks(results),
        "counts": counts(results),
        "where": where(results),
        "sections": sections,
        "style": files(__package__).joinpath("page.css").read_text(encoding="utf-8"),
        "made_at": datetime.now().astimezone().isoformat(timespec="seconds"),
    }
    for name, template in (("report.md", "page.md.j2"), ("index.html", "page.html.j2")):
        write_text(folder / name, visible(environment.get_template(template).render(content)))
    return folder / "index.html"


def _write_figures(folder: Path, sections: Iterable[Section]) -> None:
    """Write the figures of a report, and remove those of an earlier one."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("*.svg"), *folder.glob("*.png")):
        old.unlink()
    ahead: list[Section | Block] = [*sections]
    while ahead:
        part = ahead.pop()
        if isinstance(part, Picture):
            (folder / f"{part.name}.svg").write_bytes(part.svg)
            (folder / f"{part.name}.png").write_bytes(part.png)
        elif isinstance(part, Section | Fold):
            ahead += [*part.blocks, *(part.sections if isinstance(part, Section) else ())]


def _write_interference(folder: Path, results: Results) -> None:
    """Write who slows whom as interference.json and interference.csv; remove those of an earlier report."""
    found = documents_of(results)
    paths = [folder / f"interference.{form}" for form in ("json", "csv")]
    if not found:
        for path in paths:
            path.unlink(missing_ok=True)
        return
    write_text(paths[0], json.dumps({"schema_version": 1, "scenario": results.scenario, **found}, indent=1) + "\n")
    joined = {"beside": "+", "doubts": " "}
    rows = [
        row | {name: mark.join(map(str, row[name])) for name, mark in joined.items()}  # type: ignore[call-overload]
        for row in found["slowdowns"]
    ]
    write_text(paths[1], pd.DataFrame(rows).to_csv(index=False))


def page(results: Results, say: Callable[[str], object]) -> tuple[Section, ...]:
    """Return the sections of a report; `say` gets how many of its parts are drawn."""
    drawn = _drawn(results, say)
    compares = results.summary.comparisons is not None
    simulated = only_simulated(results.summary)  # no start, order or machine is in a figure
    sections = (
        summary_section(results),
        score_section(results.treatments),
        prediction_section(results),
        FRONTS.section(drawn[FRONTS]),
        INTERFERENCE.section(drawn[INTERFERENCE]),
        Section(id=COMPARED.id, title=COMPARED.title, blocks=tuple(drawn[COMPARED])) if compares else None,
        answers_section(results),
        failures_section(results),
        verdicts_section(results),
        *(part.section(drawn[part]) for part in page_parts()),
        *_services(results, drawn),
        None if simulated else _run_section(results, drawn[RUN]),
        trials_section(results),
        resources_section(results),
        configuration_section(results),
        None if simulated else nodes_section(results),
        reproduce_section(results),
        Section(id="about", title="About this run", blocks=(about(results),)),
        glossary_section(results.summary),
    )
    return tuple(section for section in sections if section is not None)


def _drawn(results: Results, say: Callable[[str], object]) -> Mapping[PagePart | str, Sequence[Block]]:
    """Return the blocks of each part of the page, and those of each workload by its stem."""
    parts = page_parts()
    own = [*([] if only_simulated(results.summary) else [RUN]), *parts, COMPARED, FRONTS, INTERFERENCE]
    tasks: list[tuple[PagePart | str, Task]] = []
    for workload in (workload for workloads in results.services.values() for workload in workloads):
        draws: list[WorkloadBlocks] = [
            search_blocks,
            *(draw for part in parts for draw in part.first_blocks),
            factor_blocks,
        ]
        if workload.treatments[0].component != "program":  # it is one run: no distribution, no seconds
            draws += [latency_blocks, timeline_pictures]
        draws += [draw for part in parts for draw in part.last_blocks]
        if any(stages_of(results, treatment) for treatment in workload.treatments):
            draws.append(stages_blocks)
        if any(kind(results, row) for row in workload.treatments for kind in (replicas_of, gateways_of)):
            draws.append(replica_blocks)
        tasks += [(workload.stem, partial(draw, workload)) for draw in draws]
    tasks += [(part, partial(draw, results)) for part in own for draw in part.own_blocks]
    drawn: defaultdict[PagePart | str, list[Block]] = defaultdict(list)
    for (key, _), blocks in zip(tasks, draw_in_parallel([task for _, task in tasks], say), strict=True):
        drawn[key] += blocks
    return drawn


def _services(results: Results, drawn: Mapping[PagePart | str, Sequence[Block]]) -> list[Section]:
    """Return a section for each service, with the figures of each of its workloads."""
    sections = []
    nothing = Text(text="No trial of this workload is ok: there is nothing to draw.", kind="warning")
    for service, workloads in results.services.items():
        whole = Section(id=f"service-{slug(service)}", title=service)
        inner = [
            Section(id=f"workload-{one.stem}", title=one.name, blocks=tuple(drawn[one.stem]) or (nothing,))
            for one in workloads
        ]
        alone = len(inner) == 1
        sections.append(replace(whole, blocks=inner[0].blocks) if alone else replace(whole, sections=tuple(inner)))
    return sections


def _run_section(results: Results, drawn: Sequence[Block]) -> Section:
    """Return deployments with their time to service, and drift over the order of the run."""
    blocks = list(drawn)
    if results.deployments:
        blocks.append(deployments_table(results))
    if not blocks:
        blocks = [Text(text="No deployment left a record, and no treatment was repeated.")]
    return Section(id=RUN.id, title=RUN.title, blocks=tuple(blocks))


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
