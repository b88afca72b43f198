"""Starts the server of a deployment under its keeper. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.forkserver.client import run

run("seamark.jobs:serve", sys.argv[1:])
