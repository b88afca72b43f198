"""What a job of a trial still has to import in a process of the fork server, which imported `preloaded` before."""

import json
import subprocess
import sys

import pytest
from study_folder import StudyFolder

JOBS = """
import json, sys
import seamark.workflow.preloaded
from seamark.workflow import rules_api
before = set(sys.modules)
rules_api.monitor(sys.argv[1])
rules_api.metrics(sys.argv[2], sys.argv[1])
rules_api.load("config/scenarios/try.yaml", "local", "try", sys.argv[3])
print(json.dumps(sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in HEAVY)))
"""
HEAVY = ("seamark", "numpy", "pyarrow", "scipy", "pandas", "uvloop", "psutil", "yaml")


@pytest.mark.sweep
@pytest.mark.e2e
@pytest.mark.covers("E-NFR01")
def test_jobs_of_a_trial_import_nothing_that_the_fork_server_has_not(finished: StudyFolder) -> None:
    trial = next(path.parent for path in sorted((finished.root / "results" / "try").glob("*/load.json")))
    words = [trial / "load.json", trial.parent / "plan.json", trial.name]
    code = JOBS.replace("HEAVY", repr(HEAVY))
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=finished.root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []
