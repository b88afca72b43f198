"""The model whose answers are known, for whoever checks a method or an adapter of their own."""

from seamark.attention.known_answers import expected_density, expected_right
from seamark.attention.known_reader import write_known_reader, write_random_model

__all__ = ["expected_density", "expected_right", "write_known_reader", "write_random_model"]
