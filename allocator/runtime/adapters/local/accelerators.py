"""Accelerators of this machine: NVIDIA's, as their driver tells of them, or virtual ones."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping
from typing import Any

from allocator.cluster import Cluster
from allocator.runtime.adapters.base import AdapterError
from throughputs import InputError

Accelerators = Mapping[str, tuple[int, ...]]
"""By type the indices of its accelerators on this machine, as CUDA_VISIBLE_DEVICES has them in the order of the bus."""

# Brand, memory and form of a device: what is left names the type.
_NOT_OF_THE_TYPE = re.compile(
    r"nvidia|tesla|quadro|geforce|graphics|generation|\d+gb|hbm\d\w*|sxm\d*|pcie|pg\d+|nvl|oam", re.IGNORECASE
)


def accelerator_type(name: str) -> str:
    """Type of a device by its product name: ``NVIDIA A100-SXM4-80GB`` is an ``a100``."""
    words = [word for word in re.split(r"[\s\-_/]+", name) if word and not _NOT_OF_THE_TYPE.fullmatch(word)]
    return "".join(words).lower() or name.lower()


def virtual_accelerators(text: str) -> Accelerators:
    """Accelerators that do not exist, from text such as ``v100:2,k80:2``; no two have the same index.

    Raises
    ------
    InputError
        Says what is wrong with the text.
    """
    found: dict[str, tuple[int, ...]] = {}
    first = 0
    for name, count in Cluster.parse(text).gpus.items():
        if not count:
            raise InputError("cluster", field=name, found=count, expected="at least 1 GPU")
        found[name] = tuple(range(first, first + count))
        first += count
    return found


def find_accelerators() -> Accelerators:
    """NVIDIA's of this machine, or those of them that this process may see.

    Raises
    ------
    AdapterError
        There are none, or they cannot be asked for; says what to do.
    """
    devices = _nvidia_devices()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        named = [name.strip() for name in visible.split(",") if name.strip()]
        devices = {
            index: (name, identity)
            for index, (name, identity) in devices.items()
            if any(wanted == str(index) or (wanted[:4] == "GPU-" and identity.startswith(wanted)) for wanted in named)
        }
    if not devices:
        raise AdapterError("this machine has no NVIDIA GPU that may be used; name virtual ones, as in v100:2")
    found: dict[str, tuple[int, ...]] = {}
    for index, (name, _) in devices.items():
        kind = accelerator_type(name)
        found[kind] = (*found.get(kind, ()), index)
    return found


def _nvidia_devices() -> dict[int, tuple[str, str]]:
    """Product name and identity of each GPU by its index, in the order of the bus."""
    try:
        # Not a dependency, and absent from machines without GPUs.
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        raise AdapterError(
            "GPUs are found through the package nvidia-ml-py: install it, or name virtual ones, as in v100:2"
        ) from None
    try:
        nvml.nvmlInit()
        try:
            handles = {index: nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())}
            return {
                index: (_text(nvml.nvmlDeviceGetName(handle)), _text(nvml.nvmlDeviceGetUUID(handle)))
                for index, handle in handles.items()
            }
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        raise AdapterError(f"the NVIDIA driver does not tell of its GPUs: {error}") from error


def _text(told: str | bytes) -> str:
    """Versions before 11.5 tell bytes."""
    return told.decode() if isinstance(told, bytes) else told
