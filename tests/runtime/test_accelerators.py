"""What accelerators this machine has: as the driver says, or virtual ones."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from allocator.runtime.adapters.base import AdapterError, Node
from allocator.runtime.adapters.local import LocalAdapter, find_accelerators, virtual_accelerators
from allocator.runtime.adapters.local.accelerators import accelerator_type
from throughputs import InputError


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A10G", "a10g"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla P100-PCIE-16GB", "p100"),
        ("Tesla K80", "k80"),
        ("Quadro RTX 6000", "rtx6000"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx2080ti"),
        ("NVIDIA Graphics", "nvidia graphics"),
    ],
)
def test_the_type_of_a_device(name, kind):
    assert accelerator_type(name) == kind


def test_virtual_accelerators_share_no_index():
    assert virtual_accelerators("v100:2, k80:3,a-b.c_1:1") == {"v100": (0, 1), "k80": (2, 3, 4), "a-b.c_1": (5,)}


@pytest.mark.parametrize(
    "text",
    ["", "v100", "v100:", ":2", "v100:0", "v100:-1", "v100:x", "v100:2,", "v100:1,v100:1", "v100:100001", "a b:1"],
)
def test_what_is_not_understood_is_named(text):
    with pytest.raises(InputError, match="virtual accelerators"):
        virtual_accelerators(text)


class _NvmlError(Exception):
    pass


def driver(names, failure=""):
    def start():
        if failure:
            raise _NvmlError(failure)

    return SimpleNamespace(
        NVMLError=_NvmlError,
        nvmlInit=start,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(names),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda index: names[index],
        nvmlDeviceGetUUID=lambda index: f"GPU-{index}0abc",
    )


DEVICES = ["NVIDIA A100-SXM4-80GB", b"Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-80GB"]


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, {"a100": (0, 2), "v100": (1,)}),
        ("2,1", {"v100": (1,), "a100": (2,)}),
        ("GPU-20", {"a100": (2,)}),
    ],
)
async def test_nvidia_devices_that_may_be_used(monkeypatch, tmp_path, visible, found):
    monkeypatch.setitem(sys.modules, "pynvml", driver(DEVICES))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert find_accelerators() == found

    adapter = LocalAdapter(tmp_path)
    await adapter.open()
    assert list(await adapter.nodes()) == [Node(f"local-{kind}", kind, len(devices)) for kind, devices in found.items()]


def test_a_machine_without_devices_says_what_to_do(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(AdapterError, match=r"nvidia-ml-py: install it, or name virtual ones"):
        find_accelerators()
    monkeypatch.setitem(sys.modules, "pynvml", driver([]))
    with pytest.raises(AdapterError, match=r"no NVIDIA GPU that may be used; name virtual ones"):
        find_accelerators()
    monkeypatch.setitem(sys.modules, "pynvml", driver(DEVICES, "Driver Not Loaded"))
    with pytest.raises(AdapterError, match=r"does not tell of its GPUs: Driver Not Loaded"):
        find_accelerators()
    monkeypatch.setitem(sys.modules, "pynvml", driver(DEVICES))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(AdapterError, match=r"no NVIDIA GPU that may be used"):
        find_accelerators()
