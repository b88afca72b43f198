"""Modules that the fork server of a run's jobs imports once, before anything is measured.

pandas is hidden from the jobs of a trial: pyarrow would import it (0.3 s) only to test whether a list is a Series.
The jobs of a scenario need it for tables and figures, and make it importable again (rules_api.py).
"""

import sys
from importlib import import_module

from seamark.workflow.rules_api import WithoutPandas

sys.meta_path.insert(0, WithoutPandas())

for module in (
    "pyarrow.compute",
    "seamark.analysis.summary",
    "seamark.load.workers.segments",
    "seamark.planning.study",
    "seamark.telemetry.cut",
    "seamark.trials.derive_trial",
    "seamark.trials.kinds.search",
    "seamark.trials.kinds.timed_load",
    "seamark.trials.run_deployment",
):
    import_module(module)
