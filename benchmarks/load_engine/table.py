"""Rounds of turns, and rows of tables. A client that fails is a row with the reason."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from load import ClientError
from turn import Turn


@dataclass(kw_only=True)
class Column:
    """Results of one client's turns; `failed` is the reason of its last failure."""

    turns: list[Turn] = field(default_factory=list)
    failed: str | None = None

    def median(self, what: Callable[[Turn], float]) -> float:
        """Return the median over the turns."""
        return statistics.median(what(turn) for turn in self.turns)


def in_rounds(rounds: int, turns: Mapping[str, Callable[[], Turn]]) -> dict[str, Column]:
    """Let each take its turn in each round, forwards and backwards."""
    columns = {name: Column() for name in turns}
    for number in range(rounds):
        for name in turns if number % 2 else reversed(turns):
            column = columns[name]
            if column.failed and not column.turns:
                continue  # it will not do better
            try:
                column.turns.append(turns[name]())
            except ClientError as error:
                column.failed = str(error)
    return columns


def show(
    title: str, heads: Sequence[str], columns: Mapping[str, Column], row: Callable[[Column], Sequence[str]]
) -> None:
    """Print a table with a line for each client."""
    print(f"\n{title}", flush=True)
    print(f"{'client':<34}" + "".join(f"{head:>14}" for head in heads))
    for name, column in columns.items():
        if column.turns:
            print(f"{name:<34}" + "".join(f"{cell:>14}" for cell in row(column)), flush=True)
        if column.failed:
            print(f"{name:<34}failed: {column.failed}", flush=True)
