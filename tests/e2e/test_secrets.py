"""Secrets of the environment are sent by a run, and stand in none of its files."""

import os
from pathlib import Path

import pytest
from study_folder import StudyFolder

SECRETS = {"THE_KEY": "k3y-Of-The-Environment", "THE_HEADER": "h3ader-Of-The-Environment"}


@pytest.mark.e2e
@pytest.mark.covers("E-SEC")
def test_an_api_key_and_a_header_of_the_environment_are_in_no_file_of_a_run(tmp_path: Path) -> None:
    study = StudyFolder.new(tmp_path, environment={**os.environ, **SECRETS})
    study.write(
        repetitions=1,
        workload={
            "component": "inference",
            "service": "known",
            "concurrency": 1,
            "duration_s": 0.5,
            "gen_tokens": 2,
            "api_key_env": "THE_KEY",
            "headers": {"X-Key": "env:THE_HEADER"},
            "extra_body": {"seed": 4},
        },
    )
    done = study.bench("submit", "--config", "config/scenarios/try.yaml", pages=True, code=0)
    assert not [secret for secret in SECRETS.values() if secret in done.stdout + done.stderr]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert {"meta.json", "plan.json", "metrics.json", "index.html"} <= names
    assert any(".snakemake" in path.parts for path in files)
    found = {path for path in files for secret in SECRETS.values() if secret.encode() in path.read_bytes()}
    assert found == set()
    [plan] = [path for path in files if path.name == "plan.json" and "env:THE_HEADER" in path.read_text()][:1]
    assert "THE_KEY" in plan.read_text()
