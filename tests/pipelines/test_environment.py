"""The environment of pipelines for conda has the packages of the lock."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.mark.covers("A2")
def test_conda_gets_the_packages_of_the_lock_by_their_hashes() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *plain, pip = environment["dependencies"]
    assert plain == ["python=3.11", "pip"]
    [words] = pip["pip"]
    assert words == "-r envs/pipelines.lock"
    lock = (ROOT / words.removeprefix("-r ")).read_text()
    wanted = re.findall(r"^([a-z][a-z0-9-]*)", (ROOT / "envs/pipelines.in").read_text(), re.MULTILINE)
    pinned = re.findall(r"^([a-z][a-z0-9-]*)==", lock, re.MULTILINE)
    assert len(wanted) > 10
    assert set(wanted) <= set(pinned)
    assert lock.count("--hash=sha256:") >= len(pinned)
