"""The output of a job as it is written: in two files, of which the newer takes the place of the older at times."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_CHUNK = 1 << 16


class LogReader:
    """Reads what is new.

    Parameters
    ----------
    folder : of the job.

    Attributes
    ----------
    found : whether there is any file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self.found = folder, False
        self._file = self._opened("log.1")

    def _opened(self, name: str) -> BinaryIO | None:
        try:
            file = (self._folder / name).open("rb")
        except FileNotFoundError:
            return None
        self.found = True
        return file

    def news(self) -> Iterator[bytes]:
        """What came since the last time."""
        while True:
            yield from self._rest()
            newer = self._opened("log")
            if newer is None:
                return
            if self._file is not None and os.path.sameopenfile(newer.fileno(), self._file.fileno()):
                newer.close()
                return
            # what came after the last look and before the files changed places
            yield from self._rest()
            if self._file is not None:
                self._file.close()
            self._file = newer

    def _rest(self) -> Iterator[bytes]:
        while self._file is not None and (chunk := self._file.read(_CHUNK)):
            yield chunk
