"""Triton over HTTP and gRPC."""

from seamark.drivers.triton.driver import HOOKS, driver

__all__ = ["HOOKS", "driver"]
