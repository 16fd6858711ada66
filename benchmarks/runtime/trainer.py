"""A trainer of known speed: ``trainer.py --steps 200 --rates v100=40,k80=10 --load 0.2 --save 0.1``.

It does nothing but wait, by the clock, so that many of them on one machine do not slow each other down. Its speed is
that of the accelerator type that its lease names, times the efficiency of a gang; loading and saving take known times.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

from allocator.lease import Lease
from allocator.lease.files import CHECKPOINTS, LEASE_FILE, Grant, read_file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True, help="in all")
    parser.add_argument("--rates", required=True, help="steps/s by accelerator type: v100=40,k80=10")
    parser.add_argument("--load", type=float, default=0.0, help="seconds before the first step")
    parser.add_argument("--save", type=float, default=0.0, help="seconds that a checkpoint takes")
    chosen = parser.parse_args()
    rates = {name: float(rate) for name, _, rate in (part.partition("=") for part in chosen.rates.split(","))}
    lease = Lease(total_steps=chosen.steps)

    def save(folder: Path) -> None:
        time.sleep(chosen.save)
        (folder / "state").write_text(str(lease.steps))

    lease.restore(lambda folder: (folder / "state").read_text())
    time.sleep(chosen.load)
    for _ in lease(_beat(1.0 / rates[_accelerator()])):
        lease.checkpoint_if_ending(save)


def _accelerator() -> str:
    grant = read_file(Path(os.environ[CHECKPOINTS]).parent / LEASE_FILE, Grant)
    return "" if grant is None else grant.accelerator


def _beat(seconds: float) -> Iterator[int]:
    """One step after another, each through when its time has come: what one is late the next makes good."""
    began = time.monotonic()
    for step in itertools.count(1):
        time.sleep(max(began + step * seconds - time.monotonic(), 0.0))
        yield step


if __name__ == "__main__":
    main()
