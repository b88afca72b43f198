"""Seamark: resumable, trustworthy benchmarks of AI-factory services."""

__version__ = "0.1.0"
