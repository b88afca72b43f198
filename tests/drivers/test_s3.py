"""S3: what is put is there, what is got is whole, and anything else is no success. On the real rclone."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from service_environment import ask, environment
from shipped import SERVICES
from storage import serving

pytestmark = pytest.mark.services
EVERY_OPERATION = {
    "get": {"operation": "get", "weight": 3},
    "range": {"operation": "get", "range_bytes": 1000, "weight": 2},
    "put": {"operation": "put"},
    "parts": {"operation": "put", "part_bytes": 5 << 20},
    "head": {"operation": "head"},
    "list": {"operation": "list"},
    "delete": {"operation": "delete"},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with serving("s3", tmp_path_factory.mktemp("s3"), object_bytes=20_000, objects=12) as served:
        yield served


@pytest.fixture(scope="module")
def nowhere(tmp_path_factory):
    """What a question needs that speaks to no server."""
    data = tmp_path_factory.mktemp("nowhere")
    (data / "credentials").write_text("key,secret")
    settings = {"operation": "get", "object_bytes": 1024, "objects": 10, "bucket": "b", "multipart_bytes": 5 << 20}
    return {"settings": settings, "data": str(data), "ports": {"main": 1}}


def asked(served, question, **told):
    return ask(served.environment, "inside_s3", question, where=served.where(), **told)


def inside(where, question, *, settings=(), **told):
    where = where | {"settings": where["settings"] | dict(settings)}
    return ask(environment("s3"), "inside_s3", question, where=where, **told)


@pytest.mark.covers("E-FR18")
def test_what_is_put_can_be_read_back_and_every_key_is_used(store):
    loaded = store.load(operation="put", concurrency=1, duration_s=2)  # rclone refuses two PUTs of one key at once
    assert loaded.failures == {"NONE": loaded.ok}
    assert loaded.ok >= 12
    found = asked(store, "objects", prefix="put/")
    md5 = ask(store.environment, "inside_s3", "payload_md5", size=20_000)
    assert [entry[1:] for entry in found] == [[20_000, md5, md5]] * 12
    assert (loaded.samples["bytes_sent"] > 20_000).all()
    assert (loaded.samples["status"] == 200).all()


@pytest.mark.covers("E-FR18")
def test_what_is_got_is_whole(store):
    loaded = store.load(operation="get", concurrency=8)
    assert loaded.failures == {"NONE": loaded.ok}
    assert loaded.ok > 50
    assert (loaded.samples["bytes_received"] > 20_000).all()
    assert loaded.samples["bytes_sent"].max() < 1000


@pytest.mark.covers("E-FR18")
def test_a_mixed_load_is_half_gets_and_half_puts(store):
    loaded = store.load(operation="mixed", concurrency=4, requests=240, duration_s=30)
    assert loaded.failures == {"NONE": 240}
    assert loaded.outcome.kinds == ("get", "put")
    assert np.bincount(loaded.samples["kind"]).tolist() == [120, 120]
    large = loaded.samples["bytes_received"] > 20_000
    assert (large == (loaded.samples["kind"] == 0)).all()


def test_an_object_of_another_length_and_one_that_is_gone_are_failures_and_no_others(store):
    asked(store, "replace", key="get/0000003", size=19_999)
    asked(store, "replace", key="get/0000004", size=20_001)
    asked(store, "replace", key="get/0000005", size=None)
    loaded = store.load(operation="get", requests=120, duration_s=30)
    assert loaded.failures == {"NONE": 90, "WRONG_REPLY": 20, "CLIENT_ERROR": 10}
    assert loaded.samples["units"].sum() == 90
    asked(store, "populated")


def test_requests_with_another_secret_are_refused(store):
    credentials = store.data / "credentials"
    right = credentials.read_text()
    try:
        credentials.write_text(right[:-4] + "0000")
        loaded = store.load(operation="get", requests=10, duration_s=30)
    finally:
        credentials.write_text(right)
    assert loaded.failures == {"CLIENT_ERROR": 10}
    assert set(loaded.samples["status"]) == {403}


@pytest.mark.covers("E-FR18")
def test_a_large_object_is_put_in_parts_and_is_whole(tmp_path):
    size = 12_000_000
    with serving("s3", tmp_path / "a folder", object_bytes=size, objects=2, multipart_bytes=5 << 20) as served:
        assert served.endpoint["facts"]["parts"] == 3
        found = asked(served, "objects", prefix="get/")
        md5 = ask(served.environment, "inside_s3", "payload_md5", size=size)
        assert [[entry[1], entry[3]] for entry in found] == [[size, md5]] * 2
        loaded = served.load(operation="put", requests=3, duration_s=30)
        assert loaded.failures == {"NONE": 3}
        assert {entry[2] for entry in asked(served, "objects", prefix="put/")} == {md5}


def mixed_load(store):
    mix = json.dumps({"name": "every"} | EVERY_OPERATION)
    return store.load(mix=mix, check_content=True, concurrency=1, requests=100, duration_s=60, timeout_s=20)


def assert_every_operation_is_good(store):
    """Each class has its share of good replies, by its kind, and what was put in parts is whole."""
    loaded = mixed_load(store)
    assert loaded.failures == {"NONE": 100}
    assert loaded.outcome.kinds == tuple(EVERY_OPERATION)
    assert (np.bincount(loaded.samples["kind"]) >= [20, 10, 3, 3, 3, 3, 3]).all()
    size = store.settings["object_bytes"]
    received = {
        name: loaded.samples["bytes_received"][loaded.samples["kind"] == number].tolist()
        for number, name in enumerate(EVERY_OPERATION)
    }
    assert all(size < got < size + 2000 for got in received["get"])
    assert all(1000 < got < 3000 for got in received["range"])
    assert all(got < 2000 for name in ("put", "head", "delete") for got in received[name])
    sent = loaded.samples["bytes_sent"][loaded.samples["kind"] == 3]
    assert (sent > size).all(), "all parts count as sent"
    md5 = ask(store.environment, "inside_s3", "payload_md5", size=size)
    found = {prefix: asked(store, "objects", prefix=prefix) for prefix in ("get/", "put/", "delete/")}
    assert [entry[0] for entry in found["get/"]] == [f"get/{number:07d} +%2B&=;?#~!'(é)漢" for number in range(12)]
    assert {entry[3] for entry in found["put/"]} == {md5}
    assert found["put/"][0][0].endswith("(é)漢")
    deletes = (loaded.samples["kind"] == 6).sum()
    assert len(found["delete/"]) == max(0, 12 - deletes), "each is deleted once"
    # an object of the same length with other content is told from the one that was put
    asked(store, "replace", key=found["get/"][0][0], size=size)
    wrong = store.load(operation="get", check_content=True, requests=12, duration_s=60, timeout_s=20)
    assert wrong.failures == {"NONE": 11, "WRONG_REPLY": 1}


@pytest.mark.covers("E-FR18")
@pytest.mark.parametrize("service", ["s3", pytest.param("seaweedfs", marks=pytest.mark.sweep)])
def test_every_operation_is_good_on_keys_with_odd_characters(service, tmp_path):
    with serving(service, tmp_path, object_bytes=6 << 20, objects=12, odd_keys=True) as served:
        assert_every_operation_is_good(served)


@pytest.mark.covers("E-NFR04")
def test_a_killed_server_ends_its_load_with_lost_connections_only(tmp_path):
    with serving("s3", tmp_path, object_bytes=4096, objects=4) as served:
        pids = [served.endpoint["server_pid"]]

        def kill_in_the_middle():
            if pids and served.samples_written():
                os.kill(pids.pop(), signal.SIGKILL)

        loaded = served.load(kill_in_the_middle, operation="get", concurrency=4, duration_s=3)
        assert loaded.ok > 0
        assert set(loaded.failures) == {"NONE", "RESET", "CONNECT"} or set(loaded.failures) == {"NONE", "CONNECT"}
        assert loaded.outcome.died == 0


@pytest.mark.covers("E-SEC")
def test_the_secret_is_made_for_the_run_and_shown_nowhere(store):
    path = store.data / "credentials"
    key, secret = path.read_text().split(",")
    assert key == "seamark"
    assert len(secret) == 48
    assert path.stat().st_mode & 0o077 == 0
    assert secret not in json.dumps(store.endpoint)
    assert secret not in Path(f"/proc/{store.endpoint['server_pid']}/cmdline").read_text()


@pytest.mark.covers("E-SEC")
def test_without_credentials_the_mistake_names_the_variables(nowhere, tmp_path, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    says = inside(nowhere | {"data": str(tmp_path)}, "refused")
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in says


def test_objects_that_do_not_fit_the_disk_are_refused_before_the_first(nowhere):
    says = inside(nowhere, "refused", settings={"object_bytes": 1 << 30, "objects": 100_000})
    assert "bytes free" in says
    assert "Lower `objects` or `object_bytes`." in says


@pytest.mark.covers("E-FR14")
def test_requests_are_seeded_and_take_every_object_once(nowhere):
    first, again, other = (inside(nowhere, "requests", count=10, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(first) == sorted(other) == [[0, "get", f"get/{number:07d}", 0] for number in range(10)]
    mixed = inside(nowhere, "requests", settings={"operation": "mixed"}, count=20, seed=1)
    assert len({tuple(one) for one in mixed}) == 20
    ranges = inside(nowhere, "requests", settings={"range_bytes": 1000}, count=500, seed=1)
    assert {start for *_, start in ranges} == set(range(25)), "from each place at which a range fits, the last too"


def test_all_puts_share_one_payload(nowhere):
    payloads, (head, body) = inside(nowhere, "encoded_sizes", settings={"operation": "put", "object_bytes": 1 << 20})
    assert payloads == 1
    assert body == 1 << 20
    assert head < 1000


@pytest.mark.covers("E-SEC", "D4")
def test_a_server_of_someone_elses_is_spoken_to_with_the_variables_of_aws(store, tmp_path, monkeypatch):
    key, secret = (store.data / "credentials").read_text().split(",")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    where = store.where(bucket="theirs", object_bytes=2000, objects=3) | {"data": str(tmp_path)}
    facts = ask(store.environment, "inside_s3", "populated", where=where)
    assert (facts["bucket"], facts["total_bytes"]) == ("theirs", 6000)
    assert len(ask(store.environment, "inside_s3", "objects", where=where, prefix="get/")) == 3
    assert secret not in json.dumps(facts)


@pytest.mark.parametrize("name", ["postgres", "s3"])
def test_a_recipe_starts_its_server_by_names_that_an_image_has_too(name):
    server = SERVICES[name].server
    words = [*server.command, *server.health.command, *(word for command in server.setup for word in command)]
    assert not [word for word in words if "{env}" in word or "{site_packages}" in word or "{python}" in word]
