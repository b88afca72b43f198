"""Evaluation of language models: methods of sparse attention, benchmarks and scores."""
