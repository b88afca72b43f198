"""Turns the samples of one trial into its metrics. Arguments: plan.json and its load.json."""

import sys

from seamark.forkserver.client import run

run("seamark.jobs:metrics", sys.argv[1:])
