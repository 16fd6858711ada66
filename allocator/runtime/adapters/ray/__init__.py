"""Ray clusters: a process that is connected to Ray, and a supervisor on each node."""

from allocator.runtime.adapters.ray.adapter import RayAdapter

__all__ = ["RayAdapter"]
