"""Tokens whose keys and values fit into the memory of a server, as it counted them itself."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from seamark.model.service import GpuMemory
from seamark.storage.paths import DeploymentFolder

START_UP_BYTES = 4 << 20
"""Part of a server's log, and of its telemetry, in which its counts are looked for."""
MOST_DIGITS = 15
BLOCKS = ("num_gpu_blocks", "block_size")
"""Labels whose product is the number of tokens."""


def counted_kv_tokens(folder: DeploymentFolder, declared: GpuMemory | None) -> int | None:
    """Return the tokens by the metric and by the line of the log that a recipe declares, None where both are missing.

    The fewest count, of several engines or starts and of metric and line: the metric of vLLM has the blocks of all
    groups of layers, and a token needs one of each group.
    """
    if declared is None:
        return None
    found = [
        *_in_log(folder.server_log, declared.tokens_line),
        *_in_metrics(folder.telemetry, declared.tokens_metric),
    ]
    return min(found, default=None)


def _in_log(log: Path, tokens_line: str | None) -> Iterator[int]:
    if tokens_line is not None:
        for text in re.findall(tokens_line, _beginning_of(log)):
            yield from _number(re.sub(r"\D", "", text))


def _in_metrics(telemetry: Path, metric: str | None) -> Iterator[int]:
    """Yield the product of the labels BLOCKS of each sample of a metric; a server may not know them yet ("None")."""
    if metric is None:
        return
    for line in _beginning_of(telemetry).splitlines():
        if metric not in line:
            continue
        cells = next(csv.reader([line]))
        name, _, labels = cells[2].partition("{") if len(cells) > 2 else ("", "", "")
        values = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if name == metric and all(values.get(label, "").isdecimal() for label in BLOCKS):
            yield from _number(str(int(values[BLOCKS[0]]) * int(values[BLOCKS[1]])))


def _number(digits: str) -> Iterator[int]:
    if 0 < len(digits) <= MOST_DIGITS and int(digits):
        yield int(digits)


def _beginning_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(START_UP_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
