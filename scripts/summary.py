"""Sums up all trials of a scenario. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.forkserver.client import run

run("seamark.jobs:summary", sys.argv[1:])
