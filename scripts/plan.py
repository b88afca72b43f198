"""Writes the plan of a scenario. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.forkserver.client import run

run("seamark.jobs:plan", sys.argv[1:])
