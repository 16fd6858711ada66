"""Placement: which GPUs a row gets."""

from allocator.mechanism.placement.placement import Placement, PlacementRule
from allocator.mechanism.placement.rounds import RoundPlacement

__all__ = ["Placement", "PlacementRule", "RoundPlacement"]
