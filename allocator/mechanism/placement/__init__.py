"""Placement: which GPUs a row gets."""

from allocator.mechanism.placement.placement import Placement
from allocator.mechanism.placement.rounds import RoundPlacement

__all__ = ["Placement", "RoundPlacement"]
