"""Prints a deployment's trials that are not measured yet. Arguments: scenario file, site, then the job's own."""

import sys

from seamark.forkserver.client import run

run("seamark.jobs:pending", sys.argv[1:])
