"""Which GPUs a gang gets, in the order of the GPUs and consolidated on servers."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.cluster import Cluster
from allocator.mechanism.placement.placement import Placement
from allocator.mechanism.placement.rounds import RoundPlacement
from allocator.protocol.assignment import Assignment
from allocator.protocol.decision import transition
from throughputs import InputError

RULES = ("in_order", "consolidated", "buddy", "local_search")


def _gangs(jobs, gpus, pool=0):
    return Assignment.of(jobs, [pool] * len(jobs), gpus)


def test_local_search_places_smaller_gangs_first_where_that_leaves_gangs_on_fewer_servers():
    # Servers of 4, 4 and 1. After the gang of 6 (4 and 2 of them) that of 3 would stand on two servers.
    jobs = _gangs([0, 1], [6, 3])
    larger_first = Placement(Cluster({"a": 9}, {"a": 4}), "consolidated").place(jobs)
    assert larger_first == ((0, 1, 2, 3, 4, 5), (6, 7, 8))
    assert Placement(Cluster({"a": 9}, {"a": 4}), "local_search").place(jobs) == ((3, 4, 5, 6, 7, 8), (0, 1, 2))


def test_gangs_go_to_the_first_server_with_most_free_gpus_in_the_order_of_their_rows():
    placement = Placement(Cluster({"a": 12}, {"a": 4}), "most_free")
    # the gang of 6 takes the last server, and 2 of the 3 GPUs that are left on the first
    assert placement.place(_gangs([0, 1, 2], [1, 2, 6])) == ((0,), (4, 5), (1, 2, 8, 9, 10, 11))
    # who stays keeps its GPUs; of two servers with two free GPUs the first is taken, then the other has more
    assert placement.place(_gangs([2, 1, 3, 4], [6, 2, 1, 1])) == ((1, 2, 8, 9, 10, 11), (4, 5), (0,), (6,))


def test_a_growing_job_keeps_its_gpus_where_that_needs_no_more_servers():
    placement = Placement(Cluster({"a": 8}, {"a": 4}), "consolidated")
    placement.place(_gangs([0, 1], [2, 1]))
    # Beside its GPU one is free: it stays for two GPUs, and leaves for the empty server when it needs three.
    assert placement.place(_gangs([0, 1], [2, 2])) == ((0, 1), (2, 3))
    assert placement.place(_gangs([0, 1], [2, 3])) == ((0, 1), (4, 5, 6))
    # No server holds six: it keeps what it has.
    assert placement.place(_gangs([0, 1], [2, 6])) == ((0, 1), (2, 3, 4, 5, 6, 7))
    # One GPU is free on each of the first three servers: three servers either way, so it keeps its own on the fourth.
    placement = Placement(Cluster({"a": 8}, {"a": 2}), "consolidated")
    placement.place(_gangs(range(8), [1] * 8))
    placement.place(_gangs([0, 2, 4, 6, 7], [1] * 5))
    assert placement.place(_gangs([0, 2, 4, 6, 7], [1, 1, 1, 3, 1]))[3] == (1, 3, 6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("impossible", "told"),
    [
        (_gangs([0, 1], [3, 2]), r"\[0, 5\] GPUs|\[5, 0\] GPUs"),
        (_gangs([0, 2], [1, 0]), "0 GPUs of pool 0"),
        (_gangs([0], [1], pool=2), "pool 2"),
        (_gangs([-3], [1]), "-3"),
    ],
)
def test_impossible_assignments_are_refused_and_change_nothing(rule, impossible, told):
    placement = Placement(Cluster({"a": 4, "b": 4}), rule)
    before = placement.place(_gangs([0, 1], [3, 1]))
    with pytest.raises(InputError, match=told):
        placement.place(impossible)
    assert placement.place_changes(_gangs([1, 0], [1, 3])).rows.tolist() == []
    assert placement.place(_gangs([0, 1], [3, 1])) == before


class _RowByRow:
    """Gavel's placement of one pool as a plain statement: rows are sets of jobs, and all rows are walked each time."""

    def __init__(self, first, capacity, per_server, consolidated):
        self.ids, self.per_server, self.consolidated = range(first, first + capacity), per_server, consolidated
        self.held = {}

    def place(self, rows, sizes):
        if self.consolidated:
            self.hand_over(rows)
        gpus = [self.held.get(row, ()) for row in rows]
        if () in gpus:
            self.fill(sizes, gpus)
        self.held = dict(zip(rows, gpus, strict=True))
        return gpus

    def hand_over(self, rows):
        new = [row for row in rows if row not in self.held]
        left = {job: row for row in self.held if row not in rows for job in row}
        for row in new:
            old = next((left[job] for job in row if left.get(job) in self.held), None)
            if old is not None:
                self.held[row] = self.held.pop(old)

    def fill(self, sizes, gpus):
        largest_first = sorted(range(len(gpus)), key=lambda k: -sizes[k])
        if self.consolidated:
            used = {gpu for held in gpus for gpu in held}
            for k in largest_first:
                if not gpus[k]:
                    gpus[k] = self.on_few_servers(used, sizes[k])
                    used.update(gpus[k])
            return
        used = set()
        for size, alike in groupby(largest_first, key=sizes.__getitem__):
            new = []
            for k in alike:
                if gpus[k] and used.isdisjoint(gpus[k]):
                    used.update(gpus[k])
                else:
                    new.append(k)
            for k in new:
                gpus[k] = tuple([gpu for gpu in self.ids if gpu not in used][:size])
                used.update(gpus[k])

    def on_few_servers(self, used, size):
        servers = {}
        for gpu in self.ids:
            if gpu not in used:
                servers.setdefault((gpu - self.ids.start) // self.per_server, []).append(gpu)
        taken = []
        while len(taken) < size:
            need = size - len(taken)
            roomy = [free for free in servers.values() if len(free) >= need]
            free = min(roomy, key=len) if roomy else max(servers.values(), key=len)
            taken += free[:need]
            del free[:need]
        return tuple(sorted(taken))


@st.composite
def _rounds(draw, capacity, resizing=False):
    """Rounds of gangs and pairs of equal gangs that fit into the pools, in any order."""
    jobs = draw(st.integers(2, 14))
    size = st.sampled_from([1, 1, 2, 3, 4, 6])
    sizes = draw(st.lists(size, min_size=jobs, max_size=jobs))
    rounds = []
    for _ in range(draw(st.integers(1, 6))):
        if resizing:
            sizes = [draw(size) if draw(st.integers(0, 3)) == 0 else old for old in sizes]
        rows = []
        left, waiting = list(capacity), draw(st.permutations(range(jobs)))
        for job in waiting[: draw(st.integers(0, jobs))]:
            pool = draw(st.integers(0, len(capacity) - 1)) if draw(st.booleans()) else job % len(capacity)
            if any(job in row[:2] for row in rows) or sizes[job] > left[pool]:
                continue
            left[pool] -= sizes[job]
            alike = [
                o for o in range(jobs) if o != job and sizes[o] == sizes[job] and not any(o in r[:2] for r in rows)
            ]
            partner = draw(st.sampled_from(alike)) if alike and draw(st.booleans()) else -1
            rows.append((*sorted((job, partner)), pool, sizes[job]))
        columns = []
        for low, high, pool, count in rows:
            members = ((high, -1),) if low < 0 else ((low, high), (high, low))
            columns += [(job, pool, count, partner) for job, partner in members]
        rounds.append(Assignment.of(*zip(*columns, strict=True)) if columns else Assignment.none())
    return rounds


_CAPACITY = (9, 3, 14)


@settings(max_examples=40)
@given(rounds=_rounds(_CAPACITY), consolidated=st.booleans(), per_server=st.integers(1, 5))
def test_gpus_are_those_of_the_plain_statement(rounds, consolidated, per_server):
    names = "abc"
    cluster = Cluster(dict(zip(names, _CAPACITY, strict=True)), dict.fromkeys(names, per_server))
    placement = Placement(cluster, "consolidated" if consolidated else "in_order")
    in_rounds = RoundPlacement(cluster, consolidated)
    firsts = cluster.first_gpu.tolist()
    plain = [_RowByRow(f, c, per_server, consolidated) for f, c in zip(firsts, _CAPACITY, strict=True)]
    for assignment in rounds:
        expected = {}
        for j, pool in enumerate(plain):
            chosen = assignment.take(assignment.firsts & (assignment.pool == j))
            rows = [
                tuple(m for m in ids if m >= 0)
                for ids in zip(chosen.jobs.tolist(), chosen.partner.tolist(), strict=True)
            ]
            for row, gpus in zip(rows, pool.place(rows, chosen.gpus.tolist()), strict=True):
                expected |= dict.fromkeys(row, gpus)
        assert placement.place(assignment) == tuple(expected[job] for job in assignment.jobs.tolist())
        rows = assignment.take(np.argsort(assignment.pool, kind="stable"))
        assert in_rounds.place(rows) == tuple(expected[job] for job in rows.jobs.tolist())


@settings(max_examples=40)
@given(
    rounds=_rounds(_CAPACITY, resizing=True),
    rule=st.sampled_from(RULES),
    per_server=st.integers(1, 8),
    cut=st.integers(0, 5),
)
def test_gpus_are_disjoint_of_the_pool_and_kept(rounds, rule, per_server, cut):
    names = "abc"
    cluster = Cluster(dict(zip(names, _CAPACITY, strict=True)), dict.fromkeys(names, per_server))
    placement = Placement(cluster, rule)
    pool_of = np.repeat(np.arange(3), _CAPACITY)
    before = {}
    was = {}
    last = Assignment.none()
    for n, assignment in enumerate(rounds):
        if n == cut:
            restored = Placement(cluster, rule)
            restored.adopt(last, [placement.gpus_of(job) for job in last.jobs.tolist()])
            assert restored.place(assignment) == placement.place(assignment)
            placement = restored
        changed = placement.place_changes(assignment) if n != cut else None
        gpus = dict(zip(assignment.jobs.tolist(), placement.place(assignment), strict=True))
        runs_as = zip(assignment.pool.tolist(), assignment.gpus.tolist(), assignment.partner.tolist(), strict=True)
        now = dict(zip(assignment.jobs.tolist(), runs_as, strict=True))
        flat = [gpu for row in np.flatnonzero(assignment.firsts) for gpu in gpus[int(assignment.jobs[row])]]
        assert len(set(flat)) == len(flat)
        for job, (pool, size, partner) in now.items():
            assert len(set(gpus[job])) == size
            assert list(gpus[job]) == sorted(gpus[job])
            assert (pool_of[list(gpus[job])] == pool).all()
            assert partner < 0 or gpus[partner] is gpus[job]
            if rule == "consolidated" and was.get(job) == now[job]:
                assert gpus[job] == before[job]
            if rule == "consolidated" and partner < 0 and job in was and was[job][0] == pool and was[job][2] < 0:
                assert was[job][1] < size or set(gpus[job]) <= set(before[job])
        other = [job for job in now if gpus[job] != before.get(job)]
        here = [job for job in other if job in was and was[job][:2] == now[job][:2]]
        if changed is not None:
            assert assignment.jobs[changed.rows].tolist() == other
            told_of = transition(last, assignment, np.array(sorted(here), dtype=np.int64))
            for name in ("start", "stop", "move", "resize"):
                assert getattr(changed, name).tolist() == getattr(told_of, name).tolist(), name
        before, was, last = gpus, now, assignment
