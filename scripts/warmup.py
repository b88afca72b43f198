"""Shows that a deployment answers before anything is measured. Arguments: scenario file, site, then the wildcards."""

import sys

from seamark.forkserver.client import run

run("seamark.jobs:warmup", sys.argv[1:])
