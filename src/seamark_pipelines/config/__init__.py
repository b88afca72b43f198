"""Pipeline files and workloads of pipelines, read."""
