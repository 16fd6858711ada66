"""Errors in policies of other packages, shown as their authors need them: where it is in their file, and why."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from types import TracebackType

from allocator.protocol.policy import Policy

_OURS = (__name__.partition(".")[0], "formulations", "throughputs")


def fault_of(error: BaseException, *policies: type[Policy]) -> BaseException | None:
    """The error with those lines alone that lie outside this package, from the code of the policies on, or None."""
    modules = {each.__module__ for policy in policies for each in policy.__mro__ if not _is_ours(each.__module__)}
    own = _without_ours(error.__traceback__, modules - {"abc", "builtins"})
    return None if own is None else error.with_traceback(own)


def told(error: BaseException, policies: Iterable[type[Policy]]) -> str:
    """The traceback as text; of an error in the code of a policy without the lines of this package."""
    return "".join(traceback.format_exception(fault_of(error, *policies) or error))


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in _OURS


def _without_ours(found: TracebackType | None, modules: set[str]) -> TracebackType | None:
    """The entries that are none of ours, from the first in one of the modules on; None where there is no such entry."""
    entries: list[TracebackType] = []
    while found is not None:
        name = str(found.tb_frame.f_globals.get("__name__"))
        if name in modules or (entries and not _is_ours(name)):
            entries.append(found)
        found = found.tb_next
    kept = None
    for entry in reversed(entries):
        kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept
