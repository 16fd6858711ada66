"""What happens to each job between two assignments."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allocator.mechanism.placement.roster import NOT_RUNNING, Roster, runs_as
from allocator.protocol.assignment import Assignment
from allocator.protocol.transition import Transition, transition

_SETS = ("start", "stop", "move", "resize", "keep")


def _by_set(change: Transition) -> dict[str, list[int]]:
    return {name: getattr(change, name).tolist() for name in _SETS}


def _only(**sets: list[int]) -> dict[str, list[int]]:
    return {name: sets.get(name, []) for name in _SETS}


def test_every_kind_of_change() -> None:
    last = Assignment.of([9, 2, 3, 4, 6], pool=[0, 0, 1, 1, 0], gpus=[1, 2, 1, 4, 1])
    after = Assignment.of([5, 4, 3, 2, 6], pool=[1, 1, 0, 0, 0], gpus=[1, 2, 1, 2, 1])
    expected = _only(start=[5], stop=[9], move=[3, 6], resize=[4], keep=[2])
    assert _by_set(transition(last, after, moved=[6])) == expected


def test_another_pool_is_a_move_whatever_the_number_of_gpus() -> None:
    last = Assignment.of([1, 2], pool=[0, 0], gpus=[2, 2])
    after = Assignment.of([1, 2], pool=[1, 1], gpus=[4, 2])
    assert _by_set(transition(last, after)) == _only(move=[1, 2])


def test_another_number_of_gpus_of_the_pool_is_a_resize_whatever_gpus_they_are() -> None:
    last = Assignment.of([1], pool=[0], gpus=[2])
    after = Assignment.of([1], pool=[0], gpus=[1])
    assert _by_set(transition(last, after, moved=[1])) == _only(resize=[1])


def test_another_partner_alone_changes_nothing() -> None:
    last = Assignment.of([1, 2, 3], pool=[0, 0, 0], gpus=[1, 1, 1], partner=[2, 1, -1])
    after = Assignment.of([1, 3, 2], pool=[0, 0, 0], gpus=[1, 1, 1], partner=[3, 1, -1])
    assert _by_set(transition(last, after)) == _only(keep=[1, 2, 3])
    assert _by_set(transition(last, after, moved=[2])) == _only(move=[2], keep=[1, 3])


def test_ids_that_do_not_go_on_are_no_moves() -> None:
    last = Assignment.of([1, 2], pool=[0, 0], gpus=[1, 1])
    after = Assignment.of([2, 3], pool=[0, 0], gpus=[1, 1])
    assert _by_set(transition(last, after, moved=[1, 3, 7])) == _only(start=[3], stop=[1], keep=[2])


def test_from_and_to_nobody() -> None:
    some = Assignment.of([4, 1], pool=[0, 1], gpus=[1, 2])
    nobody = Assignment.none()
    assert _by_set(transition(nobody, some)) == _only(start=[1, 4])
    assert _by_set(transition(some, nobody)) == _only(stop=[1, 4])
    assert _by_set(transition(nobody, nobody, moved=[1])) == _only()
    assert _by_set(transition(some, some)) == _only(keep=[1, 4])


@st.composite
def _assignments(draw: st.DrawFn) -> Assignment:
    jobs = draw(st.lists(st.integers(0, 12), unique=True, max_size=10))
    column = st.lists(st.integers(0, 2), min_size=len(jobs), max_size=len(jobs))
    return Assignment.of(jobs, draw(column), np.array(draw(column), dtype=np.int64) + 1)


@given(last=_assignments(), after=_assignments(), moved=st.sets(st.integers(0, 12)))
def test_each_job_is_in_the_one_set_that_says_what_happens_to_it(
    last: Assignment, after: Assignment, moved: set[int]
) -> None:
    change = transition(last, after, moved=sorted(moved, reverse=True))
    old, new = (
        {job: (pool, gpus) for job, pool, gpus in zip(a.jobs.tolist(), a.pool.tolist(), a.gpus.tolist(), strict=True)}
        for a in (last, after)
    )
    expected = _only(stop=sorted(old.keys() - new.keys()))
    for job in sorted(new):
        if job not in old:
            kind = "start"
        elif new[job][0] != old[job][0]:
            kind = "move"
        elif new[job][1] != old[job][1]:
            kind = "resize"
        else:
            kind = "move" if job in moved else "keep"
        expected[kind] = [*expected[kind], job]
    assert _by_set(change) == expected
    assert all(getattr(change, name).dtype == np.int64 for name in _SETS)
    back = _by_set(transition(after, last, moved=sorted(moved)))
    assert back == expected | {"start": expected["stop"], "stop": expected["start"]}


@given(assignments=st.lists(_assignments(), max_size=8), looks=st.lists(st.booleans(), min_size=8, max_size=8))
def test_the_roster_finds_the_same_one_assignment_after_the_other(
    assignments: list[Assignment], looks: list[bool]
) -> None:
    roster, last = Roster(), Assignment.none()
    for after, only_looked_at in zip(assignments, looks, strict=False):
        change, expected = roster.change_to(after), transition(last, after)
        assert change is not None or not expected.changes
        if change is None:
            continue
        found = change.transition(expected.rows)
        assert _by_set(found) == _by_set(expected)
        assert found.rows.tolist() == expected.rows.tolist() == change.rows.tolist()
        was = {job: (pool, gpus, -1) for job, pool, gpus in zip(last.jobs.tolist(), last.pool, last.gpus, strict=True)}
        began_as = [None if code == NOT_RUNNING else runs_as(code) for code in change.before.tolist()]
        assert began_as == [was.get(job) for job in after.jobs[change.rows].tolist()]
        assert [roster.row_of(job) for job in after.jobs.tolist()] == list(range(len(after)))
        if not only_looked_at:
            roster.accept(change)
            last = after
