"""Cuts the telemetry of a deployment to one trial. Argument: its load.json."""

import sys

from seamark.jobs import monitor

monitor(*sys.argv[1:])
