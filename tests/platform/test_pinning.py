"""Which cores load and server get: the rule, what a site says, and that worker processes are really kept there."""

import os
from pathlib import Path

import pytest

from seamark.errors import UserError
from seamark.model.site import Pinning
from seamark.platform.pinning import away_from, cores_here, cores_in, shown_cores, split_cores

EIGHT = tuple((n,) for n in range(8))
TWO_THREADS_EACH = ((0, 4), (1, 5), (2, 6), (3, 7))


@pytest.mark.parametrize(("text", "numbers"), [("0", (0,)), ("0-3,8", (0, 1, 2, 3, 8)), (" 2 - 3 , 1", (1, 2, 3))])
def test_cpus_are_written_as_taskset_writes_them(text: str, numbers: tuple[int, ...]) -> None:
    assert cores_in(text) == numbers
    assert cores_in(shown_cores(numbers)) == numbers


@pytest.mark.parametrize("text", ["", "a", "1-", "3-1", "1,,2", "-1", "1;2"])
def test_what_names_no_cpus_is_a_mistake(text: str) -> None:
    with pytest.raises(ValueError, match=r"names no CPUs|ends before"):
        cores_in(text)


@pytest.mark.parametrize(
    ("workers", "shards", "client"),
    [
        ("wire", 1, (7,)),
        ("wire", 3, (5, 6, 7)),
        ("wire", 16, (4, 5, 6, 7)),
        ("threads", 1, (6, 7)),
        ("processes", 1, (4, 5, 6, 7)),
    ],
)
def test_the_load_gets_the_cores_it_can_use_and_the_server_the_rest(
    workers: str, shards: int, client: tuple[int, ...]
) -> None:
    split = split_cores("auto", workers=workers, shards=shards, cores=EIGHT)
    assert split.client == client
    assert sorted(split.client + split.server) == list(range(8))


def test_threads_of_one_physical_core_stay_on_one_side() -> None:
    split = split_cores("auto", workers="wire", shards=2, cores=TWO_THREADS_EACH)
    assert split.client == (2, 3, 6, 7), "the first two are of different cores: two workers do not share one"
    assert split.server == (0, 1, 4, 5)


@pytest.mark.parametrize("cores", [((0,),), ((0,), (1,)), ((0,), (1,), (2,)), ((0, 2), (1, 3))])
def test_a_small_machine_is_not_split_without_being_asked(cores: tuple[tuple[int, ...], ...]) -> None:
    split = split_cores("auto", workers="wire", shards=1, cores=cores)
    assert (split.client, split.server) == ((), ())
    asked = split_cores(Pinning(client="0"), workers="wire", shards=1, cores=cores)
    assert (asked.client, asked.server) == ((0,), ())


def test_nothing_is_set_apart_for_a_server_that_is_not_there() -> None:
    assert split_cores("auto", workers="wire", shards=1, cores=EIGHT, server_here=False).client == ()
    both = split_cores(Pinning(client="1", server="0"), workers="wire", shards=1, cores=EIGHT, server_here=False)
    assert (both.client, both.server) == ((1,), ())
    assert split_cores("none", workers="wire", shards=1, cores=EIGHT).client == ()


def test_a_cpu_that_may_not_be_used_is_a_mistake_that_says_which_may() -> None:
    with pytest.raises(UserError, match=r"pinning\.server is '6-9', but CPU 8-9 .* may use 0-7"):
        split_cores(Pinning(server="6-9"), workers="wire", shards=1, cores=EIGHT)


def test_only_what_the_kernel_allows_is_shared_out_by_physical_cores(tmp_path: Path) -> None:
    for cpu, core in enumerate((0, 1, 0, 1)):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text("0\n")
        (topology / "core_id").write_text(f"{core}\n")
    assert cores_here(tmp_path, {0, 1, 2}) == ((0, 2), (1,))
    assert cores_here(tmp_path / "hidden", {0, 3}) == ((0,), (3,))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_the_parent_keeps_off_and_comes_back() -> None:
    before = os.sched_getaffinity(0)
    last = max(before)
    with away_from({last}):
        assert os.sched_getaffinity(0) == before - {last}
    assert os.sched_getaffinity(0) == before
    with away_from(before):
        assert os.sched_getaffinity(0) == before, "there is nowhere else to go"
