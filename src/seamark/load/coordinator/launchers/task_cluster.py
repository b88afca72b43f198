"""Workers as tasks of a Dask or Spark cluster that runs already: a process of its own hands them over."""

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from seamark.errors import SiteError
from seamark.platform.fork_server.client import OUTSIDE

PACKAGES = {"dask": "distributed", "spark": "pyspark"}
"""What has to be installed to speak to each cluster."""


class Executor:
    """A cluster at `address`, spoken to by the interpreter `python` (None: this one), which has its package."""

    def __init__(self, name: str, address: str, python: Path | None = None) -> None:
        """Raise SiteError where the package is missing here."""
        self.name = name
        self.alone = name == "spark"  # Spark ends all tasks of a stage when one is lost: the other loads go on
        self.address = address
        self.python = python
        if python is None and importlib.util.find_spec(PACKAGES[name]) is None:
            raise SiteError(
                f"carrier {name}: the package '{PACKAGES[name]}' is not installed here. Install seamark[{name}], or "
                "name an interpreter that has it in the version of the cluster: carrier_python of the site, "
                "--carrier-python of bench load."
            )
        if python is not None and not python.exists():
            raise SiteError(f"carrier {name}: there is no interpreter {python}. Correct carrier_python.")

    def near(self) -> str | None:
        """Return the host of the cluster's scheduler; None where its address has none."""
        if self.address.startswith("local"):
            return "localhost"
        return urlsplit(self.address).hostname

    def command(self, workers: int, python: Path) -> list[str]:
        """Return the process that hands over the tasks."""
        return [str(self.python or sys.executable), OUTSIDE, f"seamark.load.coordinator.launchers.{self.name}_tasks"]

    def environment(self) -> dict[str, str]:
        """Return our environment."""
        return dict(os.environ)

    def order(self) -> Mapping[str, Any]:
        """Return where the cluster is."""
        return {"address": self.address, "parent": os.getpid()}
