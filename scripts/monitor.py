"""Cuts the telemetry of a deployment to one trial. Arguments: scenario file, site, then the job's wildcards."""

import sys

from seamark.jobs import monitor

monitor(*sys.argv[1:])
