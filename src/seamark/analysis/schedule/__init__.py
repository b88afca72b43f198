"""Schedules of workflows on GPUs, read from executions.parquet: bars, shares of time, causes of waiting, a trace."""
