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
from functools import cache
from pathlib import Path

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


def output(code, **variables):
    """What a fresh Python prints last, as JSON, as if on another processor."""
    environment = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES")}
    environment |= variables | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *code], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{variables}: {done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


def probe(**variables):
    return output(["-c", PROBE], **variables)


@cache
def others():
    """Settings of the processors that this one can stand for: the oldest kernel and the fewest loops of NumPy first."""
    here = probe()
    newest = [name for name in here["loops"] if "512" in name or name == "X86_V4"]
    kernels = [{"OPENBLAS_CORETYPE": kernel} for kernel, needs in KERNELS.items() if needs in here["has"]]
    without = [{"NPY_DISABLE_CPU_FEATURES": " ".join(names)} for names in (here["loops"], newest) if names]
    return [kernels[0] | without[0], *kernels[1:], *without[1:]] if kernels and without else kernels + without


def test_the_settings_stand_for_different_processors():
    """Else the test below would compare one processor with itself."""
    found = [probe(), probe(**others()[0])]
    wide = "AVX512F" in found[0]["has"]  # NumPy's exponentials are its own there only
    for name in ("product", "loops", "exponentials") if wide else ("product", "loops"):
        assert found[0][name] != found[1][name] or "AVX2" not in found[0]["has"]


@pytest.mark.parametrize(
    "parts", [["few"], pytest.param(["sizes", "simulations", "goodput"], marks=pytest.mark.exhaustive)], ids=len
)
def test_every_processor_gives_the_same_bytes(parts):
    """Every day: the one that differs the most."""
    expected = output([str(SCRIPT), *parts])
    assert len(expected) > 20
    for variables in others()[:1] if parts == ["few"] else others()[::3]:
        found = output([str(SCRIPT), *parts], **variables)
        differing = [name for name in expected if found[name] != expected[name]]
        assert not differing, f"{variables}: {differing}"
