"""The round mechanism: from shares of time to who runs where in the coming round."""

from allocator.mechanism.core import DecisionCore
from allocator.mechanism.placement import Placement
from allocator.mechanism.settings import MechanismSettings

__all__ = ["DecisionCore", "MechanismSettings", "Placement"]
