"""Slurm by its own commands: what we ask of it, what Snakemake is told of its jobs, and why some were lost."""
