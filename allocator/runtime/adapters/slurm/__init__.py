"""Slurm clusters, driven by Slurm's own commands."""

from allocator.runtime.adapters.slurm.adapter import SlurmAdapter

__all__ = ["SlurmAdapter"]
