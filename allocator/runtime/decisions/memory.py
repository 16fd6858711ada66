"""What a policy remembers between two lives of the service: promises, and time that is owed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from math import inf
from pathlib import Path
from typing import Any

from allocator.checkpoint.state_file import StateFile
from allocator.runtime.decisions.world import World
from throughputs import InputError

_QUICK = 0.05
_SHARE_OF_SAVING = 20.0
"""The memory is written after each decision where that takes less than so many seconds; otherwise not before so many
times as long as it took have passed."""


class Memory:
    """A file that holds the last state of a world.

    Parameters
    ----------
    path : of the file. clock : of the service, seconds.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._file, self._clock, self._not_before = StateFile(path, 0o600), clock, -inf
        self._closed = False

    def recall(self, world: World, jobs: Collection[str]) -> dict[str, Any] | None:
        """The state, if it is of the policy of `world` and of none but these `jobs`; else None."""
        try:
            saved = self._file.read()
        except InputError:
            # a file that was cut off, or of another version: the journal has all that must not be lost
            return None
        if saved is None or saved.header != world.identity or not isinstance(saved.state, dict):
            return None
        state: dict[str, Any] = saved.state
        return state if all(uuid in jobs for uuid in state.get("jobs", ())) else None

    def write(self, world: World) -> None:
        """Write down what a world has decided by, before anything is done about it; seldom where that takes long."""
        began = self._clock()
        if self._closed or began < self._not_before:
            return
        # a full disk hinders the journal, too, and nothing is done without that
        with contextlib.suppress(InputError):
            self._file.write(world.identity, world.state())
        now = self._clock()
        taken = now - began
        self._not_before = now + (0.0 if taken < _QUICK else _SHARE_OF_SAVING * taken)

    def close(self) -> None:
        """Another policy decides from now on: what comes late is not written."""
        self._closed = True
