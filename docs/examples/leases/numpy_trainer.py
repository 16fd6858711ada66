"""Linear regression by stochastic gradients in NumPy; the lines of the lease are marked.

python numpy_trainer.py --steps 2000 --out weights.npy
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from allocator.lease import Lease  # lease

FEATURES, BATCH = 8, 32
TRUTH = np.linspace(-1.0, 1.0, FEATURES)


def batches(step: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Features and targets of one step after the other; those of a step are the same in every start."""
    while True:
        rng = np.random.default_rng([7, step])
        features = rng.normal(size=(BATCH, FEATURES))
        yield features, features @ TRUTH + 0.01 * rng.normal(size=BATCH)
        step += 1


def main() -> None:
    """Train, or go on training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--step-seconds", type=float, default=0.0, help="that a step takes besides the arithmetic")
    parser.add_argument("--out", type=Path, default=Path("weights.npy"))
    chosen = parser.parse_args()
    weights = np.zeros(FEATURES)

    def save(folder: Path) -> None:
        np.save(folder / "weights.npy", weights)

    def load(folder: Path) -> None:
        weights[:] = np.load(folder / "weights.npy")

    lease = Lease(chosen.steps)  # lease
    lease.restore(load)  # lease
    for features, targets in lease(batches(lease.steps)):  # lease
        weights -= 0.05 * features.T @ (features @ weights - targets) / BATCH
        time.sleep(chosen.step_seconds)
        lease.checkpoint_if_ending(save)  # lease
    if not lease.has_ended:  # lease
        np.save(chosen.out, weights)
    print(f"{lease.steps} steps, error {np.abs(weights - TRUTH).max():.4f}")


if __name__ == "__main__":
    main()
