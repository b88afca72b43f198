"""Modules that the fork server of a run's jobs imports once, before anything is measured."""

from importlib import import_module

import pyarrow

from seamark.model.plugin import plugins
from seamark.model.results.deployment_record import Endpoint
from seamark.model.results.load_record import LoadRecord
from seamark.model.trial import Plan
from seamark.storage.codec import decoder

for module in (
    "pyarrow.compute",
    "seamark.analysis.summary",
    "seamark.load.workers.segments",
    "seamark.planning.study",
    "seamark.telemetry.cut",
    "seamark.trials.derive_trial",
    "seamark.trials.kinds.search",
    "seamark.trials.kinds.timed_load",
    "seamark.trials.lane",
    "seamark.trials.run_deployment",
):
    import_module(module)

for plugin in plugins():  # each job asks for their forms and earlier names
    for kind in plugin.kinds.values():
        import_module(kind)
pyarrow.array([0])  # imports pandas, to test whether a list is a Series
for noun in (Endpoint, LoadRecord, Plan):
    decoder(noun)
