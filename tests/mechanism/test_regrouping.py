"""Who shares GPUs with somebody else than before is part of a transition."""

from __future__ import annotations

from allocator.mechanism.placement.roster import Roster
from allocator.protocol import Assignment
from allocator.protocol.decision import transition


def test_who_shares_with_somebody_else_is_part_of_a_transition():
    alone = Assignment.of([1, 2, 3], [0, 0, 0], [2, 2, 2])
    pair = Assignment.of([1, 2, 3], [0, 0, 0], [2, 2, 2], [2, 1, -1])
    roster = Roster()
    for before, after, regroup in ((Assignment.none(), alone, []), (alone, pair, [0, 1]), (pair, alone, [0, 1])):
        assert transition(before, after).regroup.tolist() == regroup
        change = roster.change_to(after)
        assert change.transition(transition(before, after).rows).regroup.tolist() == regroup
        roster.accept(change)
