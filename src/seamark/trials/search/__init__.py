"""Search for the largest load that meets a workload's objectives: levels, next probe, and evaluation of a probe."""
