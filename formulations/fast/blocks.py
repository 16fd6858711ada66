"""Jobs in blocks: how the compiled interior point lays out a program and its iterate.

A block is a fixed number of jobs, and the arrays of one quantity are its rows: all of a block stays in the processor's
cache while a pass goes over it, and every innermost loop runs over jobs, on vectors. Arrays over types and jobs are
(blocks, M, block); those of the iterate have rows for y and v too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from formulations.fast.compiler import compiled

__all__ = [
    "BLOCK",
    "BUDGET",
    "COUNT",
    "CURVATURE",
    "FLOOR",
    "I11",
    "I12",
    "JOB_ROWS",
    "K12",
    "LOAD",
    "OVER_K22",
    "OVER_R",
    "RP1",
    "RP2",
    "SCALE",
    "SCRATCH_ROWS",
    "SLACK",
    "SLOPE",
    "STATE_ROWS",
    "WEIGHT",
    "Program",
    "State",
    "in_blocks",
    "keep",
    "largest",
    "row_in_blocks",
]

Array = NDArray[np.float64]

BLOCK = 128

# rows of Program.job
SCALE, COUNT, LOAD, SLOPE, FLOOR, BUDGET, WEIGHT, CURVATURE = 0, 1, 2, 3, 4, 5, 6, 7
JOB_ROWS = 8
# rows of State.job
SLACK, OVER_R, K12, OVER_K22, I11, I12, RP1, RP2 = 0, 1, 2, 3, 4, 5, 6, 7
STATE_ROWS = 8
SCRATCH_ROWS = 8


class Program(NamedTuple):
    """The program in blocks; `job` holds what is one number per job."""

    M: int
    K: int
    has_demand: bool
    has_gains: bool
    has_drift: bool
    fixed: bool
    log: bool
    A: Array
    q: Array
    job: Array
    c: Array
    drift: Array
    size_of_capacity: Array


class State(NamedTuple):
    """The iterate, its factors and its last direction."""

    x: Array
    s: Array
    dx: Array
    ds: Array
    over_x: Array
    d: Array
    rd: Array
    job: Array
    z: Array
    p: Array
    dz: Array
    dp: Array
    rp3: Array
    zp: Array
    G: Array
    pivots: NDArray[np.int64]
    rhs: Array
    scratch: Array


@compiled
def in_blocks(source: Array, target: Array) -> None:
    """Copy (rows, K) into (blocks, rows, block)."""
    rows, K = source.shape
    for block in range(target.shape[0]):
        first = block * BLOCK
        b = min(BLOCK, K - first)
        for j in range(rows):
            for i in range(b):
                target[block, j, i] = source[j, first + i]


@compiled
def row_in_blocks(source: Array, target: Array, row: int) -> None:
    """Copy (K,) into one row of (blocks, rows, block)."""
    for k in range(source.size):
        target[k // BLOCK, row, k % BLOCK] = source[k]


@compiled
def keep(program: Program, state: State, shares: Array, multipliers: Array, prices: Array) -> None:
    """Copy the iterate to where the caller finds it."""
    M, K = program.M, program.K
    for block in range(state.x.shape[0]):
        first = block * BLOCK
        b = min(BLOCK, K - first)
        X, demand, weight = state.x[block], state.s[block, M + 1], program.job[block, WEIGHT]
        for j in range(M):
            for i in range(b):
                shares[j, first + i] = X[j, i]
        for i in range(b):
            multipliers[first + i] = demand[i] * weight[i]
    for j in range(M):
        prices[j] = state.p[j]


@compiled
def largest(row: Array, b: int) -> float:
    """Largest of the first `b`; comparisons skip NaN."""
    most: float = row[0]
    for i in range(1, b):
        if row[i] > most:
            most = row[i]
    return most
