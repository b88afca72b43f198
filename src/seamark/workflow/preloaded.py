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
    "seamark.trials.kinds.simulation",
    "seamark.trials.kinds.timed_load",
    "seamark.trials.lane",
    "seamark.trials.run_deployment",
):
    import_module(module)

from seamark.model.results.deployment_record import Endpoint  # noqa: E402 - after pandas is hidden
from seamark.model.results.load_record import LoadRecord  # noqa: E402
from seamark.model.trial import Plan  # noqa: E402
from seamark.storage.codec import decoder  # noqa: E402

for noun in (Endpoint, LoadRecord, Plan):
    decoder(noun)
