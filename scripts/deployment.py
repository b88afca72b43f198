"""Runs the whole life of one deployment. Arguments: scenario file, site, scenario, deployment."""

import sys

from seamark.workflow.rules_api import deployment

sys.exit(deployment(*sys.argv[1:]))
