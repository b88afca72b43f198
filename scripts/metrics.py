"""Turns the samples of one trial into its metrics. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.jobs import metrics

metrics(*sys.argv[1:])
