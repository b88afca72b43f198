"""Runs one simulation. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.platform.fork_server.client import run

run("seamark.workflow.rules_api:load", sys.argv[1:])
