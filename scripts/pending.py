"""Prints a deployment's trials that are not measured yet. Arguments: scenario file, site, then the job's own."""

import sys

from seamark.platform.fork_server.client import run

run("seamark.workflow.rules_api:pending", sys.argv[1:])
