"""The index of all runs: a DuckDB file derived from the results folders, made again whenever it is missing."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seamark.errors import UserError
from seamark.history.runs import Run, runs_in
from seamark.history.trial_row import PlannedRun, TrialRow, ValueRow, row_of, stamp
from seamark.storage.paths import TrialFolder, history_index

if TYPE_CHECKING:
    import duckdb

VERSION = 3
"""Of the tables below: an index of another one is made again."""
KINDS = {"str": "VARCHAR", "int": "BIGINT", "float": "DOUBLE", "bool": "BOOLEAN", "datetime": "TIMESTAMP"}
VIEW = """CREATE OR REPLACE VIEW history AS SELECT trials.*, metric, unit, better, value, lower_bound, most
    FROM trials JOIN figures USING (folder)"""


@dataclass(frozen=True, kw_only=True)
class Damaged:
    """A file of the results that could not be read: it is in no series."""

    path: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Scanned:
    """What an update of the index did: trials in it, those read anew, those left out as copies, and damaged files."""

    trials: int
    read: int
    copies: int
    damaged: tuple[Damaged, ...]


class Index:
    """An open index. Its tables are trials, figures and damaged; the view `history` has a row for each figure."""

    def __init__(self, connection: "duckdb.DuckDBPyConnection") -> None:
        self._connection = connection

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return the rows of a query by the names of its columns."""
        found = self._connection.execute(query, list(parameters))
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def update(self, roots: Mapping[str, Path]) -> Scanned:
        """Make the index equal to the results folders `roots`, by the name that each gives its present runs.

        A trial is read if its files have another size or time than at the last update; trials whose folder is gone,
        or in none of `roots`, are removed. Of a measurement that was copied, with the same trial and start, only the
        first folder in the order of `roots` is kept.
        """
        known = {row["folder"]: row["stamp"] for row in self.rows("SELECT folder, stamp FROM stamps")}
        found = {str(folder.root): (run, folder) for run, folder in _trials(roots)}
        stamps = {name: stamp(run, folder) for name, (run, folder) in found.items()}
        gone = [name for name, old in known.items() if stamps.get(name) != old]
        wanted = [name for name, new in stamps.items() if known.get(name) != new]
        with self._transaction():
            self._remove(gone)
            self._insert([found[name] for name in wanted], [stamps[name] for name in wanted])
            self._mark_copies(list(found))
        [(trials, copies)] = self._connection.execute(
            "SELECT count(*) FILTER (NOT copy), count(*) FILTER (copy) FROM stamps WHERE damage IS NULL"
        ).fetchall()
        damaged = self.rows("SELECT folder, damage FROM stamps WHERE damage IS NOT NULL ORDER BY folder")
        return Scanned(
            trials=trials,
            read=len(wanted),
            copies=copies,
            damaged=tuple(Damaged(path=f"{row['folder']}/metrics.json", why=row["damage"]) for row in damaged),
        )

    def make_tables(self) -> None:
        """Make the tables, empty."""
        for name in ("trials", "figures", "stamps", "version"):
            self._connection.execute(f"DROP TABLE IF EXISTS {name} CASCADE")
        for name, noun in (("trials", TrialRow), ("figures", ValueRow)):
            self._connection.execute(f"CREATE TABLE {name} ({', '.join(_columns(noun))})")
        self._connection.execute("CREATE TABLE stamps (folder VARCHAR, stamp VARCHAR, damage VARCHAR, copy BOOLEAN)")
        self._connection.execute(f"CREATE TABLE version AS SELECT {VERSION} AS version")
        self._connection.execute(VIEW)

    def is_current(self) -> bool:
        """Return whether the tables are those of this version."""
        import duckdb

        try:
            return self._connection.execute("SELECT version FROM version").fetchall() == [(VERSION,)]
        except duckdb.Error:
            return False

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.begin()
        try:
            yield
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()

    def _remove(self, folders: Sequence[str]) -> None:
        for table in ("trials", "figures", "stamps") if folders else ():
            self._connection.execute(f"DELETE FROM {table} WHERE folder IN (SELECT unnest(?))", [list(folders)])

    def _insert(self, trials: Sequence[tuple[Run, TrialFolder]], stamps: Sequence[str]) -> None:
        planned: dict[Path, PlannedRun] = {}
        rows, values, marks = list[TrialRow](), list[ValueRow](), list[dict[str, object]]()
        for (run, folder), mark in zip(trials, stamps, strict=True):
            if run.folder.root not in planned:
                planned[run.folder.root] = PlannedRun.of(run)
            row, figures, damage = row_of(run, folder, planned[run.folder.root])
            rows.append(row)
            values.extend(figures)
            marks.append({"folder": str(folder.root), "stamp": mark, "damage": damage, "copy": False})
        self._append("trials", [vars(row) for row in rows])
        self._append("figures", [vars(value) for value in values])
        self._append("stamps", marks)

    def _append(self, table: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Append rows by way of Arrow: DuckDB takes a row at a time for thousands a second otherwise."""
        if not rows:
            return
        import pyarrow as pa

        names = list(rows[0])
        self._connection.register("appended", pa.table({name: [row[name] for row in rows] for name in names}))
        self._connection.execute(f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(names)} FROM appended")
        self._connection.unregister("appended")

    def _mark_copies(self, order: Sequence[str]) -> None:
        """Mark all but the first folder of each measurement; the order is that in which the folders were found."""
        self._connection.execute(
            """UPDATE stamps SET copy = coalesce(place > 1, FALSE) FROM (
                SELECT folder, row_number() OVER (
                    PARTITION BY scenario, trial, started_at ORDER BY list_position(?, folder)) AS place FROM trials
            ) AS placed WHERE stamps.folder = placed.folder""",
            [list(order)],
        )


@contextmanager
def open_index(results: Path, *, rebuild: bool = False) -> Iterator[Index]:
    """Open the index of a results folder, made anew if it is damaged, of another version, or with `rebuild`.

    Where the file cannot be written or another `bench history` has it open, the index is made in memory.
    """
    import duckdb

    path = history_index(results)
    if rebuild:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    options: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    try:
        connection = duckdb.connect(str(path), config=options)
    except duckdb.Error as cause:
        place = ":memory:"
        if path.is_file() and os.access(path, os.W_OK) and "lock" not in str(cause):  # it is damaged
            path.unlink()
            place = str(path)
        connection = duckdb.connect(place, config=options)
    with connection:
        index = Index(connection)
        if not index.is_current():
            index.make_tables()
        yield index


def roots_of(results: Path, others: Sequence[str], present: str) -> dict[str, Path]:
    """Return the results folders to index by the name of their present runs: the study's as `present`, each other by
    its path. Raises UserError for one that is missing or holds no run."""
    roots = {present: results}
    for text in others:
        path = Path(text)
        if not os.path.isdir(text):  # noqa: PTH112 - Path raises OSError for a name that is too long
            raise UserError(
                f"--from {text}: no such folder. Name a folder of results, such as ../other-study/results."
            )
        if next(runs_in(path, text), None) is None:
            raise UserError(
                f"--from {text}: no trial with metrics in it. Name a folder of results: it has a folder for each"
                " scenario."
            )
        if path.resolve() != results.resolve():
            roots[text] = path
    return roots


def _trials(roots: Mapping[str, Path]) -> Iterator[tuple[Run, TrialFolder]]:
    for name, root in roots.items():
        for run in runs_in(root, name):
            for folder in run.trials():
                yield run, folder


def _columns(noun: type) -> list[str]:
    """Return the columns of a table for a dataclass."""
    hints = {field.name: str(getattr(field.type, "__name__", field.type)) for field in fields(noun)}
    return [f"{name} {KINDS.get(kind.split(' ')[0], 'VARCHAR')}" for name, kind in hints.items()]
