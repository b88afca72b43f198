"""Time of a node: from the request, from the model, or a constant; drawn where that is asked for."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from seamark_simulate.simulation.system import Model

TimeSource = Literal["node_execution_times", "inference_time_mean", "tokens_per_second", "default", "model_server"]
SOURCES: tuple[TimeSource, ...] = (
    "node_execution_times",
    "inference_time_mean",
    "tokens_per_second",
    "default",
    "model_server",
)
"""`model_server`: the estimate of the server that is called when requests are measured."""
DEFAULT_S = 10.0
"""Time of a node about which nothing is known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeTime:
    """The expected time of a node, the standard deviation of its draws (0: always the same), and the source."""

    mean_s: float
    source: TimeSource
    std_s: float = 0.0

    def drawn_s(self, random: np.random.Generator) -> float:
        """Return one draw: gamma with this mean and standard deviation, so never negative."""
        if self.std_s == 0 or self.mean_s == 0:
            return self.mean_s
        spread = self.std_s / self.mean_s
        return float(random.gamma(spread**-2, self.mean_s * spread**2))


def model_time(model: Model) -> NodeTime:
    """Return the time of a node whose request does not give one: the mean time of inference, else tokens over tokens
    a second, else 10 s."""
    if model.inference_time_mean_s is not None:
        std_s = model.inference_time_std_s or 0.0
        return NodeTime(mean_s=model.inference_time_mean_s, source="inference_time_mean", std_s=std_s)
    if model.token_mean is not None and model.tokens_per_second is not None:
        rate = model.tokens_per_second
        std_s = (model.token_std or 0.0) / rate
        return NodeTime(mean_s=model.token_mean / rate, source="tokens_per_second", std_s=std_s)
    return NodeTime(mean_s=DEFAULT_S, source="default")
