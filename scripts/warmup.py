"""Shows that a deployment answers before anything is measured. Arguments: scenario file, site, then the wildcards."""

import sys

from seamark.jobs import warmup

warmup(*sys.argv[1:])
