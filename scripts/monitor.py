"""Cuts the telemetry of a deployment to one trial. Argument: its load.json."""

import sys

from seamark.platform.fork_server.client import run

run("seamark.workflow.rules_api:monitor", sys.argv[1:])
