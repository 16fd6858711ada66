"""``python -m formulations.fast``: compile the loops for this machine."""

from __future__ import annotations

import sys
from time import perf_counter

from formulations.fast import prepare
from throughputs import InputError


def main() -> int:
    """Compile, and say where it is noted."""
    started = perf_counter()
    try:
        note = prepare()
    except InputError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"compiled loops are in use from now on ({perf_counter() - started:.1f} s); noted in {note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
