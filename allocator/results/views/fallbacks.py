"""Decisions that were left to another solver, said in a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allocator.protocol.allocation import Allocation


def fallbacks_told(label: str, decisions: Sequence[Allocation], calls: int) -> str:
    """How many decisions of a run were left to another solver or rule, and why; empty where none was.

    Parameters
    ----------
    label : what the run is called.
    decisions : of the policy.
    calls : how often the policy was asked.
    """
    left = [each for each in decisions if each.fallbacks]
    if not left:
        return ""
    tried = ", ".join(dict.fromkeys(name for each in left for name in each.fallbacks))
    made = Counter(each.solver or each.status for each in left)
    by = ", ".join(f"{solver} ({count})" if len(made) > 1 else solver for solver, count in made.most_common())
    unproven = sum(each.status != "optimal" for each in left)
    proof = "all proven optimal" if not unproven else f"{unproven} of them without a proof"
    return (
        f"{label}: {len(left):,} of {calls:,} decision{'s' * (calls != 1)} left by {tried}, which failed or missed the "
        f"tolerance of the proof, to {by}; {proof}"
    )
