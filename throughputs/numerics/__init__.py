"""Arithmetic whose results are the same bits on every x86-64 processor.

What NumPy adds, multiplies, divides and takes roots of is rounded as IEEE 754 says, and its sums have one order
whatever the processor can do. Two things are not so: products of matrices and LAPACK, where OpenBLAS picks a kernel,
and with it an order of sums, for the processor; and logarithms, exponentials and powers, which NumPy and the C library
have in several versions that differ in the last digit. Everything between the input of a decision and its result uses
the functions of this package in their place.

- `dot`, `matmul`, `einsum`: products of vectors and matrices, as sums of one order.
- `quotient`: division where it is possible.
- `exp`, `log`, `log2`, `power`, `power_of_ten`: from additions, multiplications, divisions and exact scaling by powers
  of two.
- `interval_means`: means over bins of pulses.
- `slot_begin`, `slot_end`: borders of slots on a clock.
- `tie_order`: the order of labels by which ties are broken.
- `systems`: small dense systems, factors and eigenvalues.

On other architectures sums may be fused with products; results then agree to rounding.
"""

from throughputs.numerics.arithmetic import (
    dot,
    einsum,
    interval_means,
    matmul,
    quotient,
    slot_begin,
    slot_end,
    tie_order,
)
from throughputs.numerics.elementary import exp, log, log2, power, power_of_ten

__all__ = [
    "dot",
    "einsum",
    "exp",
    "interval_means",
    "log",
    "log2",
    "matmul",
    "power",
    "power_of_ten",
    "quotient",
    "slot_begin",
    "slot_end",
    "tie_order",
]
