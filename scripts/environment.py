"""Creates the environment of a service from its lock. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.workflow.rules_api import environment

environment(*sys.argv[1:])
