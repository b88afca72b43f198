"""What is read of a git checkout, whose files and settings are somebody else's."""

import os
import subprocess
from pathlib import Path

import pytest

from seamark.telemetry.provenance.software import git

NAMED = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", "-C", tmp_path, *words], check=True, env=os.environ | NAMED)
    return tmp_path


def test_a_file_name_that_is_not_utf_8_is_a_change_like_any_other(checkout: Path):
    (checkout / os.fsdecode(b"gr\xf6\xdfe")).write_text("x")
    for words in (["add", "."], ["config", "core.quotePath", "false"]):
        subprocess.run(["git", "-C", checkout, *words], check=True)
    seen = git(checkout)
    assert (len(seen.git_commit or ""), seen.git_dirty) == (40, True)


def test_no_program_that_a_checkout_names_is_started(checkout: Path):
    program, ran = checkout / ".git" / "monitor", checkout / ".git" / "ran"
    program.write_text(f"#!/bin/sh\ntouch '{ran}'\n")
    program.chmod(0o755)
    subprocess.run(["git", "-C", checkout, "config", "core.fsmonitor", program], check=True)
    assert git(checkout).git_dirty is False
    assert not ran.exists()
