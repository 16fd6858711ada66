"""Decisions of a finished run made once more, as they were and with one thing changed.

Nothing is said of a change unless the decision without it comes out as it did in the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.explanations.replay import Instant, job_table, mechanism_settings
from allocator.explanations.run import FinishedRun
from allocator.mechanism.rounds import RoundMechanism
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Need, PlanPolicy, Policy, SharePolicy
from allocator.simulator.restarts import RestartCost
from throughputs import InputError

__all__ = ["Change", "can_redecide", "changes_that_help", "comes_out_the_same", "decided", "event_instant"]

_Ints = NDArray[np.int64]

_UNKNOWN = Need.COLOCATION | Need.TRAINING | Need.CONFIGURATIONS | Need.DEADLINE_OPTIONS
"""What a finished run does not tell."""

_EACH = 8
"""Up to so many GPUs more are tried one by one, and so many jobs."""


@dataclass(frozen=True)
class Change:
    """One thing that was otherwise when the decision was made anew, with which the job would have run.

    Attributes
    ----------
    kind : "gpus" more of a type, without a "job", with a "gang" of fewer GPUs, allowed on another "type".
    accelerator, gpus, job : of which type, how many, without whom; "", 0 and -1 where that does not apply.
    tried : what was tried before and was not enough: GPUs more.
    text : the whole in words.
    """

    kind: str
    text: str
    accelerator: str = ""
    gpus: int = 0
    job: int = -1
    tried: tuple[int, ...] = ()


def can_redecide(policy: Policy | None) -> bool:
    """Whether the record of a run tells all that the policy decides from."""
    if policy is None or policy.needs & _UNKNOWN:
        return False
    return not isinstance(policy, PlanPolicy) or (not policy.in_rounds and policy.new_memory() is None)


def decided(
    run: FinishedRun, at: Instant, *, cluster: Cluster | None = None, table: JobTable | None = None, without: int = -1
) -> Assignment:
    """Who runs by the decision made once more, with other GPUs, other figures of the jobs, or without a job."""
    policy, cluster, table = run.policy, cluster or run.cluster, table or at.table
    active = at.active[at.active != without]
    state = table.snapshot(active, at.clock, cluster, None, policy.needs, at.running.among(active))  # type: ignore[union-attr]
    if isinstance(policy, PlanPolicy):
        steps = policy.plan(state, policy.new_memory()).steps
        return next((step for step in steps if step.seconds > 0), steps[-1]).assignment.named(active)
    assert isinstance(policy, SharePolicy)
    assert at.mechanism is not None
    mechanism = RoundMechanism(policy, cluster, table, mechanism_settings(run), int(run.settings.get("seed", 0)))
    mechanism.restore(_copied(at.mechanism))
    if without >= 0:
        mechanism.left(np.array([without]))
    mechanism.capacity_changed()
    mechanism.ask(policy, state, active)
    return mechanism.next(at.clock).assignment


def _copied(state: dict[str, object]) -> dict[str, object]:
    """The state of a mechanism, which changes its arrays in place."""
    ledger = {name: copy(value) for name, value in state["ledger"].items()}  # type: ignore[attr-defined]
    return state | {"ledger": ledger}


def comes_out_the_same(run: FinishedRun, at: Instant) -> bool:
    """Whether those run who did in the run."""
    try:
        return bool(np.array_equal(np.sort(decided(run, at).jobs), at.ran))
    except (InputError, RuntimeError, ValueError, ArithmeticError):
        return False


def changes_that_help(run: FinishedRun, at: Instant, job: int) -> list[Change]:
    """What would have let the `job` run, one change at a time; each was tried, and it ran."""
    found = [change for j in range(len(run.cluster.accelerators)) for change in _more_gpus(run, at, job, j)]
    for one in (_smaller_gang, _another_type, _nobody_before):
        found += one(run, at, job)
    return found


def _runs(run: FinishedRun, at: Instant, job: int, **changed: object) -> Assignment | None:
    """Who runs, if the job does."""
    try:
        rows = decided(run, at, **changed)  # type: ignore[arg-type]
    except (InputError, RuntimeError, ValueError, ArithmeticError):
        return None
    return rows if job in rows.jobs else None


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count != 1)}"


def _more_gpus(run: FinishedRun, at: Instant, job: int, pool: int) -> Iterator[Change]:
    """The least number of further GPUs of a type with which the job would have run, of those that are tried: one by one
    up to its gang, then twice as many each time, up to what all jobs there would take.
    """
    name, gang = run.cluster.accelerators[pool], int(run.jobs.gpus[job])
    if run.jobs.rates[job, pool] <= 0:
        return
    wanted = int(run.jobs.gpus[at.active].sum())
    doubled = (gang << k for k in range(max(wanted // gang, 1).bit_length()))
    counts = sorted({*range(1, min(gang, _EACH) + 1), *doubled})
    for position, count in enumerate(counts):
        gpus = dict(run.cluster.gpus) | {name: run.cluster.gpus[name] + count}
        rows = _runs(run, at, job, cluster=Cluster(gpus, run.cluster.gpus_per_server))
        if rows is not None:
            on = run.cluster.accelerators[int(rows.pool[rows.jobs == job][0])]
            where = "" if on == name else f", on {on}"
            yield Change("gpus", f"{_gpus(count)} more of {name}{where}", name, count, tried=tuple(counts[:position]))
            return


def _smaller_gang(run: FinishedRun, at: Instant, job: int) -> list[Change]:
    gang = int(run.jobs.gpus[job])
    for count in sorted({gang - 1, *(gang >> k for k in range(1, gang.bit_length()))}, reverse=True):
        if not 0 < count < gang:
            continue
        table = copy(at.table)
        table.scale_factor, table.rates = table.scale_factor.copy(), table.rates.copy()
        table.scale_factor[job] = count
        table.rates[job] *= count / gang
        if _runs(run, at, job, table=table) is not None:
            return [Change("gang", f"a gang of {_gpus(count)}, as fast for its size", gpus=count)]
    return []


def _another_type(run: FinishedRun, at: Instant, job: int) -> list[Change]:
    """Types on which it may not run though they have enough GPUs."""
    found = []
    rates, gang = run.jobs.rates[job], int(run.jobs.gpus[job])
    for pool in np.flatnonzero((rates <= 0) & (run.cluster.capacity >= gang)).tolist():
        table = copy(at.table)
        table.rates = table.rates.copy()
        table.rates[job, pool] = rates.max()
        name = run.cluster.accelerators[pool]
        replayed = replace(at, mechanism=None if at.mechanism is None else _opened(at, job, pool))
        rows = _runs(run, replayed, job, table=table)
        if rows is not None and int(rows.pool[rows.jobs == job][0]) == pool:
            fastest = run.cluster.accelerators[int(rates.argmax())]
            found.append(Change("type", f"leave to run on {name}, as fast as on {fastest}", name))
    return found


def _opened(at: Instant, job: int, pool: int) -> dict[str, object]:
    """The mechanism's state with a type on which the job may run now."""
    assert at.mechanism is not None
    state = _copied(at.mechanism)
    ledger = state["ledger"]
    assert isinstance(ledger, dict)
    ledger["can_run"][pool, at.active.searchsorted(job)] = True
    return state


