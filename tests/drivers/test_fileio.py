"""File I/O: which blocks are touched, past which cache, and what is said when it cannot be done. On real files."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from storage import serving

from seamark.drivers import fileio
from seamark.drivers.fileio_files import Files, allows_direct, cached_ratio
from seamark.errors import SiteError, UserError
from seamark.load.driver import NoMoreRequests, Reply, Target
from seamark.model.sample import Failure

BLOCK = 4096
DEFAULTS = {
    "operation": "read",
    "access": "random",
    "block_bytes": BLOCK,
    "direct": "auto",
    "fsync": "none",
    "file_bytes": 64 * BLOCK,
    "files": 1,
    "entries": None,
    "directory": None,
    "concurrency": 1,
}


def staged(folder, **changes):
    target = Target(settings=DEFAULTS | changes, data=folder)
    fileio.stage(target, 1)
    return target


def content(target):
    return b"".join(path.read_bytes() for path in Files.of(target).paths)


def written(target, calls, seed=1):
    """Write with as many sessions as there are users, `calls` times each; return the numbers of changed blocks."""
    before = content(target)
    driver = fileio.FileIo(target)
    (body,) = driver.bodies(1, seed)
    sessions = [driver.session() for _ in range(target.settings["concurrency"])]
    for session in sessions:
        for _ in range(calls):
            assert session.call(body).bytes_sent == target.settings["block_bytes"]
        session.close()
    after, size = content(target), target.settings["block_bytes"]
    return [at // size for at in range(0, len(after), size) if after[at : at + size] != before[at : at + size]]


def needs_direct(folder):
    probe = folder / "probe"
    probe.write_bytes(bytes(BLOCK))
    if not allows_direct(probe, BLOCK):
        pytest.skip("this file system has no O_DIRECT")


@pytest.mark.covers("E-FR16")
@pytest.mark.parametrize("users", [1, 4])
def test_random_access_takes_every_block_once_before_any_twice(tmp_path, users):
    target = staged(tmp_path, operation="write", files=2, concurrency=users)
    assert written(target, 128 // users) == list(range(128))


def test_random_access_is_not_in_order(tmp_path):
    target = staged(tmp_path, operation="write", file_bytes=1024 * BLOCK)
    blocks = np.array(written(target, 64))
    assert len(blocks) == 64
    assert blocks.min() < 256
    assert blocks.max() > 768


@pytest.mark.covers("E-FR16")
def test_sequential_users_stream_through_regions_of_their_own(tmp_path):
    target = staged(tmp_path, operation="write", access="sequential", concurrency=4)
    assert written(target, 3) == [0, 1, 2, 16, 17, 18, 32, 33, 34, 48, 49, 50]


def test_workers_share_the_regions_between_them(tmp_path):
    target = staged(tmp_path, operation="write", access="sequential", concurrency=2)
    alone = fileio.FileIo(Target(settings=target.settings, data=target.data, worker=1, workers=2))
    before = content(target)
    session = alone.session()
    session.call(alone.bodies(1, 1)[0])
    session.close()
    after = content(target)
    assert after[: 32 * BLOCK] == before[: 32 * BLOCK]
    assert after[32 * BLOCK : 33 * BLOCK] != before[32 * BLOCK : 33 * BLOCK]


def session_of(target, seed=1):
    driver = fileio.FileIo(target)
    (body,) = driver.bodies(1, seed)
    session = driver.session()
    return session, lambda: session.call(body), Files.of(target).folder / "entries-0"


@pytest.mark.covers("E-FR16")
def test_create_and_unlink_have_each_file_once_and_then_nothing_more(tmp_path):
    staged(tmp_path)
    for operation, left in (("create", [0, 1, 2, 3]), ("unlink", [4, 3, 2, 1])):
        session, call, folder = session_of(
            Target(settings=DEFAULTS | {"operation": operation, "entries": 4}, data=tmp_path)
        )
        seen = []
        for _ in range(4):
            seen.append(len(list(folder.iterdir())))
            assert call() == Reply()
        assert seen == left
        with pytest.raises(NoMoreRequests):
            call()
        session.close()
        assert not folder.exists()


@pytest.mark.covers("E-FR16")
@pytest.mark.parametrize("operation", ["stat", "open"])
def test_stat_and_open_take_all_files_round_and_round_and_tell_of_a_missing_one(tmp_path, operation):
    target = staged(tmp_path, operation=operation, entries=3)
    session, call, folder = session_of(target)
    assert [call() for _ in range(7)] == [Reply()] * 7
    (folder / "00000001").unlink()
    with pytest.raises(FileNotFoundError):
        [call() for _ in range(3)]
    session.close()


@pytest.mark.covers("E-FR16")
def test_a_listing_counts_its_entries_and_one_too_few_is_a_wrong_reply(tmp_path):
    target = staged(tmp_path, operation="list", entries=10, concurrency=2)
    session, call, folder = session_of(target)
    assert fileio.FileIo(target).unit == "entry"
    assert call().units == 5
    (folder / "00000001").unlink()
    assert call().failure == Failure.WRONG_REPLY
    session.close()
    assert fileio.quality(target, 1) == {}


def test_files_of_a_killed_load_are_no_files_of_the_next(tmp_path):
    target = staged(tmp_path, operation="create", entries=2)
    _, call, folder = session_of(target)
    call()  # and never closed
    session, call, _ = session_of(target)
    assert [call(), call()] == [Reply(), Reply()]
    assert len(list(folder.iterdir())) == 2
    session.close()


def test_the_order_of_the_files_is_of_the_seed_and_the_thread(tmp_path):
    target = staged(tmp_path, operation="unlink", entries=64)

    def order(seed):
        session, call, folder = session_of(target, seed)
        gone, left = [], {path.name for path in folder.iterdir()}
        while left:
            call()
            now = {path.name for path in folder.iterdir()}
            gone += left - now
            left = now
        session.close()
        return gone

    first = order(1)
    assert first == order(1)
    assert first != order(2)
    assert first != sorted(first)


@pytest.mark.parametrize(
    ("code", "facts"), [(0, {"stripe_count": 4, "stripe_size_bytes": 1048576, "stripe_offset": 7}), (1, {})]
)
def test_stripes_of_lustre_are_facts_where_lfs_tells_them(tmp_path, monkeypatch, code, facts):
    lfs = tmp_path / "bin/lfs"
    lfs.parent.mkdir()
    answers = "--stripe-count) echo 4;; --stripe-size) echo 1048576;; --stripe-index) echo 7;;"
    lfs.write_text(
        f'#!/bin/sh\n[ "$1" = getstripe ] && [ -f "$3" ] || exit 3\ncase $2 in {answers} esac\nexit {code}\n'
    )
    lfs.chmod(0o755)
    monkeypatch.setenv("PATH", f"{lfs.parent}:{os.environ['PATH']}")
    found = fileio.stage(Target(settings=DEFAULTS, data=tmp_path), 1)
    assert {name: value for name, value in found.items() if "lustre" in name} == {
        f"lustre_{n}": v for n, v in facts.items()
    }


def test_a_file_system_that_opens_no_file_directly_is_told():
    assert allows_direct(Path("/proc/self/status"), BLOCK) is False


@pytest.mark.covers("E-FR14")
def test_the_same_seed_takes_the_same_blocks_and_another_seed_others(tmp_path):
    target = staged(tmp_path, operation="write", file_bytes=1024 * BLOCK)
    first, again, other = (written(target, 50, seed) for seed in (7, 7, 8))
    assert first == again != other


@pytest.mark.covers("E-FR16")
def test_direct_reads_leave_the_page_cache_empty_and_cached_reads_fill_it(tmp_path):
    needs_direct(tmp_path)
    ratios = {}
    staged(tmp_path)
    for direct in ("cached", "direct"):
        target = Target(settings=DEFAULTS | {"direct": direct}, data=tmp_path)
        driver = fileio.FileIo(target)
        (body,) = driver.bodies(1, 1)
        assert cached_ratio(Files.of(target)) == 0
        session = driver.session()
        for _ in range(64):
            session.call(body)
        session.close()
        ratios[direct] = fileio.quality(target, 1)
    assert ratios["direct"] == {"o_direct": 1.0, "page_cache_ratio": 0.0}
    assert ratios["cached"] == {"o_direct": 0.0, "page_cache_ratio": 1.0}


def test_where_o_direct_is_refused_reads_are_cold_all_the_same(tmp_path):
    needs_direct(tmp_path)
    target = staged(tmp_path, block_bytes=1000)  # no multiple of a sector: O_DIRECT takes no such block
    driver = fileio.FileIo(target)
    (body,) = driver.bodies(1, 1)
    session = driver.session()
    for _ in range(300):
        assert session.call(body).failure == Failure.NONE
    session.close()
    judged = fileio.quality(target, 1)
    assert judged["o_direct"] == 0
    assert judged["page_cache_ratio"] < 0.1


def test_direct_where_it_is_refused_is_a_mistake_that_names_the_remedy(tmp_path):
    target = staged(tmp_path, block_bytes=1000, direct="direct")
    with pytest.raises(UserError, match=r"refuses O_DIRECT with blocks of 1000 bytes\. Set `direct` to auto"):
        fileio.FileIo(target)


def test_data_synced_at_the_end_is_timed_once(tmp_path):
    target = staged(tmp_path, operation="write", direct="cached", fsync="end", concurrency=2)
    written(target, 16)
    assert fileio.quality(target, 1)["fsync_end_s"] > 0
    assert "fsync_end_s" not in fileio.quality(target, 1)


def test_a_file_cut_short_under_us_is_a_wrong_reply(tmp_path):
    target = staged(tmp_path, access="sequential")
    driver = fileio.FileIo(target)
    (body,) = driver.bodies(1, 1)
    session = driver.session()
    os.truncate(Files.of(target).paths[0], BLOCK)
    replies = [session.call(body) for _ in range(2)]
    assert [(reply.failure, reply.units) for reply in replies] == [(Failure.NONE, 1), (Failure.WRONG_REPLY, 0)]
    session.close()


def test_a_full_device_is_the_servers_failure_and_a_closed_file_a_fault_of_ours(tmp_path):
    driver = fileio.FileIo(staged(tmp_path))
    with pytest.raises(OSError) as full, Path("/dev/full").open("wb", buffering=0) as device:
        device.write(b"x")
    with pytest.raises(OSError) as closed:
        os.pread(-1, 1, 0)
    assert driver.failure(full.value) == Failure.SERVER_ERROR
    assert driver.failure(closed.value) == Failure.DRIVER


def test_files_are_random_and_not_made_twice(tmp_path):
    target = Target(settings=DEFAULTS | {"files": 2, "directory": str(tmp_path / "kept")}, data=tmp_path)
    facts = fileio.stage(target, 1)
    made = content(target)
    assert facts["bytes_written"] == facts["total_bytes"] == 128 * BLOCK == len(made)
    assert len(np.unique(np.frombuffer(made, np.uint8))) == 256
    assert len({made[at : at + BLOCK] for at in range(0, len(made), BLOCK)}) == 128
    assert fileio.stage(target, 2)["bytes_written"] == 0
    assert content(target) == made


def test_the_facts_say_how_reads_are_kept_cold(tmp_path):
    needs_direct(tmp_path)
    facts = fileio.stage(Target(settings=DEFAULTS, data=tmp_path), 1)
    assert facts["o_direct"] is True
    assert facts["cold_reads"].startswith("O_DIRECT")
    assert facts["page_cache_ratio"] == 0


def test_files_that_do_not_fit_are_refused_before_the_first_byte(tmp_path):
    settings = DEFAULTS | {"file_bytes": 2 * shutil.disk_usage(tmp_path).total}
    with pytest.raises(SiteError, match=r"bytes free.*do not fit\. Lower `file_bytes` or `files`"):
        fileio.stage(Target(settings=settings, data=tmp_path), 1)
    assert not list(tmp_path.rglob("file-*"))


def test_a_folder_that_cannot_be_made_is_a_mistake_of_one_line():
    with pytest.raises(SiteError, match="cannot make the folder /dev/null/x"):
        fileio.stage(Target(settings=DEFAULTS | {"directory": "/dev/null/x"}, data=Path("/tmp")), 1)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"block_bytes": 65 * BLOCK}, "block_bytes 266,240 is larger than file_bytes 262,144"),
        ({"concurrency": 65}, "65 threads cannot share 64 blocks"),
        ({"files": 4000, "file_bytes": BLOCK, "concurrency": 4000}, "files would be open at once"),
    ],
)
def test_what_cannot_work_is_said_before_the_load(tmp_path, changes, says):
    target = Target(settings=DEFAULTS | changes, data=tmp_path)
    with pytest.raises(UserError, match=says):
        fileio.FileIo(target)


@pytest.mark.services
@pytest.mark.covers("E-FR16")
def test_bandwidth_is_operations_times_block_and_latency_times_rate_is_threads(tmp_path):
    with serving("fileio", tmp_path, file_bytes=16 << 20) as served:
        loaded = served.load(concurrency=2, block_bytes=8192, duration_s=1.5)
        samples = loaded.samples
        assert loaded.failures == {"NONE": loaded.ok}
        assert samples["bytes_received"].sum() == 8192 * loaded.ok
        busy_s = (samples["last_ns"] - samples["sent_ns"]).sum() / 1e9
        span_s = (samples["last_ns"].max() - samples["sent_ns"].min()) / 1e9
        # what is missing is the generator's own time between two calls
        assert 1.2 < busy_s / span_s <= 2.01
        assert loaded.outcome.quality["page_cache_ratio"] < 0.05 or not served.endpoint["facts"]["o_direct"]
