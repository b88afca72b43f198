"""Writes the plan of a scenario. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.jobs import plan

plan(*sys.argv[1:])
