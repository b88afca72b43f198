"""Servers of many processes under the supervisor: PostgreSQL's backends, Triton's model processes."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from processes import eventually
from server_bench import Bench, kill, left_of, runs
from shipped import SERVICES

from seamark.model.site import Paths
from seamark.platform.process_tree import descendants
from seamark.services.supervisor import deployment as servers

pytestmark = pytest.mark.services

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=["postgres", "triton"])
def real(bench: Bench, request: pytest.FixtureRequest) -> Bench:
    """The bench with a shipped recipe, in the environment that studies of this user share."""
    cache = os.environ.get("SEAMARK_CACHE")
    environments = f"{cache}/envs" if cache else Paths().environments
    service = SERVICES[request.param]
    (bench.root / "envs").symlink_to(ROOT / "envs")
    paths = replace(bench.site.paths, environments=environments)
    return replace(bench.with_site(paths=paths), service=service)


def settings_of(bench: Bench) -> dict[str, object]:
    return {one.name: one.default for one in bench.service.settings if one.role == "deployment"}


@pytest.mark.covers("E-SVR06", "E-FR21")
@pytest.mark.parametrize("victim", ["keeper_pid", "server_pid"])
def test_no_process_of_a_real_server_outlives_its_supervisor_or_its_parent(real: Bench, victim: str):
    answer = real.serve(**settings_of(real))
    assert answer["status"] == "ok", answer
    below = descendants(answer["server_pid"])
    assert below, "the server was expected to have children"
    kill(answer[victim])
    assert eventually(lambda: not servers.alive(real.folder()), within_s=2.0)
    assert eventually(lambda: not any(map(runs, [answer["server_pid"], *below])), within_s=15.0)
    assert eventually(lambda: left_of(real) == [])
    assert not real.data().exists()


def test_a_real_server_ends_by_its_own_signal_within_its_grace(real: Bench):
    answer = real.serve(**settings_of(real))
    assert answer["status"] == "ok", answer
    record = servers.teardown(real.folder(), [])
    assert record.ended.returncode == 0
    assert left_of(real) == []
