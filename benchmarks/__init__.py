"""Measurements, thin over the public API: ``python -m benchmarks``."""

import os

# CPU time is to be that of one core: threads of the linear algebra library only add to it
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
