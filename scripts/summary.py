"""Summarises all trials of a scenario. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.platform.fork_server.client import run

run("seamark.workflow.rules_api:summary", sys.argv[1:])
