"""Modules that the fork server of a run's jobs imports once, before anything is measured.

pandas is hidden from the jobs of a trial: pyarrow would import it (0.3 s) only to test whether a list is a Series.
The jobs of a scenario, which need it for tables and figures, call `show_pandas`.
"""

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder


class WithoutPandas(MetaPathFinder):
    """Refuses the import of pandas, and leaves all other modules to the other finders."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ImportError("not needed in the jobs of a trial")


def show_pandas() -> None:
    """Make pandas importable in this process."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, WithoutPandas)]


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
    "seamark.workflow.rules_api",
):
    import_module(module)
