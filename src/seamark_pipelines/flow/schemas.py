"""Names of the original benchmark's `utils`: the models of a configuration, the query, the polling policies."""

from seamark_pipelines.model.graph import LoadGen as LoadGenModel
from seamark_pipelines.model.graph import PipelineModel, StageModel
from seamark_pipelines.model.query import Query


class SingleQueuePolicy:
    """Takes queries in the order in which they come; for a stage with one input."""


class FirstSubmittedPolicy:
    """Takes of the queries that wait the one that was submitted first."""


class MergePolicy:
    """Waits for a query's copies from all inputs and merges them: `data` has that of each by the stage's id."""


__all__ = [
    "FirstSubmittedPolicy",
    "LoadGenModel",
    "MergePolicy",
    "PipelineModel",
    "Query",
    "SingleQueuePolicy",
    "StageModel",
]
