"""Starts the server of a deployment under its supervisor. Arguments: scenario file, site, then the job's
wildcards."""

import sys

from seamark.platform.fork_server.client import run

run("seamark.workflow.rules_api:serve", sys.argv[1:])
