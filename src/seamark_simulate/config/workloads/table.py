"""The table of all formats of requests, and the reader that takes whichever a file has."""

from codecs import BOM_UTF8
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from seamark.config.json_source import LARGEST_BYTES, load_document
from seamark.config.yaml_source import Mistakes, read_text, shown
from seamark.errors import Mistake, UserError
from seamark.patterns.packed import unpacked
from seamark_simulate.config.workflow_files import read_files, read_system
from seamark_simulate.config.workloads.samples import is_samples, read_samples
from seamark_simulate.config.workloads.swf import is_swf, read_swf
from seamark_simulate.config.workloads.token_trace import is_token_trace, read_token_trace
from seamark_simulate.config.workloads.wfcommons import is_wfcommons, read_wfcommons
from seamark_simulate.simulation.system import System
from seamark_simulate.simulation.workload import Requests

HEAD_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class RequestsFormat:
    """A format by its name. `models`: whether a system file is `needed`, `refused` (the file brings its own tasks),
    or may be given (`optional`)."""

    name: str
    recognises: Callable[[bytes], bool]
    read: Callable[[Path, System | None, Mistakes], Requests | None]
    models: str


FORMATS = (
    RequestsFormat(name="samples.parquet", recognises=is_samples, read=read_samples, models="optional"),
    RequestsFormat(name="WfCommons instance", recognises=is_wfcommons, read=read_wfcommons, models="refused"),
    RequestsFormat(name="log in SWF", recognises=is_swf, read=read_swf, models="refused"),
    RequestsFormat(name="trace of tokens", recognises=is_token_trace, read=read_token_trace, models="needed"),
)
"""Tried in this order; a file that none recognises is a list of requests of our own."""


def format_of(path: Path) -> RequestsFormat | None:
    """Return the format of a file by its beginning, None for our own, and where it cannot be read."""
    try:
        with unpacked(path) as file:
            head = file.read(HEAD_BYTES)
    except (OSError, ValueError):
        return None
    head = head.removeprefix(BOM_UTF8)
    return next((form for form in FORMATS if form.recognises(head)), None)


def read_workload(system_path: Path | None, requests_path: Path) -> Requests:
    """Return the system and the requests of one or two files. Raises UserError with every mistake."""
    try:
        return _read_workload(system_path, requests_path)
    except UserError:
        if system_path is None or (_holds(system_path), _holds(requests_path)) != ("requests", "models"):
            raise
        text = (
            f"holds requests, and {shown(requests_path)} holds models: the files of --config and --requests"
            " (system_file and requests_file) are exchanged."
        )
        raise UserError(Mistake(code="conflict", file=shown(system_path), text=text)) from None


def _holds(path: Path) -> str | None:
    """Return "requests" or "models", None for neither."""
    if format_of(path) is not None:
        return "requests"
    tree = load_document(path, Mistakes())
    return next((key for key in ("requests", "models") if tree is not None and key in tree.value), None)


def _read_workload(system_path: Path | None, requests_path: Path) -> Requests:
    mistakes = Mistakes()
    form = format_of(requests_path)
    if form is None:
        if system_path is None:
            read_text(requests_path, mistakes, LARGEST_BYTES)
            mistakes.raise_any()
            raise UserError(f"{shown(requests_path)}: requests to workflows need the file of these: {REMEDY}.")
        return read_files(system_path, requests_path)
    if form.models == "refused" and system_path is not None:
        raise UserError(
            f"{shown(system_path)}: {shown(requests_path)} is a {form.name}, which has its own tasks. Leave the file"
            " of models out (--config of `bench simulate`, or system_file)."
        )
    if form.models == "needed" and system_path is None:
        raise UserError(f"{shown(requests_path)}: a {form.name} has no models: {REMEDY}.")
    given = None if system_path is None else read_system(system_path)
    workload = form.read(requests_path, given, mistakes)
    mistakes.raise_any()
    assert workload is not None, "a file without mistakes is read"
    return workload


REMEDY = "name a file of models and workflows (--config, or system_file)"
