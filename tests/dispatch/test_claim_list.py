"""The list of units on disk: each is claimed once, and one whose process was killed returns."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from seamark.dispatch.claim_list import ClaimList
from seamark.dispatch.order import ALL, Unit, order_of

CLAIM_ALL = """
import sys
from pathlib import Path
from seamark.dispatch.claim_list import ClaimList
from seamark.dispatch.order import ALL
claims = ClaimList.open(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
while (claim := claims.claim(ALL)) is not None:
    print(claim.unit.id, flush=True)
    if sys.argv[2:] == ["hold"]:
        sys.stdin.read()
    claims.finish(claim)
"""


def made(root: Path, count: int) -> ClaimList:
    return ClaimList.make(root, lambda: [Unit(id=f"u{number}", estimated_s=number) for number in range(count)])


def claiming(root: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", CLAIM_ALL, str(root), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_units_move_from_waiting_to_running_to_done(tmp_path: Path) -> None:
    claims = made(tmp_path, 2)
    first = claims.claim(order_of("longest_first"))
    assert first is not None
    assert first.unit.id == "u1"
    assert [unit.state for unit in claims.units()] == ["waiting", "running"]
    claims.finish(first)
    assert [unit.state for unit in claims.units()] == ["waiting", "done"]
    assert not claims.ended()
    second = claims.claim(ALL)
    assert second is not None
    assert claims.claim(ALL) is None
    claims.finish(second)
    assert claims.ended()


def test_a_list_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    claim = made(tmp_path, 2).claim(ALL)
    assert claim is not None
    again = ClaimList.make(tmp_path, lambda: pytest.fail("made again"))
    assert [unit.state for unit in again.units()] == ["running", "waiting"]
    assert [unit.estimated_s for unit in again.units()] == [0, 1]


@pytest.mark.slow
def test_four_processes_claim_each_of_200_units_exactly_once(tmp_path: Path) -> None:
    made(tmp_path, 200)
    lanes = [claiming(tmp_path) for _ in range(4)]
    for lane in lanes:
        assert lane.stdout is not None
        assert lane.stdout.readline() == "ready\n"
    for lane in lanes:
        assert lane.stdin is not None
        lane.stdin.write("go\n")
        lane.stdin.flush()
    claimed = Counter(name for lane in lanes for name in lane.communicate(timeout=60)[0].split())
    assert claimed == Counter(f"u{number}" for number in range(200))
    assert ClaimList.open(tmp_path).ended()


@pytest.mark.slow
@pytest.mark.covers("B2")
def test_the_unit_of_a_killed_process_alone_returns_to_the_list(tmp_path: Path) -> None:
    claims = made(tmp_path, 3)
    own = claims.claim(ALL)
    assert own is not None
    lane = claiming(tmp_path, "hold")
    assert lane.stdin is not None
    assert lane.stdout is not None
    lane.stdin.write("go\n")
    lane.stdin.flush()
    assert [lane.stdout.readline(), lane.stdout.readline()] == ["ready\n", "u1\n"]
    assert claims.claim(order_of("window: 2")) is None, "two run"
    lane.kill()
    lane.wait()
    returned = claims.claim(ALL)
    assert returned is not None
    assert (returned.unit.id, returned.unit.killed_lanes) == ("u1", 1)
    assert [unit.killed_lanes for unit in claims.units()] == [0, 1, 0]
    assert [unit.state for unit in claims.units()] == ["running", "running", "waiting"]
