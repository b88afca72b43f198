"""Verbs of pipelines."""
