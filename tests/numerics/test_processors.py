"""The same input gives the same bytes on every x86-64 processor, whatever its vector instructions.

Processors differ in the kernels that OpenBLAS and NumPy choose for them. Both can be told to choose as if for another
processor, so that one machine stands for many: everything in `all_decisions.py` is computed anew under each choice.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="bytes are promised on x86-64 only"
)

SCRIPT = Path(__file__).with_name("all_decisions.py")
ROOT = SCRIPT.parents[2]

KERNELS = {"Prescott": "SSE3", "Sandybridge": "AVX", "Haswell": "AVX2", "Zen": "AVX2", "SkylakeX": "AVX512F"}
"""Kernels of OpenBLAS, and the instructions that they need (OpenBLAS does not ask whether they are there)."""

# What a process is computing with: vector instructions that the processor has, those that loops of NumPy are written
# for, and the bits of a matrix product and of some exponentials.
PROBE = """
import json
try:
    from numpy._core import _multiarray_umath as core
except ImportError:
    from numpy.core import _multiarray_umath as core
import numpy as np
a = 1.0 / (1.0 + np.arange(2500.0)).reshape(50, 50)
print(json.dumps({
    "has": [name for name, there in core.__cpu_features__.items() if there],
    "loops": [name for name in core.__cpu_dispatch__ if core.__cpu_features__.get(name)],
    "product": (a @ a.T).tobytes().hex(),
    "exponentials": np.exp(a).tobytes().hex(),
}))
"""


def output(code: list[str], **variables: str) -> Any:
    """What a fresh Python prints last, as JSON, as if on another processor."""
    environment = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES")}
    environment |= variables | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *code], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{variables}: {done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


def probe(**variables: str) -> Any:
    """See `PROBE`."""
    return output(["-c", PROBE], **variables)


@cache
def here() -> Any:
    """This processor as it is."""
    return probe()


def missing(kernel: str) -> str:
    """Why a kernel cannot run here; empty where it can."""
    return "" if KERNELS[kernel] in here()["has"] else f"this processor has no {KERNELS[kernel]}"


def feature_sets() -> list[str]:
    """What to take from NumPy: its newest loops, and all but those that every processor runs."""
    loops = here()["loops"]
    newest = [name for name in loops if "512" in name or name == "X86_V4"]
    return [" ".join(names) for names in (newest, loops) if names]


def others() -> list[dict[str, str]]:
    """Settings of the processors that this one can stand for."""
    kernels = [{"OPENBLAS_CORETYPE": kernel} for kernel in KERNELS if not missing(kernel)]
    return kernels + [{"NPY_DISABLE_CPU_FEATURES": names} for names in dict.fromkeys(feature_sets())]


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_that_can_be_asked_for(kernel: str) -> None:
    if reason := missing(kernel):
        pytest.skip(reason)
    assert probe(OPENBLAS_CORETYPE=kernel)["product"]


def test_the_settings_stand_for_different_processors() -> None:
    """Else the test below would compare one processor with itself."""
    found = [probe(**variables) for variables in others()]
    if "AVX2" in here()["has"]:
        assert len({each["product"] for each in found}) >= 2
        assert len({tuple(each["loops"]) for each in found}) >= 2
        assert len({each["exponentials"] for each in found}) >= 2


def test_every_processor_gives_the_same_bytes() -> None:
    settings = others()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        expected, *found = pool.map(lambda variables: output([str(SCRIPT)], **variables), [{}, *settings])
    assert len(expected) > 50
    for variables, digests in zip(settings, found, strict=True):
        differing = [name for name in expected if digests[name] != expected[name]]
        assert not differing, f"{variables}: {differing}"
