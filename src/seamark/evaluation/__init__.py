"""Evaluation of language models: benchmarks with their questions and scores, and methods of sparse attention."""
