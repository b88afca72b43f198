"""Runs deployments of a scenario on devices, one after another, beside other lanes. Arguments: scenario file, site,
then the job's wildcards, then options."""

import sys

from seamark.platform.fork_server.client import run

run("seamark.workflow.rules_api:lane", sys.argv[1:])
