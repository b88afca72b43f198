"""Draws the report of a scenario. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.forkserver.client import run

run("seamark.jobs:report", sys.argv[1:])
