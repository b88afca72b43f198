"""Measures one trial. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.jobs import load

load(*sys.argv[1:])
