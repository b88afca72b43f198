"""Most that a gateway in front of replicas carries on a machine, and the cost of its hop."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seamark.model.results.values import Moment, Number, Word

BUSY_RATIO = 0.2
"""Ratio of the processors used by others from which on a ceiling is too low: it is measured again."""


@dataclass(frozen=True, kw_only=True)
class GatewayCeiling:
    """.calibration/NODE.gateway-DIGEST.json: a gateway on the machine `node`, where load generator and `replicas`
    reference servers that answer at once shared its `cores`. `asked` are the settings of gateway and requests.

    `requests_per_s` is the highest rate with replies of one chunk; a chunk more takes 1 / `chunks_per_s`. Of one
    replica without the gateway that rate is `direct_per_s`. `hop_ms` is the median of the time that a request took
    longer through the gateway than to a replica, of `pairs` that were sent in turns, one request at a time;
    `hop_interval_ms` is its 95 % interval. `others_ratio` is the ratio of the processors that others used before or
    after. Where nothing was measured `reason` says why.
    """

    schema_version: int = 1
    at: Moment = None
    node: Word = None
    cores: int
    replicas: int
    asked: Mapping[str, Any] = field(default_factory=dict)
    requests_per_s: Number = None
    chunks_per_s: Number = None
    direct_per_s: Number = None
    hop_ms: Number = None
    hop_interval_ms: tuple[float, float] | None = None
    pairs: int = 0
    others_ratio: Number = None
    reason: Word = None

    @property
    def holds(self) -> bool:
        """Whether it was measured, on a machine that did nothing else."""
        return self.requests_per_s is not None and (self.others_ratio or 0.0) < BUSY_RATIO

    def for_replies(self, chunks: float) -> float | None:
        """Return the highest requests/s for replies of that mean number of chunks; None where it was not measured."""
        if not self.requests_per_s:
            return None
        return 1 / (1 / self.requests_per_s + (chunks / self.chunks_per_s if self.chunks_per_s else 0.0))
