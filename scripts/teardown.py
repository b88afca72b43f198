"""Ends the server of a deployment and writes deployment.json. Arguments: scenario file, site, then the job's
wildcards."""

import sys

from seamark.platform.fork_server.client import run

run("seamark.workflow.rules_api:teardown", sys.argv[1:])
