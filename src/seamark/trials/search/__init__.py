"""The largest load that meets a workload's objectives: which levels, which probe comes next, what a probe says."""
