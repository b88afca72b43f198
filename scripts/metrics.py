"""Derives the metrics of one trial from its samples. Arguments: plan.json and its load.json."""

import sys

from seamark.platform.fork_server.client import run

run("seamark.workflow.rules_api:metrics", sys.argv[1:])
