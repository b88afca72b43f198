"""Measures one trial. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.forkserver.client import run

run("seamark.jobs:load", sys.argv[1:])
