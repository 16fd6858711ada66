"""Errors in policies of other packages, shown as their authors need them: where it is in their file, and why."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from types import TracebackType

from allocator.protocol.policy import Need, Policy

__all__ = ["fault_of", "told"]

_OURS = (__name__.partition(".")[0], "formulations", "throughputs")

_DECLARED = {
    "colocation": Need.COLOCATION,
    "training": Need.TRAINING,
    "configurations": Need.CONFIGURATIONS,
    "rates_at": Need.CONFIGURATIONS,
    "rates_by_gpus": Need.CONFIGURATIONS,
    "deadline_options": Need.DEADLINE_OPTIONS,
}
"""What of a state is None for policies that do not declare the need."""


def fault_of(error: BaseException, *policies: type[Policy]) -> BaseException | None:
    """The error with those lines alone that lie outside this package, from the code of the policies on.

    With a note on what of the state they read without having declared it. None where none of their code was running.
    """
    modules = {each.__module__ for policy in policies for each in policy.__mro__ if not _is_ours(each.__module__)}
    own = _without_ours(error.__traceback__, modules - {"abc", "builtins"})
    if own is None:
        return None
    if isinstance(error, AttributeError | TypeError) and "NoneType" in str(error):
        for line in _undeclared(own, policies):
            if line not in getattr(error, "__notes__", ()):
                error.add_note(line)
    return error.with_traceback(own)


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


def _undeclared(found: TracebackType | None, policies: Iterable[type[Policy]]) -> Iterable[str]:
    """What the code that failed reads of a state although no policy declares that it needs it."""
    declared = Need.NOTHING
    for policy in policies:
        declared |= policy.needs
    names: dict[str, None] = {}
    while found is not None:
        names |= dict.fromkeys(found.tb_frame.f_code.co_names)
        found = found.tb_next
    for name in names:
        need = _DECLARED.get(name)
        if need is not None and need not in declared:
            yield f"state.{name} is known to policies only that declare it: needs = Need.{need.name} in the class"
