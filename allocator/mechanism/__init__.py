"""The decision core: from shares and plans to who runs as what on which GPUs."""

from allocator.mechanism.core import DecisionCore
from allocator.mechanism.placement import Placement
from allocator.mechanism.settings import MechanismSettings

__all__ = ["DecisionCore", "MechanismSettings", "Placement"]
