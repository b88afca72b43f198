"""Triton over HTTP and gRPC."""

from seamark.drivers.triton.inference import HOOKS, driver

__all__ = ["HOOKS", "driver"]
