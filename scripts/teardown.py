"""Ends the server of a deployment and records its life. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.jobs import teardown

teardown(*sys.argv[1:])
