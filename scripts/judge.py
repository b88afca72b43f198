"""Scores the kept replies of one trial. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.platform.fork_server.client import run

run("seamark.workflow.rules_api:judge", sys.argv[1:])
