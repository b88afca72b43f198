"""PostgreSQL with parameters, inserts, a pool and counters: the real server, started by its supervisor."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_environment import ask
from service_loads import deployed
from storage import Loaded, Served, serving

pytestmark = pytest.mark.services
PARAMETERS = {
    "shared_preload_libraries": "pg_stat_statements",
    "track_io_timing": True,
    "synchronous_commit": False,
    "work_mem": "3MB",
    "random_page_cost": 1.5,
    "log_line_prefix": "{%p} ",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving("postgres", tmp_path_factory.mktemp("pg"), server_settings=json.dumps(PARAMETERS)) as served:
        yield served


def query(served: Served, statement: str) -> list[list[str]]:
    rows: list[list[str]] = ask(
        served.environment, "inside_postgres", "query", where=served.where(), statement=statement
    )
    return rows


def load(served: Served, on_tick: Callable[[], str | None] = lambda: None, **settings: Any) -> Loaded:
    """Run a load that finds nothing of those before it."""
    shutil.rmtree(served.parts, ignore_errors=True)
    return served.load(on_tick, **settings)


def statistics(served: Served) -> Any:
    return json.loads((served.parts / "files/server_statistics.json").read_text(encoding="utf-8"))


@pytest.mark.covers("E-FR17")
def test_any_parameter_is_in_effect_and_recorded_as_the_server_has_it(server: Served) -> None:
    in_effect = {name: query(server, f"show {name}")[0][0] for name in PARAMETERS}
    as_shown = {"track_io_timing": "on", "synchronous_commit": "off", "random_page_cost": "1.5"}
    assert in_effect == {**PARAMETERS, **as_shown}
    assert json.loads(server.endpoint["facts"]["server_settings"]) == in_effect


@pytest.mark.covers("E-FR17")
def test_a_refused_parameter_fails_the_start_with_the_words_of_the_server(tmp_path: Path) -> None:
    with deployed("postgres", tmp_path, expected="failed", server_settings='{"work_mem":"64XB"}') as endpoint:
        assert endpoint["category"] == "server_never_healthy"
        assert 'FATAL:  invalid value for parameter "work_mem": "64XB"' in "\n".join(endpoint["log_tail"])


@pytest.mark.covers("E-FR17")
@pytest.mark.parametrize(
    ("operation", "rows", "statements"),
    [("insert_copy", None, 1), ("insert_values", 99, 1), ("insert_values", 10, 4)],
)
def test_batches_are_inserted_in_as_many_statements_and_counted_in_rows(
    server: Served, operation: str, rows: int | None, statements: int
) -> None:
    query(server, "truncate inserts")
    settings = {"operation": operation, "rows_per_statement": rows, "concurrency": 2}
    loaded = load(server, batch=37, server_statistics=True, **settings)
    assert loaded.failures == {"NONE": loaded.ok}
    assert set(loaded.samples["units"]) == {37}
    assert query(server, "select count(*), count(distinct payload) from inserts") == [[str(37 * loaded.ok), "1"]]
    made = [row for row in statistics(server)["statements"] if "inserts (key, payload)" in row["query"]]
    assert sum(row["calls"] for row in made) == statements * loaded.ok
    assert sum(row["rows"] for row in made) == 37 * loaded.ok


@pytest.mark.covers("E-FR17")
def test_a_batch_whose_second_statement_fails_leaves_no_row(server: Served) -> None:
    query(server, "truncate inserts restart identity; alter table inserts add constraint few check (id <= 15)")
    loaded = load(server, operation="insert_values", batch=20, rows_per_statement=10, concurrency=1)
    inserted = query(server, "select count(*) from inserts")
    query(server, "alter table inserts drop constraint few")
    assert inserted == [["0"]]
    assert set(loaded.failures) == {"CLIENT_ERROR"}


@pytest.mark.covers("E-FR17")
def test_what_the_server_counts_is_that_of_the_load_alone(server: Served) -> None:
    loaded = load(server, operation="update", concurrency=2, zipf=0.99, server_statistics=True)
    totals, found = loaded.outcome.quality, statistics(server)
    assert found["notes"] == []
    assert totals == found["totals"]
    assert totals.keys() == {"wal_bytes", "blocks_hit", "blocks_read", "io_wait_s"}
    assert totals["wal_bytes"] > 50 * loaded.ok
    [first, *others] = found["statements"]
    assert "pgbench_accounts" in first["query"]
    assert (first["calls"], first["rows"]) == (loaded.ok, loaded.ok)
    assert first["shared_blks_hit"] + first["shared_blks_read"] >= loaded.ok
    assert 0 < first["mean_ms"] < 1000
    assert not [row for row in others if "pg_stat" in row["query"]]
    assert load(server, operation="lookup").outcome.quality == {}


@pytest.mark.covers("E-FR17")
def test_a_server_without_the_extension_says_so_and_counts_the_rest(tmp_path: Path) -> None:
    with serving("postgres", tmp_path) as served:
        mix = json.dumps({"read": {"weight": 2, "operation": "lookup"}, "write": {"operation": "update"}})
        loaded = load(served, mix=mix, server_statistics=True, concurrency=2)
        found = statistics(served)
    assert found["statements"] == []
    assert ["pg_stat_statements" in note for note in found["notes"]] == [False, True]
    assert loaded.outcome.quality.keys() == {"wal_bytes", "blocks_hit", "blocks_read"}


@pytest.mark.covers("E-FR17")
@pytest.mark.parametrize("operation", ["lookup", "tpcb"])
def test_a_load_has_no_more_connections_than_its_pool(server: Served, operation: str) -> None:
    connected = "select count(*) from pg_stat_activity where application_name = 'seamark' and pid <> pg_backend_pid()"
    seen: list[int] = []

    def look() -> None:
        if server.samples_written() and len(seen) < 3:
            seen.append(int(query(server, connected)[0][0]))

    loaded = load(server, look, operation=operation, concurrency=6, connections=2, duration_s=3)
    assert loaded.failures == {"NONE": loaded.ok}
    assert max(seen) == 2  # the last look may come after the load
    assert len(np.unique(loaded.samples["worker"])) <= 2
