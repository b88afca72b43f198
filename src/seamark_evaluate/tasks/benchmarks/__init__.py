"""Benchmarks that need code: data made from a seed, and rows that are turned into questions. One file a family."""
