"""Starts the server of a deployment under its keeper. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.jobs import serve

serve(*sys.argv[1:])
