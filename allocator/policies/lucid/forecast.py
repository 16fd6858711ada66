"""What is predicted to arrive: jobs and GPUs by interval of time."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from throughputs import InputError

# Intervals that are looked ahead.
_AHEAD = 5


@dataclass(frozen=True)
class ArrivalForecast:
    """Predicted arrivals by interval.

    Attributes
    ----------
    begins : (B,) when each interval begins, seconds, ascending.
    jobs, gpus : (B,) jobs that arrive in it, and the GPUs that they ask for together.

    >>> forecast = ArrivalForecast((0.0, 600.0, 1200.0), (3.0, 1.0, 5.0), (8.0, 1.0, 30.0))
    >>> forecast.jobs_ahead(0.0), forecast.gpus_ahead(600.0), forecast.jobs_ahead(1200.0)
    (3.0, 30.0, None)

    Raises
    ------
    InputError
        Columns of different length, or intervals that do not ascend.
    """

    begins: tuple[float, ...]
    jobs: tuple[float, ...]
    gpus: tuple[float, ...]

    def __post_init__(self) -> None:
        n = len(self.begins)
        for name in ("jobs", "gpus"):
            if len(getattr(self, name)) != n:
                found = f"{len(getattr(self, name))} intervals"
                raise InputError("forecast of arrivals", field=name, found=found, expected=f"{n} intervals")
        if (np.diff(self.begins) <= 0).any():
            raise InputError("forecast of arrivals", field="begins", found="other", expected="ascending seconds")

    def jobs_ahead(self, clock: float) -> float | None:
        """Mean of the jobs in the next five intervals after `clock` (seconds), or as many as there are; None: none."""
        return self._ahead(self.jobs, clock)

    def gpus_ahead(self, clock: float) -> float | None:
        """The same of the GPUs."""
        return self._ahead(self.gpus, clock)

    def _ahead(self, column: tuple[float, ...], clock: float) -> float | None:
        first = bisect_right(self.begins, clock)
        ahead = column[first : first + _AHEAD]
        return sum(ahead) / len(ahead) if ahead else None
