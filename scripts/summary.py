"""Sums up all trials of a scenario. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.jobs import summary

summary(*sys.argv[1:])
