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
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(
        platform.machine().lower() not in ("x86_64", "amd64"), reason="bytes are promised on x86-64 only"
    ),
]

SCRIPT = Path(__file__).with_name("all_decisions.py")
ROOT = SCRIPT.parents[2]

KERNELS = {"Prescott": "SSE3", "Sandybridge": "AVX", "Haswell": "AVX2", "Zen": "AVX2", "SkylakeX": "AVX512F"}
"""Kernels of OpenBLAS, and the instructions that they need (OpenBLAS does not ask whether they are there)."""


def output(code, **variables):
    """What a fresh Python prints last, as JSON, as if on another processor."""
    environment = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES")}
    environment |= variables | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *code], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{variables}: {done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


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
}))
"""
"""Vector instructions that the processor has, those that loops of NumPy are written for, bits of a matrix product."""


def others():
    """Settings of two processors that this one can stand for: the oldest kernel and the fewest loops, and another."""
    here = output(["-c", PROBE])
    kernels = [{"OPENBLAS_CORETYPE": kernel} for kernel, needs in KERNELS.items() if needs in here["has"]]
    oldest = kernels[0] | {"NPY_DISABLE_CPU_FEATURES": " ".join(here["loops"])}
    there = output(["-c", PROBE], **oldest)
    assert "AVX2" not in here["has"] or all(here[name] != there[name] for name in ("product", "loops"))
    return [oldest, kernels[-1]]


def test_every_processor_gives_the_same_bytes():
    expected = output([str(SCRIPT)])
    assert len(expected) >= 40
    for variables in others():
        found = output([str(SCRIPT)], **variables)
        differing = [name for name in expected if found[name] != expected[name]]
        assert not differing, f"{variables}: {differing}"
