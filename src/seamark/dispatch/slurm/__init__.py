"""Slurm: its commands, the states of its jobs, its executor in Snakemake, and the facts of a site."""
