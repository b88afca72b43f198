"""The model whose answers are known, to check a new method or adapter."""

from seamark_evaluate.attention.known_answers import expected_density, expected_right
from seamark_evaluate.attention.known_reader import write_known_reader, write_random_model

__all__ = ["expected_density", "expected_right", "write_known_reader", "write_random_model"]
