"""Placement of jobs that share GPUs in fractions.

A GPU that has such jobs is held by a stand-in: a gang of one GPU under the same placement rule as the gangs of those
who have their GPUs whole. Which fractions are together on one is settled before: best fit, in the order of the rows
(`allocator.fractions.SharedGpus`). So every rule places fractions, and where a rule moves a stand-in, all who are on
its GPU move with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from allocator.cluster import Cluster
from allocator.fractions import WHOLE, FreeFractions, SharedGpus
from allocator.mechanism.placement.gangs import Consolidated, Gpus, Places, rule_of_others
from allocator.mechanism.placement.placement import Placement
from allocator.mechanism.placement.roster import NOT_RUNNING, Roster
from allocator.protocol.assignment import Assignment, among_ids
from allocator.protocol.decision import Transition
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Need, Policy
from allocator.room import Held, Room
from throughputs import InputError
from throughputs.arrays import Ints

# Where a job with a fraction is: its pool, the number of its GPU among those shared there, and its thousandths.
_Part = tuple[int, int, int]

_ALONE = -1


class FractionPlacement(Places):
    """GPU ids for the jobs of one assignment after the other, fractions of at most one in sum on one GPU.

    Jobs that go on keep what they have, unless the rule moves gangs, or others find no room: what is free in sum may
    lie in parts on several GPUs. Then those who share GPUs are packed anew, in the order of the rows, and who finds no
    room even so is left out.

    Parameters
    ----------
    cluster : the GPUs and their servers.
    rule : as for `Placement`.
    """

    def __init__(self, cluster: Cluster, rule: str) -> None:
        self._cluster, self._rule = cluster, rule
        self._pools = len(cluster.capacity)
        self._clear()

    @classmethod
    def under(cls, policy: Policy, cluster: Cluster, rule: str, jobs: JobTable) -> FractionPlacement:
        """For a run of `jobs` some of which ask for fractions.

        Raises
        ------
        InputError
            Fractions cannot be carried out under this policy or placement, or a job asks for fractions of several GPUs.
        """
        hindrance = (
            f"policy {policy.name} gives out whole GPUs"
            if Need.FRACTIONS not in policy.needs
            else f"GPUs are given out whole with placement {rule}"
            if not _places_fractions(rule)
            else ""
        )
        assert jobs.fractions is not None
        jobs.fractions.check(jobs.scale_factor, hindrance)
        return cls(cluster, rule)

    def _clear(self) -> None:
        self._gangs = Placement(self._cluster, self._rule)
        self._roster = Roster()
        self._shared = [SharedGpus() for _ in range(self._pools)]
        self._part: dict[int, _Part] = {}
        # By stand-in the jobs on its GPU.
        self._together: dict[int, set[int]] = {}
        # By job the gang that it is, or that it is on.
        self._gang: Ints = np.empty(0, dtype=np.int64)

    def _stand_in(self, pool: int, number: int) -> int:
        """The id under which a GPU that is shared is placed; ids of jobs are doubled there."""
        return 2 * (number * self._pools + pool) + 1

    def place(self, assignment: Assignment) -> tuple[Gpus, ...]:
        """GPU ids, ascending, for every row of `assignment`.

        Raises InputError where a row finds no room.
        """
        placed = self.place_changes(assignment).next
        if len(placed) < len(assignment):
            out = assignment.jobs[~among_ids(assignment.jobs, np.sort(placed.jobs))].tolist()
            raise InputError("placement", field="assignment", found=f"no room for jobs {out}", expected="room for all")
        return tuple(map(self.gpus_of, placed.jobs.tolist()))

    def place_changes(self, assignment: Assignment) -> Transition:
        """What changes; `Transition.next` is the assignment without those who find no room."""
        if assignment.shares_gpus:
            raise InputError("placement", field="assignment", found="pairs of jobs", expected="jobs without partners")
        assignment = _with_fractions(assignment)
        change = self._roster.change_to(assignment)
        if change is None:
            return Transition.nothing(assignment)
        others = change.rows[change.before != NOT_RUNNING]
        leaving = change.stopped.tolist() + assignment.jobs[others].tolist()
        where: dict[int, Gpus] = {}
        tried, new, waits = self._try(assignment.take(change.rows), leaving)
        if waits:
            rows, staying = self._sharing_beside(assignment, change.rows, waits)
            anew = self._try(assignment.take(rows), leaving + staying)
            if len(anew[2]) < len(waits):
                where = {job: self.gpus_of(job) for job in staying}
                leaving, (tried, new, waits) = leaving + staying, anew
        if waits:
            assignment = assignment.without(np.array(waits, dtype=np.int64))
        for job in leaving:
            self._forget(job)
        self._make_room(assignment.jobs)
        for job, part in new.items():
            self._note(job, part)
        for shared, free in zip(self._shared, tried, strict=True):
            shared.become(free.shared)
        return self._settle(assignment, where)

    def _try(self, rows: Assignment, leaving: Sequence[int]) -> tuple[list[FreeFractions], dict[int, _Part], list[int]]:
        """What is free once those who leave have, and these rows are there; and what `_fit` tells of them."""
        tried = [self.free(pool) for pool in range(self._pools)]
        for job in leaving:
            held = self._held(job)
            tried[held.pool].give_back(held)
        return tried, *self._fit(rows, tried)

    def _sharing_beside(self, assignment: Assignment, changed: Ints, waits: Sequence[int]) -> tuple[Ints, list[int]]:
        """The rows that change, with those of jobs who share GPUs of the pools where some find no room; and these jobs.

        A policy that preempts chooses as if GPUs were empty. Packed in the order of its rows, all whom it chose have
        room, where they need not have it beside those who stay where they are.
        """
        pools = np.unique(assignment.pool[among_ids(assignment.jobs, np.sort(np.array(waits, dtype=np.int64)))])
        moves = np.isin(assignment.pool, pools) & np.isin(assignment.jobs, list(self._part))
        moves[changed] = False
        rows = np.union1d(changed, moves.nonzero()[0])
        return rows, assignment.jobs[moves].tolist()

    def _fit(self, rows: Assignment, tried: Sequence[FreeFractions]) -> tuple[dict[int, _Part], list[int]]:
        """Where those of the `rows` that have fractions go, by job, and the jobs that find no room."""
        assert rows.thousandths is not None
        new: dict[int, _Part] = {}
        waits: list[int] = []
        columns = (rows.jobs, rows.pool, rows.gpus, rows.thousandths)
        for job, pool, gpus, thousandths in zip(*(column.tolist() for column in columns), strict=True):
            if thousandths == WHOLE:
                if not tried[pool].take(gpus):
                    waits.append(job)
                continue
            number = tried[pool].number_for(thousandths)
            if number < 0:
                waits.append(job)
            else:
                new[job] = pool, number, thousandths
        return new, waits

    def _settle(self, assignment: Assignment, where: Mapping[int, Gpus]) -> Transition:
        """Place gangs and stand-ins for an assignment of which all have room; answers what changes.

        Jobs that go on and were packed anew (`where` they had their GPUs) have not moved if they have the same again.
        """
        gangs = self._gangs_of(assignment)
        moved = self._gangs.place_changes(gangs)
        if len(moved.next) < len(gangs):
            # A rule under which gangs wait lets those go on who are resized, whatever that leaves for others.
            out = gangs.jobs[~among_ids(gangs.jobs, np.sort(moved.next.jobs))].tolist()
            lost = [job for gang in out for job in self._jobs_of(gang)]
            assignment = assignment.without(np.array(lost, dtype=np.int64))
            for job in lost:
                self._give_up(job)
        change = self._roster.change_to(assignment)
        if change is None:
            return Transition.nothing(assignment)
        self._roster.accept(change)
        changed = {job for gang in moved.next.jobs[moved.rows].tolist() for job in self._jobs_of(gang)}
        changed.update(job for job in assignment.jobs[change.rows].tolist() if job in self._part)
        changed -= {job for job, gpus in where.items() if job in self._part and self.gpus_of(job) == gpus}
        return change.transition(np.array(sorted(map(self._roster.row_of, changed)), dtype=np.int64))

    def _gangs_of(self, assignment: Assignment) -> Assignment:
        """The gangs to be placed: jobs that have their GPUs whole, and stand-ins, each where its first job stands."""
        gangs = self._gang.take(assignment.jobs)
        rows = np.sort(np.unique(gangs, return_index=True)[1])
        return Assignment.of(gangs[rows], assignment.pool[rows], assignment.gpus[rows])

    def _jobs_of(self, gang: int) -> list[int]:
        """The jobs that a gang is, or that are on it."""
        return sorted(self._together[gang]) if gang % 2 else [gang // 2]

    def _make_room(self, jobs: Ints) -> None:
        """Let the table by job hold all of `jobs`."""
        known, needed = len(self._gang), int(jobs.max(initial=-1)) + 1
        if needed > known:
            self._gang = np.concatenate([self._gang, 2 * np.arange(known, max(needed, 2 * known))])

    def _note(self, job: int, part: _Part) -> None:
        stand_in = self._stand_in(*part[:2])
        self._part[job], self._gang[job] = part, stand_in
        self._together.setdefault(stand_in, set()).add(job)

    def _forget(self, job: int) -> None:
        if self._part.pop(job, None) is not None:
            stand_in = int(self._gang[job])
            self._gang[job] = 2 * job
            self._together[stand_in].discard(job)
            if not self._together[stand_in]:
                del self._together[stand_in]

    def _give_up(self, job: int) -> None:
        """A job that was to be placed is not."""
        if job in self._part:
            pool, number, thousandths = self._part[job]
            self._shared[pool].leave(number, thousandths)
        self._forget(job)

    def free(self, pool: int) -> FreeFractions:
        """What is free of a pool, to be tried on."""
        return FreeFractions(self._gangs.free_gpus(pool), self._shared[pool].copy())

    def room(self, active: Ints, gone: Sequence[int]) -> Room:
        """What is free when those who are `gone` (ids) have given back what they had.

        Jobs of the room are positions in `active` (ids).
        """
        there = among_ids(np.array(gone, dtype=np.int64), np.sort(self._roster.last.jobs))
        left = [self._held(job) for job, ran in zip(gone, there.tolist(), strict=True) if ran]

        def free(pool: int) -> FreeFractions:
            pools = self.free(pool)
            for held in left:
                if held.pool == pool:
                    pools.give_back(held)
            return pools

        return Room(free, lambda position: self._held(int(active[position])))

    def _held(self, job: int) -> Held:
        """What a job of the last assignment has."""
        gang = int(self._gang[job])
        pool, number, thousandths = self._part.get(job, (self._gangs.pool_of(gang), _ALONE, WHOLE))
        return Held(pool, self._gangs.gpus_of(gang), number, thousandths)

    def gpus_of(self, job: int) -> Gpus:
        """GPU ids, ascending, of a job of the last assignment; KeyError for others."""
        return self._gangs.gpus_of(int(self._gang[job]) if job < len(self._gang) else 2 * job)

    def state(self) -> dict[str, Any]:
        """Numbers of the GPUs that are shared, row by row: which one a fraction gets hangs on them."""
        jobs = self._roster.last.jobs.tolist()
        return {"numbers": [self._part[job][1] if job in self._part else _ALONE for job in jobs]}

    def adopt(self, running: Assignment, gpus: Sequence[Gpus]) -> None:
        """See Places."""
        running = _with_fractions(running)
        known: list[dict[Gpus, int]] = [{} for _ in range(self._pools)]
        assert running.thousandths is not None
        rows = zip(running.pool.tolist(), running.thousandths.tolist(), gpus, strict=True)
        numbers = [
            _ALONE if part == WHOLE else known[pool].setdefault(ids, len(known[pool])) for pool, part, ids in rows
        ]
        self.restore(running, gpus, {"numbers": numbers})

    def restore(self, running: Assignment, gpus: Sequence[Gpus], state: dict[str, Any]) -> None:
        """See Places."""
        self._clear()
        running = _with_fractions(running)
        self._take_over(running, state["numbers"])
        gangs = self._gangs_of(running)
        by_gang = dict(zip(self._gang.take(running.jobs).tolist(), gpus, strict=True))
        self._gangs.adopt(gangs, [by_gang[gang] for gang in gangs.jobs.tolist()])

    def _take_over(self, last: Assignment, numbers: Sequence[int]) -> None:
        """The rows `last` run, those with fractions on the GPUs with these `numbers`."""
        change = self._roster.change_to(last)
        if change is None or last.thousandths is None:
            return
        self._roster.accept(change)
        self._make_room(last.jobs)
        rows = zip(last.jobs.tolist(), last.pool.tolist(), last.thousandths.tolist(), numbers, strict=True)
        for job, pool, thousandths, number in rows:
            if number != _ALONE:
                self._note(job, (pool, number, thousandths))
                self._shared[pool].hold(number, thousandths)


def _with_fractions(rows: Assignment) -> Assignment:
    """The rows, who have their GPUs whole where nothing else is said."""
    return rows if rows.thousandths is not None else rows.with_fractions(rows.parts)


def _places_fractions(rule: str) -> bool:
    other = None if rule == "off" else rule_of_others(rule)
    return rule != "off" and (other is None or issubclass(other, Consolidated))
