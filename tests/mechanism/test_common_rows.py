"""What an assignment knows of the one that it was made from, and what is found by it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allocator.mechanism.placement.roster import Roster
from allocator.protocol import Assignment
from allocator.protocol.transition import transition

_JOBS = 12


def _rows(jobs: list[int]) -> Assignment:
    ids = np.array(jobs, dtype=np.int64)
    return Assignment.of(ids, ids % 3, 1 + ids % 2)


@st.composite
def _steps(draw: st.DrawFn) -> list[tuple[list[int], list[int]]]:
    """Who stops and who starts, one step after the other."""
    steps, running = [], list[int]()
    for _ in range(draw(st.integers(1, 6))):
        stops = draw(st.lists(st.sampled_from(running), unique=True)) if running else []
        idle = [job for job in range(_JOBS) if job not in running]
        starts = draw(st.lists(st.sampled_from(idle), unique=True)) if idle else []
        running = [job for job in running if job not in stops] + starts
        steps.append((stops, starts))
    return steps


@given(steps=_steps(), names=st.permutations(range(100, 100 + _JOBS)))
def test_common_rows_are_those_of_the_one_before(steps: list[tuple[list[int], list[int]]], names: list[int]) -> None:
    """In positions, with ids in their place, and in the roster: all as if nobody knew."""
    roster, ids = Roster(), np.sort(np.array(names))
    last = Assignment.none().marked()
    for stops, starts in steps:
        by_position = _rows(last.jobs.tolist()).marked(last.take(slice(None)).marked())
        after = by_position.without(np.array(stops, dtype=np.int64)).followed_by(_rows(starts))
        common = after.common_with(by_position)
        assert common is not None
        kept = by_position if common.kept is None else by_position.take(common.kept)
        assert kept.jobs.tolist() == after.jobs[: common.rows].tolist()
        assert common.rows == len(last) - len(stops)
        before = last.marked()
        now = before.without(np.array(stops, dtype=np.int64)).followed_by(_rows(starts))
        change = roster.change_to(now)
        found, expected = None if change is None else change.transition(change.rows), transition(before, now)
        assert (found is None) == (not expected.changes)
        if change is not None and found is not None:
            assert found.start.tolist() == expected.start.tolist()
            assert found.stop.tolist() == expected.stop.tolist()
            assert found.rows.tolist() == expected.rows.tolist()
            roster.accept(change)
        last = now
    named = _rows(last.jobs.tolist()).marked(last.named(ids)).followed_by(Assignment.none())
    assert named.named(ids).jobs.tolist() == ids[last.jobs].tolist()


def test_who_shares_with_somebody_else_is_part_of_a_transition() -> None:
    alone = Assignment.of([1, 2, 3], [0, 0, 0], [2, 2, 2])
    pair = Assignment.of([1, 2, 3], [0, 0, 0], [2, 2, 2], [2, 1, -1])
    roster = Roster()
    for before, after, regroup in ((Assignment.none(), alone, []), (alone, pair, [0, 1]), (pair, alone, [0, 1])):
        assert transition(before, after).regroup.tolist() == regroup
        change = roster.change_to(after)
        assert change is not None
        assert change.transition(transition(before, after).rows).regroup.tolist() == regroup
        roster.accept(change)


def test_a_partner_who_is_gone_leaves_the_other_regrouped() -> None:
    pair = Assignment.of([1, 2], [0, 0], [2, 2], [2, 1])
    left = pair.without(np.array([1]))
    assert left.partner.tolist() == [-1]
    assert transition(pair, left).regroup.tolist() == [0]
