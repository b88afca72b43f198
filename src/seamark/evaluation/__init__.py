"""Evaluation of language models: benchmarks, their questions and scores, and sparse attention methods."""
