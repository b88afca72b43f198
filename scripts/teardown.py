"""Ends the server of a deployment and records its life. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.forkserver.client import run

run("seamark.jobs:teardown", sys.argv[1:])
