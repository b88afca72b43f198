"""Checks that a deployment answers before anything is measured. Arguments: scenario file, site, then the
wildcards."""

import sys

from seamark.platform.fork_server.client import run

run("seamark.workflow.rules_api:warmup", sys.argv[1:])
