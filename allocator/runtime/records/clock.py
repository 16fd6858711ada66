"""The clock of a service: seconds since it was first started, which never jump."""

from __future__ import annotations

import time


class Clock:
    """Counts on from where it was, by the monotonic clock.

    Time that passes while no service runs counts as far as the wall clock says so; a wall clock that was set back or
    far ahead meanwhile cannot undo what has happened.

    Parameters
    ----------
    last : what the clock of the service last said, seconds; 0 for a new one.
    since : when that was, seconds since 1970; 0: not known.
    """

    def __init__(self, last: float = 0.0, since: float = 0.0) -> None:
        away = max(time.time() - since, 0.0) if since else 0.0
        self._offset = last + (away if away < _LONGEST_ABSENCE else 0.0) - time.monotonic()

    def __call__(self) -> float:
        """Seconds."""
        return self._offset + time.monotonic()


_LONGEST_ABSENCE = 366 * 86400.0
"""Seconds; a longer absence is taken for a clock that was set."""
