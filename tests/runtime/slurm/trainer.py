"""A job that knows nothing of leases: it counts, saves on SIGTERM and at its end, and writes down every step."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


def main(steps: int, ending: str) -> int:
    folder = Path(os.environ["ALLOCATOR_CHECKPOINT_DIR"])
    saved = folder / "steps"
    step = int(saved.read_text()) if saved.exists() else 0
    told = []
    if ending == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    rank, node = os.environ.get("RANK", "0"), os.environ["SLURMD_NODENAME"]
    with (folder.parent / f"trace.{rank}").open("a", buffering=1) as trace:
        while step < steps and not told:
            step += 1
            trace.write(f"{os.environ['ALLOCATOR_LEASE_EPOCH']} {node} {step} {time.time()}\n")
            time.sleep(0.02)
    if ending == "slow":
        time.sleep(2.0)
    if rank == "0":
        saved.write_text(str(step))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
