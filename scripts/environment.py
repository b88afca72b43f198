"""Makes the environment of a service from its lock. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.jobs import environment

environment(*sys.argv[1:])
