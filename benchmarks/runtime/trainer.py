"""A trainer of known speed: ``trainer.py --steps 200 --rates v100=40,k80=10 --gangs 1=1,2=1.8 --load 0.2 --save 0.1``.

It does nothing but wait, by the clock, so that many of them on one machine do not slow each other down. Its speed is
that of the accelerator type that its lease names, times that of a gang; loading and saving take known times. Without a
lease it trains on ``--gpus`` of the first type.
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
    parser.add_argument("--rates", required=True, help="steps/s of one GPU by accelerator type: v100=40,k80=10")
    parser.add_argument("--gangs", required=True, help="times that speed, by number of GPUs: 1=1,2=1.8")
    parser.add_argument("--gpus", type=int, default=1, help="without a lease")
    parser.add_argument("--load", type=float, default=0.0, help="seconds before the first step")
    parser.add_argument("--save", type=float, default=0.0, help="seconds that a checkpoint takes")
    chosen = parser.parse_args()
    rates, gangs = _figures(chosen.rates), _figures(chosen.gangs)
    lease = Lease(total_steps=chosen.steps)

    def save(folder: Path) -> None:
        time.sleep(chosen.save)
        (folder / "state").write_text(str(lease.steps))

    lease.restore(lambda folder: (folder / "state").read_text())
    time.sleep(chosen.load)
    grant = _grant() or Grant("", 0, gpus=chosen.gpus, accelerator=next(iter(rates)))
    for _ in lease(_beat(1.0 / (rates[grant.accelerator] * gangs[str(grant.gpus)]))):
        lease.checkpoint_if_ending(save)


def _figures(text: str) -> dict[str, float]:
    return {name: float(figure) for name, _, figure in (part.partition("=") for part in text.split(","))}


def _grant() -> Grant | None:
    folder = os.environ.get(CHECKPOINTS)
    return read_file(Path(folder).parent / LEASE_FILE, Grant) if folder else None


def _beat(seconds: float) -> Iterator[int]:
    """One step after another, each through when its time has come: what one is late the next makes good."""
    began = time.monotonic()
    for step in itertools.count(1):
        time.sleep(max(began + step * seconds - time.monotonic(), 0.0))
        yield step


if __name__ == "__main__":
    main()
