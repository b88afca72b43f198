"""Comparison of treatments: which with which, by which metric, by what unit of inference, and the verdicts. Pure."""
