"""What happens to each job between two assignments."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allocator.mechanism.placement.roster import NOT_RUNNING, Roster, runs_as
from allocator.protocol.assignment import Assignment
from allocator.protocol.transition import transition

_SETS = ("start", "stop", "move", "resize", "keep")


def _by_set(change):
    return {name: getattr(change, name).tolist() for name in _SETS}


def _only(**sets):
    return {name: sets.get(name, []) for name in _SETS}


def test_another_partner_alone_changes_nothing():
    last = Assignment.of([1, 2, 3], pool=[0, 0, 0], gpus=[1, 1, 1], partner=[2, 1, -1])
    after = Assignment.of([1, 3, 2], pool=[0, 0, 0], gpus=[1, 1, 1], partner=[3, 1, -1])
    assert _by_set(transition(last, after)) == _only(keep=[1, 2, 3])
    assert _by_set(transition(last, after, moved=[2])) == _only(move=[2], keep=[1, 3])


@st.composite
def _assignments(draw):
    jobs = draw(st.lists(st.integers(0, 12), unique=True, max_size=10))
    column = st.lists(st.integers(0, 2), min_size=len(jobs), max_size=len(jobs))
    return Assignment.of(jobs, draw(column), np.array(draw(column), dtype=np.int64) + 1)


@given(last=_assignments(), after=_assignments(), moved=st.sets(st.integers(0, 12)))
def test_each_job_is_in_the_one_set_that_says_what_happens_to_it(last, after, moved):
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
def test_the_roster_finds_the_same_one_assignment_after_the_other(assignments, looks):
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
