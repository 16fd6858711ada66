"""Giving out a lease: everybody's GPUs are returned, and the lease program says who runs in the coming one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from allocator.policies.chronus.admission import option_slots, unplanned_rows
from allocator.policies.chronus.memory import ACCEPTED, UNACCEPTED, ChronusMemory
from allocator.policies.chronus.rules import LeaseRules, rounded_gpus
from formulations.leases import LeaseProgram, LeaseSolution, solve_leases

_WIDEST = 1000
"""Jobs of so many GPUs keep the plan that they have where options are too many, as published."""


@dataclass(frozen=True, eq=False)
class LeaseRecord:
    """What came of the lease program.

    Attributes
    ----------
    status : that of the solution; "empty" where nobody needs leases.
    objective, bound, gap, seconds : of the solution.
    solver : whose schedule it is.
    failed : the solver whose answer was of no use, and what it said; empty for none.
    """

    status: str = "empty"
    objective: float = np.nan
    bound: float = np.nan
    gap: float = np.nan
    seconds: float = 0.0
    solver: str = ""
    failed: tuple[str, ...] = ()


def count_needed(memory: ChronusMemory, rules: LeaseRules, rows: list[int]) -> None:
    """Leases that jobs still need after what they ran; those too many are taken off their plans, early ones first."""
    if not rows:
        return
    at = np.array(rows)
    needed = rules.leases_for(memory.estimate[at] - memory.ran[at])
    fewer = needed < memory.needed[at]
    for row, count in zip(at[fewer].tolist(), needed[fewer].tolist(), strict=True):
        plan = memory.leases[row]
        if plan is not None:
            surplus = int(memory.needed[row]) - count
            memory.leases[row] = plan[surplus:]
        memory.needed[row] = count


def begin_lease(memory: ChronusMemory, rules: LeaseRules, now: int) -> LeaseRecord:
    """Release all jobs, plan, and start those that have the coming lease (`now`: units)."""
    lease = rules.clock.running_lease(now)
    if lease > memory.lease_begun + 1:
        # leases went by in which there was nobody
        memory.unaccepted = 0
    objective = rules.objective
    if objective == "adaptive":
        objective = "minimize" if memory.unaccepted > 0 else "maximize"
    released = memory.running
    count_needed(memory, rules, [row for row in released if memory.kind[row] == ACCEPTED])
    memory.forced[released] = False
    memory.stop(released, now)
    record = _plan(memory, rules, lease, objective)
    holders = []
    for row in memory.waiting:
        plan = memory.leases[row]
        if memory.kind[row] == ACCEPTED and plan is not None and len(plan) and plan[0] == lease:
            memory.leases[row] = plan[1:]
            holders.append(row)
    memory.needed[holders] -= 1
    memory.start(holders, now, waited_counts=rules.offers.waiting_counts)
    memory.leased[holders] = True
    memory.lease_begun = lease
    memory.unaccepted = int((memory.kind == UNACCEPTED).sum())
    return record


def _plan(memory: ChronusMemory, rules: LeaseRules, lease: int, objective: str) -> LeaseRecord:
    """Bring the plans of promised jobs up to date."""
    rows = unplanned_rows(memory)
    if not rows:
        return LeaseRecord()
    failed: tuple[str, ...] = ()
    if rules.solver != "none":
        kept = _keep_planned(memory, rules, rows, lease)
        solution = _solve(memory, rules, [row for row in rows if row not in kept], kept, lease, objective, rules.solver)
        if solution.status != "failed":
            return _record(solution)
        failed = (rules.solver,)
        begin = lease * rules.clock.lease * rules.clock.unit
        warnings.warn(
            f"chronus: {rules.solver} found no schedule for the lease at {begin:g} s ({solution.note}); "
            "the greedy rule decides",
            RuntimeWarning,
            stacklevel=2,
        )
    planned = {row for row in rows if memory.leases[row] is not None}
    others = [row for row in rows if row not in planned]
    solution = _solve(memory, rules, others, planned, lease, objective, "greedy")
    if len(solution.dropped) and not rules.promises.may_be_lost:
        # in the order in which they were admitted all promises fitted
        for row in others:
            memory.kind[row] = ACCEPTED
        solution = _solve(memory, rules, others, planned, lease, objective, "greedy", promised_only=True)
    for row in memory.waiting:
        if memory.kind[row] == ACCEPTED and memory.leases[row] is None:
            memory.kind[row] = UNACCEPTED
    return _record(solution, failed)


def _record(solution: LeaseSolution, failed: tuple[str, ...] = ()) -> LeaseRecord:
    return LeaseRecord(
        solution.status,
        solution.objective,
        solution.bound,
        solution.gap,
        solution.seconds,
        solution.method,
        failed,
    )


def _solve(
    memory: ChronusMemory,
    rules: LeaseRules,
    rows: list[int],
    planned: set[int],
    lease: int,
    objective: str,
    method: str,
    *,
    promised_only: bool = False,
) -> LeaseSolution:
    """Plan jobs `rows` beside those that keep their plans; jobs that are dropped lose their promise."""
    open_options = [rules.promises.open_options(memory, row) for row in rows]
    if promised_only:
        open_options = [(due[-1:], np.zeros(1)) for due, _ in open_options]
    slots = [
        option_slots(due, rules.clock.lease, lease, int(memory.needed[row]))
        for row, (due, _) in zip(rows, open_options, strict=True)
    ]
    horizon = max([1, *(int(each.max()) for each in slots)])
    capacity = np.full(horizon, rules.capacity)
    for row in planned:
        plan = memory.leases[row]
        assert plan is not None
        ahead = plan - lease
        capacity[ahead[(ahead >= 0) & (ahead < horizon)]] -= memory.gpus[row]
    program = LeaseProgram(
        rounded_gpus(memory.gpus[rows]),
        memory.needed[rows],
        np.repeat(np.arange(len(rows)), [len(each) for each in slots]),
        np.concatenate(slots) if slots else np.empty(0, dtype=np.int64),
        np.concatenate([value for _, value in open_options]) if rows else np.empty(0),
        np.maximum(capacity, 0),
        objective,
    )
    solution = solve_leases(
        program,
        method,
        relative_gap=rules.relative_gap,
        time_limit_seconds=rules.time_limit_seconds,
        tie_break=rules.tie_break,
    )
    if solution.status != "failed":
        _take_over(memory, rows, solution, lease)
    return solution


def _take_over(memory: ChronusMemory, rows: list[int], solution: LeaseSolution, lease: int) -> None:
    for row, option, runs in zip(rows, solution.option.tolist(), solution.schedule, strict=True):
        if option < 0:
            memory.leases[row] = None
            memory.kind[row] = UNACCEPTED
        else:
            memory.leases[row] = lease + np.flatnonzero(runs)


def _keep_planned(memory: ChronusMemory, rules: LeaseRules, rows: list[int], lease: int) -> set[int]:
    """Jobs that keep their plan because there are more options than are searched: the widest, then those due last."""
    if rules.max_search_options is None:
        return set()
    entries = [
        (-int(rounded_gpus(memory.gpus[row])), -int(slots), row, option)
        for row in rows
        for option, slots in enumerate(
            option_slots(rules.promises.open_options(memory, row)[0], rules.clock.lease, lease, int(memory.needed[row]))
        )
    ]
    surplus = len(entries) - rules.max_search_options
    kept: set[int] = set()
    if surplus <= 0:
        return kept
    for gpus, _, row, _ in sorted(entries):
        if memory.leases[row] is not None and (surplus > 0 or row in kept or -gpus >= _WIDEST):
            kept.add(row)
            surplus -= 1
    return kept
