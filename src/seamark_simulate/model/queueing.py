"""Words of queueing models: families of service times, and routers of requests to servers."""

from typing import Literal

Family = Literal["exponential", "gamma", "lognormal", "constant"]
Router = Literal["one-queue", "random", "round-robin", "power-of-two", "least-loaded"]
