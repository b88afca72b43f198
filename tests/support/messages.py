"""Small wrong inputs of each code, and the messages that they give: tests/messages.txt, by `make messages`."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from seamark import __version__
from seamark.config.read import Recipes, read_scenario, read_site
from seamark.errors import Code, Mistake, UserError
from seamark.planning.study import require_study

SNAPSHOT = Path(__file__).parents[1] / "messages.txt"
TOY = """\
name: toy
component: storage
summary: a toy
version: "1"
licence: Apache-2.0
driver: toys.drivers:Toy
workers: wire
settings:
  size:
    type: float
    role: workload
    default: 4
    minimum: 1
    maximum: 9
    unit: MB
    help: How much.
  way: {type: str, role: workload, default: read, allowed: [read, write], help: Which way.}
"""
SCENARIO = """\
scenario: tried
workload:
  service: toy
"""
SITE = """\
name: here
summary: a machine
"""

WRONG: tuple[tuple[str, str, str], ...] = (
    # the kind of file, and either its whole text or what is added to a right one; the path of the mistake
    ("scenario", "  sise: 4\n", "workload.sise"),
    ("scenario", "repetition: 3\n", "repetition"),
    ("scenario", "workload: {service: toy, gpus: 1}\n---", ""),
    ("scenario", "  size: many\n", "workload.size"),
    ("scenario", "  size: '4'\n", "workload.size"),
    ("scenario", "  duration_s: 8s\n", "workload.duration_s"),
    ("scenario", "  rate_rps: 50/s\n", "workload.rate_rps"),
    ("scenario", "repetitions: 2.0\n", "repetitions"),
    ("scenario", "  exclude: {size: 4}\n", "workload.exclude"),
    ("scenario", "  size: 0\n", "workload.size"),
    ("scenario", "  size: [4, 10]\n", "workload.size[1]"),
    ("scenario", "repetitions: 0\n", "repetitions"),
    ("scenario", "  way: reed\n", "workload.way"),
    ("scenario", "restarts: eech\n", "restarts"),
    ("scenario", "  size: []\n", "workload.size"),
    ("scenario", "  size:\n", "workload.size"),
    ("scenario", "site: 'a b'\n", "site"),
    ("scenario", "  size: [4, 4]\n", "workload.size[1]"),
    ("scenario", "  size: 4\n  size: 5\n", "workload.size"),
    ("scenario", "compare: {baseline: {size: 4}}\n", "compare.baseline.size"),
    ("scenario", "extends: base.yaml\n", "extends"),
    ("scenario", "extends: scenario.yaml\n", "extends"),
    ("scenario", "schema_version: 2\n", "schema_version"),
    ("scenario", "workloads: [{service: toy}]\n", "workloads"),
    ("scenario", "\tsize: 4\n", ""),
    ("scenario", "notify: {command: [x], events: [end]}\nmetrics: [made]\n", "metrics[0]"),
    ("text", "workload: {service: toy}\n", ""),
    ("text", "scenario: tried\nworkload: {service: tyo}\n", "workload.service"),
    ("text", "scenario: a/b\nworkload: {service: toy}\n", "scenario"),
    ("text", "scenario: tried\nworkload: {size: 4}\n", "workload"),
    ("text", "scenario: tried\n", ""),
    ("text", "", ""),
    ("text", "\udcff", ""),
    ("recipe", "server: {}\n", "server"),
    ("recipe", "workers: wire\n", "workers"),
    ("site", "lease_s: 2 min\n", "lease_s"),
    ("site", "lease_s: 0\n", "lease_s"),
    ("site", "pinning: al\n", "pinning"),
    ("site", "needs: [time]\n", "needs[0]"),
)


def mistakes_of(kind: str, text: str) -> tuple[Mistake, ...]:
    """Return the mistakes of one file, read in the working folder."""
    files = {"scenario": SCENARIO + text, "text": text, "recipe": TOY + text, "site": SITE + text}
    names = {"recipe": "services/toy.yaml", "site": "here.yaml"}
    Path("services").mkdir(exist_ok=True)
    Path("services/toy.yaml").write_text(TOY, encoding="utf-8")
    path = Path(names.get(kind, "scenario.yaml"))
    path.write_bytes(files[kind].encode(errors="surrogateescape"))
    try:
        if kind == "site":
            read_site(path)
        elif kind == "recipe":
            Recipes(Path("services"))["toy"]
        else:
            read_scenario(path, Recipes(Path("services")))
    except UserError as error:
        return error.mistakes
    return ()


def without_study() -> tuple[Mistake, ...]:
    """Return the mistake of a folder that is no study."""
    try:
        require_study(Path("nothing"))
    except UserError as error:
        return error.mistakes
    return ()


def blocks() -> Iterator[str]:
    """Yield a block of each code: its name and its messages, as they are printed."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        found = [mistake for kind, text, _ in WRONG for mistake in mistakes_of(kind, text)]
        found += without_study()
    for code in get_args(Code):
        lines = dict.fromkeys(
            f"  {mistake}".replace(__version__, "X.Y.Z") for mistake in found if mistake.code == code
        )
        yield "\n".join([code, *lines, ""])


if __name__ == "__main__":
    SNAPSHOT.write_text("\n".join(blocks()), encoding="utf-8")
