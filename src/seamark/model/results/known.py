"""The noun of each results file by its name, and the remedy for a damaged one."""

from collections.abc import Mapping
from typing import Any

from seamark.model.results.deployment_record import DeploymentRecord, Endpoint
from seamark.model.results.load_record import LoadRecord, SamplesRecord
from seamark.model.results.summary import Summary
from seamark.model.results.trial_meta import TrialMeta
from seamark.model.results.trial_metrics import Histograms, TrialMetrics
from seamark.model.trial import Plan

SHAPES: Mapping[str, Any] = {
    "load.json": LoadRecord,
    "samples.json": SamplesRecord,
    "metrics.json": TrialMetrics,
    "histogram.json": Histograms,
    "meta.json": TrialMeta,
    "endpoint.json": Endpoint,
    "answer.json": Endpoint,
    "deployment.json": DeploymentRecord,
    "plan.json": Plan,
    "summary.json": Summary,
}
"""By file name. A file of another name is any object."""

DERIVED = "Remove it: `bench collect` and `bench submit` derive it again from the samples."
REMEDIES: Mapping[str, str] = {
    "load.json": "`bench submit` writes it again from samples.json, or measures the trial again.",
    "samples.json": "`bench submit` measures the trial again; `bench status` shows it meanwhile.",
    "metrics.json": DERIVED,
    "histogram.json": DERIVED,
    "meta.json": "Where the trial was measured is not known then; `bench retry TRIAL` measures it again.",
    "endpoint.json": "`bench submit` starts the server again.",
    "deployment.json": "Remove it: `bench submit` writes it again.",
    "plan.json": "`bench plan` writes it again.",
    "summary.json": "`bench collect` writes it again.",
}
OTHERWISE = "Remove the file; the next run makes it again."
"""Remedy for all other files."""
