"""Turns the samples of one trial into its metrics. Arguments: plan.json and its load.json."""

import sys

from seamark.jobs import metrics

metrics(*sys.argv[1:])
