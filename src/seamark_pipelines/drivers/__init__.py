"""The driver of pipelines."""
