"""CPU time of a call: medians, as machines are noisy."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any


def cpu_seconds(call: Callable[[], Any], repetitions: int) -> float:
    """Median CPU time of `call` in seconds, after one run that is not counted."""
    call()
    times = []
    for _ in range(repetitions):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return statistics.median(times)
