"""This version of the engine beside another one's, from a checkout that has its own .venv: ratios of pairs."""

import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from clients import Seamark
from load import Load
from turn import Turn, take_turn

RATES = {"requests/s": 50_000, "chunks/s": 100_000}
LAG_RPS = (1_000.0, 10_000.0)


class Checkout(Seamark):
    """The engine of another checkout, run by its environment."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def command(self, load: Load, port: int, folder: Path) -> list[str | Path]:
        file = super().command(load, port, folder)[-1]
        return [self.root / ".venv" / "bin" / "python", self.root / "benchmarks" / "load_engine" / "ours.py", file]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A load, and the values that are read from a turn of it, by name."""

    load: Load
    values: Mapping[str, Callable[[Turn], float]]
    wants_seen: bool = False


def parts(seconds: float) -> list[Part]:
    """Return the loads of a round, of about `seconds` each."""
    made = [
        Part(
            load=Load(requests=round(seconds * RATES["requests/s"])),
            values={
                "requests/s, 64 users": lambda turn: turn.rate_rps,
                "peak RSS, MB": lambda turn: turn.watch.most_rss_bytes() / 1e6,
            },
        ),
        Part(
            load=Load(requests=max(256, round(seconds * RATES["chunks/s"] / 256)), tokens=256),
            values={"chunks/s, 64 streams": lambda turn: turn.chunk_rate},
        ),
    ]
    for rate in LAG_RPS:
        values = {
            f"lag p{part} at {rate:,.0f}/s, us": lambda turn, part=part: _lag_us(turn, part) for part in (50, 99)
        }
        load = Load(requests=round(seconds * rate), rate=rate, constant=True)
        made.append(Part(load=load, values=values, wants_seen=True))
    return made


def _lag_us(turn: Turn, part: float) -> float:
    assert turn.seen is not None
    assert turn.seen.lag_s is not None
    return float(np.percentile(turn.seen.lag_s, part) * 1e6)


def versions(other: Path, rounds: int, seconds: float) -> None:
    """Let both take turns, in changing order; print medians and the ratio of each pair, this one to the other."""
    if not (other / ".venv" / "bin" / "python").exists():
        sys.exit(f"{other}: no .venv there; make it with `make .venv/dev`")
    ours, theirs = Seamark(), Checkout(other)
    print(f"\n{rounds} pairs of turns of about {seconds:g} s; ratio of this version to {other.name}")
    print(f"{'':<28}{other.name:>12}{'this':>12}{'ratio':>9}   least to most")
    for part in parts(seconds):
        pairs: list[tuple[Turn, Turn]] = []
        for number in range(rounds):
            turns = {}
            for client in (ours, theirs) if number % 2 else (theirs, ours):
                turns[client] = take_turn(client, part.load, wants_seen=part.wants_seen)
            pairs.append((turns[ours], turns[theirs]))
        for name, value in part.values.items():
            new, old = ([value(pair[k]) for pair in pairs] for k in (0, 1))
            ratios = [one / two for one, two in zip(new, old, strict=True)]
            print(
                f"{name:<28}{statistics.median(old):>12,.1f}{statistics.median(new):>12,.1f}"
                f"{statistics.median(ratios):>9.3f}   {min(ratios):.3f} to {max(ratios):.3f}",
                flush=True,
            )
