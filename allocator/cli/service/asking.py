"""Questions to a service that may have been stopped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from allocator.runtime.door.client import AbsentError, Client, granted, whole_status
from allocator.runtime.door.words import span


def asked_or_read(state: Path, what: str, **fields: Any) -> dict[str, Any]:
    """The answer of a service to a question that changes nothing; where none runs, from its journal, and said so.

    Raises
    ------
    NoServiceError
        None answers, and there is no journal.
    RefusedError, ServiceError
        See `Client.ask`.
    """

    def whole(ask: Callable[..., dict[str, Any]]) -> dict[str, Any]:
        return whole_status(ask, **fields) if what == "status" else ask(what, **fields)

    try:
        return whole(Client(state).ask)
    except AbsentError:
        if not (state / "journal.sqlite").is_file():
            raise
    # the policies take long to load, and a service that runs is asked without them
    stopped = import_module("allocator.runtime.door.stopped").StoppedService(state)
    answer = whole(lambda do, **more: granted(stopped.answer({"do": do, **more}), state))
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stopped.last_at))
    ago = span(max(time.time() - stopped.last_at, 0.0))
    last = f"it {'ended' if stopped.in_order else 'last wrote'} {ago} ago, {stamp}"
    print(
        f"no service runs on {state}: this is from its journal; {last}; start it again with "
        f"allocator serve --state {state}",
        file=sys.stderr,
    )
    return answer
