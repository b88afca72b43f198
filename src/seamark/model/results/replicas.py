"""Figures of the replicas of a server behind its gateway, as they stand in metrics.json."""

from collections.abc import Mapping
from dataclasses import dataclass

from seamark.model.results.values import Number

REQUESTS, PREFIX_QUERIES, PREFIX_HITS = "replica_requests", "replica_prefix_queries", "replica_prefix_hits"
"""Series of telemetry of one replica, counters: requests that it ended, prompt tokens that its prefix cache was asked
for, and those that it had. A recipe names the replica's own metrics for them."""
REPLICA_SERIES = (REQUESTS, PREFIX_QUERIES, PREFIX_HITS)
ANSWERS = "replica_answers"
"""Series of telemetry of every replica: 1 where it served its counters, else 0."""


@dataclass(frozen=True, kw_only=True)
class ReplicaFigures:
    """One replica: `requests` that it ended, their `share` of those of all replicas, and the share of prompt tokens
    that its prefix cache had. By its own counters; None where it did not serve them, or began them anew."""

    requests: Number = None
    share: Number = None
    prefix_hit_ratio: Number = None


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """The replicas of a server in `counted_s` seconds of the measured window: those between the first and the last
    look at their counters. `imbalance` is the most requests of one over the mean, 1 where all have as many;
    `prefix_hit_ratio` is that of all together. Without the counters of one replica there are no shares."""

    by_replica: Mapping[str, ReplicaFigures]
    counted_s: Number = None
    imbalance: Number = None
    prefix_hit_ratio: Number = None
