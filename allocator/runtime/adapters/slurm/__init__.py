"""Slurm clusters, through Slurm's own commands."""

from allocator.runtime.adapters.slurm.adapter import SlurmAdapter
from allocator.runtime.adapters.slurm.commands import SlurmSettings

__all__ = ["SlurmAdapter", "SlurmSettings"]
