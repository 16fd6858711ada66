"""Ray clusters: a process that is connected to Ray, and a supervisor on each node."""

from allocator.runtime.adapters.ray.adapter import RayAdapter
from allocator.runtime.adapters.ray.connection import RaySettings

__all__ = ["RayAdapter", "RaySettings"]
