"""Co-location: what jobs keep of their throughput when they share GPUs.

>>> from throughputs.colocation import default_colocation
>>> default_colocation().retained(["CycleGAN"], ["p100"]).shape
(1, 1, 1)
"""

from throughputs.colocation.model import (
    ColocationModel,
    InterferenceModel,
    RetainedFractions,
    default_colocation,
    retained_fractions,
)

__all__ = [
    "ColocationModel",
    "InterferenceModel",
    "RetainedFractions",
    "default_colocation",
    "retained_fractions",
]