def _nobody_before(run: FinishedRun, at: Instant, job: int) -> list[Change]:
    """The first job without which it would have run: of those that ran, the last to arrive first; then of those that
    waited before it, the largest first.
    """
    jobs, usable = run.jobs, np.flatnonzero(run.jobs.rates[job] > 0)
    rows = decided(run, at)
    there = rows.jobs[np.isin(rows.pool, usable)]
    latest = there[np.lexsort((there, -jobs.arrival[there]))]
    waiting = at.active[~np.isin(at.active, rows.jobs) & (at.active < job)]
    largest = waiting[np.lexsort((waiting, -jobs.gpus[waiting]))]
    for other in [*latest[:_EACH].tolist(), *largest[:_EACH].tolist()]:
        if _runs(run, at, job, without=other) is not None:
            what = "ran" if other in there else "waited, too"
            return [Change("job", f"no job {other} ({_gpus(int(jobs.gpus[other]))}; {what})", job=other)]
    return []


def event_instant(run: FinishedRun, clock: float) -> Instant | None:
    """What a policy that decides at events knew at `clock` (seconds); None where the run does not tell."""
    if run.ideal or run.in_rounds or not can_redecide(run.policy):
        return None
    jobs, rows = run.jobs, run.rows
    table = job_table(run)
    active = np.flatnonzero((jobs.arrival <= clock) & (jobs.gone > clock))
    past = rows.take(np.flatnonzero(rows.start < clock))
    lost = _lost(run)[rows.start < clock]
    trained = np.clip(np.minimum(past.finish, clock) - past.start - lost, 0.0, None)
    whole = np.maximum(past.finish - past.start - lost, 1e-12)
    np.add.at(table.steps_done, past.job, past.steps * np.minimum(trained / whole, 1.0))
    np.minimum(table.steps_done, table.total_steps, out=table.steps_done)
    for name, seconds in (("service_seconds", trained), ("service_gpu_seconds", trained * past.gpus)):
        table.register(name, 0.0)
        np.add.at(table.columns[name], past.job, seconds)
    before = past.take((past.finish >= clock) & (jobs.gone[past.job] > clock))
    after = rows.take((rows.start <= clock) & (rows.finish > clock))
    order = np.argsort(before.job, kind="stable")
    running = Assignment(before.job[order], before.pool[order], before.gpus[order], before.partner[order])
    return Instant(clock, -1, table, active, running, None, np.unique(after.job))


def _lost(run: FinishedRun) -> NDArray[np.float64]:
    """(L,) seconds at the beginning of each row in which its job was being started."""
    cost = RestartCost(
        float(run.settings.get("restart_penalty_seconds") or 0.0),
        float(run.settings.get("restart_penalty_per_doubling_seconds") or 0.0),
        tuple(map(tuple, run.settings.get("restart_penalty_by_gpus") or ())),
        tuple(map(tuple, run.settings.get("restart_penalty_by_job_type") or ())),
    )
    return cost.seconds_of(run.rows.gpus, run.jobs.kind[run.rows.job])
