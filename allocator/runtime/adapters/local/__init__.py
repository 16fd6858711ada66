"""This machine as a cluster; nothing else to install."""

from allocator.runtime.adapters.local.accelerators import Accelerators, find_accelerators, virtual_accelerators
from allocator.runtime.adapters.local.adapter import LocalAdapter

__all__ = ["Accelerators", "LocalAdapter", "find_accelerators", "virtual_accelerators"]
