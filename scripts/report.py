"""Draws the report of a scenario. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.jobs import report

report(*sys.argv[1:])
