"""Elastic trainers of Ray Train under our policies: `Coordinator` decides how many workers each has.

>>> import ray, allocator.ray                                            # doctest: +SKIP
>>> ray.init()                                                           # doctest: +SKIP
>>> allocator.ray.Coordinator("sia")  # once on a cluster                # doctest: +SKIP
"""

from allocator.ray.internal import Coordinator, callbacks

__all__ = ["Coordinator", "callbacks"]
