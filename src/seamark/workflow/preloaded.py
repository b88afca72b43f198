"""What the jobs of a trial import: a fork server imports this module once for a run, before anything is measured.

pandas is hidden from it: pyarrow imports that (0.3 s) only to ask whether a list of ours is a Series.
"""

import sys
from importlib.abc import MetaPathFinder


class WithoutPandas(MetaPathFinder):
    """Finds pandas nowhere, and has no opinion of anything else."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "pandas":
            raise ImportError("not needed in the jobs of a run")


sys.meta_path.insert(0, WithoutPandas())
