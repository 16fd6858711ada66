"""What happens to each job between two assignments."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.protocol.assignment import Assignment
from allocator.protocol.decision import transition

_SETS = ("start", "stop", "move", "resize", "keep")


def _by_set(change):
    return {name: getattr(change, name).tolist() for name in _SETS}


def _only(**sets):
    return {name: sets.get(name, []) for name in _SETS}


@st.composite
def _assignments(draw):
    jobs = draw(st.lists(st.integers(0, 12), unique=True, max_size=10))
    column = st.lists(st.integers(0, 2), min_size=len(jobs), max_size=len(jobs))
    return Assignment.of(jobs, draw(column), np.array(draw(column), dtype=np.int64) + 1)


@settings(max_examples=40)
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
