"""What accelerators this machine has: as the driver says, or virtual ones."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from allocator.runtime.adapters.base import AdapterError, Node
from allocator.runtime.adapters.local import LocalAdapter, find_accelerators, virtual_accelerators
from allocator.runtime.adapters.local.accelerators import accelerator_type
from throughputs import InputError


def test_the_type_of_a_device():
    for name, kind in {
        "NVIDIA A100-SXM4-80GB": "a100",
        "NVIDIA H100 80GB HBM3": "h100",
        "NVIDIA H100 PCIe": "h100",
        "NVIDIA GH200 480GB": "gh200",
        "NVIDIA L40S": "l40s",
        "NVIDIA A10G": "a10g",
        "Tesla V100-SXM2-16GB": "v100",
        "Tesla K80": "k80",
        "Quadro RTX 6000": "rtx6000",
        "NVIDIA GeForce RTX 2080 Ti": "rtx2080ti",
        "NVIDIA Graphics": "nvidia graphics",
    }.items():
        assert accelerator_type(name) == kind


def test_virtual_accelerators_share_no_index():
    assert virtual_accelerators("v100:2, k80:3,a-b.c_1:1") == {"v100": (0, 1), "k80": (2, 3, 4), "a-b.c_1": (5,)}
    wrong = [
        "",
        "v100",
        "v100:",
        ":2",
        "v100:0",
        "v100:-1",
        "v100:x",
        "v100:2,",
        "v100:1,v100:1",
    ]
    for text in wrong:
        with pytest.raises(InputError, match="cluster"):
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


@pytest.mark.parametrize(
    ("module", "visible", "told"),
    [
        (None, None, "nvidia-ml-py: install it, or name virtual ones"),
        (driver([]), None, "no NVIDIA GPU that may be used; name virtual ones"),
        (driver(DEVICES, "Driver Not Loaded"), None, "Driver Not Loaded"),
        (driver(DEVICES), "", "no NVIDIA GPU that may be used"),
    ],
)
def test_a_machine_without_devices_says_what_to_do(monkeypatch, module, visible, told):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    with pytest.raises(AdapterError, match=told):
        find_accelerators()
