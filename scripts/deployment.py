"""Runs one deployment from its start to its end. Arguments: scenario file, site, scenario, deployment."""

import sys

from seamark.workflow.rules_api import deployment

sys.exit(deployment(*sys.argv[1:]))
