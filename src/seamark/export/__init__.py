"""Hands on how a scenario is written as job scripts."""

from seamark.export.slurm import Export, export_slurm

__all__ = ["Export", "export_slurm"]
