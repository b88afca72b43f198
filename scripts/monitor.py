"""Cuts the telemetry of a deployment to one trial. Argument: its load.json."""

import sys

from seamark.forkserver.client import run

run("seamark.jobs:monitor", sys.argv[1:])
