"""What a policy answered, looked at before anybody acts on it."""

from __future__ import annotations

import numpy as np

from allocator.protocol.allocation import Allocation
from allocator.protocol.assignment import NOBODY, Assignment, among_ids, within
from allocator.protocol.plan import Plan, PlanStep
from allocator.protocol.state import ClusterState
from allocator.protocol.views import Need, Needs
from formulations import Pairs
from throughputs import InputError
from throughputs.arrays import Floats, Ints

_NUMBERS = (int, float, np.number)


def checked_shares(shares: Floats, state: ClusterState, name: str) -> Floats:
    """The (N, M) shares of policy `name`; InputError where they are no finite numbers of at least 0."""
    if np.shape(shares) != state.rates.shape:
        raise InputError(
            f"policy {name}", field="shares", found=np.shape(shares), expected=f"shape {state.rates.shape}"
        )
    if not np.isfinite(shares).all() or (shares < 0).any():
        row, column = np.argwhere(~(np.isfinite(shares) & (shares >= 0)))[0]
        raise InputError(
            f"policy {name}",
            field=f"share of job {state.throughputs.jobs[row]!r} on {state.cluster.accelerators[column]!r}",
            found=float(shares[row, column]),
            expected="a share of time of at least 0",
        )
    return shares


def checked_pairs(pairs: Pairs | None, state: ClusterState, name: str) -> Pairs:
    """The pairs of an allocation for `state`.

    Raises
    ------
    InputError
        A job or type that does not exist, a job beside itself, gangs of different sizes, or a share below 0.
    """
    if pairs is None:
        return Pairs.none()
    n, m = state.rates.shape
    for field, values, limit in (
        ("first", pairs.first, n),
        ("second", pairs.second, n),
        ("type", pairs.accelerator, m),
    ):
        if len(values) != len(pairs) or ((values < 0) | (values >= limit)).any():
            raise InputError(f"policy {name}", field=f"{field} of pairs", found=values, expected=f"below {limit}")
    sizes = state.scale_factors
    wrong = (pairs.first == pairs.second) | (sizes[pairs.first] != sizes[pairs.second])
    wrong |= ~(np.isfinite(pairs.share) & (pairs.share >= 0))
    if wrong.any():
        p = int(np.argmax(wrong))
        labels = tuple(state.throughputs.jobs[i] for i in (pairs.first[p], pairs.second[p]))
        expected = "two jobs with gangs of one size and a share of time of at least 0"
        raise InputError(f"policy {name}", field=f"pair {labels}", found=float(pairs.share[p]), expected=expected)
    return pairs


def checked_allocation(allocation: object, name: str) -> Allocation:
    """The answer of a share policy; InputError where it is something else."""
    if not isinstance(allocation, Allocation):
        found = type(allocation).__name__
        raise InputError(f"policy {name}", field="allocate", found=found, expected="an Allocation")
    return allocation


def checked_plan(plan: object, state: ClusterState, name: str, needs: Needs) -> Plan:
    """The plan, its rows in order, if it is one that the cluster can run.

    Raises
    ------
    InputError
        No plan, a step that does not fit the cluster or lasts no time, a job that is rejected and runs, jobs that share
        GPUs or run on another number of them without the policy having asked for what they do then.
    """
    source = f"policy {name}"
    if not isinstance(plan, Plan):
        raise InputError(source, field="plan", found=type(plan).__name__, expected="a Plan")
    if not plan.steps:
        raise InputError(source, field="steps", found="none", expected="a plan of at least 1 step")
    rejected = _positions(plan.rejected, state, source, "rejected")
    if len(rejected) > 1:
        rejected = np.unique(rejected)
    steps = tuple([_checked_step(step, state, rejected, number, name, needs) for number, step in enumerate(plan.steps)])
    if steps[-1].seconds == 0:
        found, expected = 0, "a time above 0 for the last step"
        raise InputError(
            f"{source}, step {len(steps) - 1} of the plan", field="seconds", found=found, expected=expected
        )
    return plan if steps == plan.steps and rejected is plan.rejected else Plan(steps, rejected, plan.allocation)


def _checked_step(
    step: PlanStep, state: ClusterState, rejected: Ints, number: int, policy: str, needs: Needs
) -> PlanStep:
    rows, where = step.assignment, f"policy {policy}, step {number} of the plan"
    _check_seconds(step.seconds, where)
    if rows is state.running and not len(rejected) and not rows.shares_gpus:
        # Everybody goes on as they are.
        return step
    thousandths = state.known("gpu_thousandths")
    # Who runs already has been looked at.
    new = rows.beyond(state.running) if thousandths is None and not rows.shares_gpus else rows
    _positions(new.jobs, state, where, "jobs")
    if thousandths is not None:
        new = rows = rows.with_fractions(thousandths.take(rows.jobs))
        step = PlanStep(rows, step.seconds)
    beside = new is not rows and not state.running.has_any(new.jobs)
    if beside:
        new.check(state.capacity - state.running.gpus_used(len(state.capacity)), f"{where}, beside those who run")
    else:
        rows.check(state.capacity, where)
    if len(rejected) and among_ids(rows.jobs, rejected).any():
        found = np.intersect1d(rows.jobs, rejected).tolist()
        raise InputError(where, field="jobs", found=found, expected="jobs that the plan does not reject")
    _check_known(new, state, where, needs)
    return PlanStep(rows.in_pairs(), step.seconds) if rows.shares_gpus else step


def _check_seconds(seconds: float, where: str) -> None:
    known = type(seconds) is float or (isinstance(seconds, _NUMBERS) and not isinstance(seconds, bool))
    if not (known and seconds >= 0):
        expected = "a time above 0, inf for no end; 0 before another step"
        raise InputError(where, field="seconds", found=seconds, expected=expected)


def _positions(jobs: Ints, state: ClusterState, source: str, field: str) -> Ints:
    """The `jobs`, if they are positions in the state."""
    if not len(jobs):
        return jobs if isinstance(jobs, np.ndarray) and jobs.dtype == np.int64 else NOBODY
    given = np.asarray(jobs)
    whole = given.size == 0 or given.dtype.kind in "iu"
    if given.ndim != 1 or not whole or not within(given, state.n_jobs):
        expected = f"whole positions below {state.n_jobs}"
        raise InputError(source, field=field, found=given.tolist(), expected=expected)
    return given.astype(np.int64, copy=False)


def _check_known(assignment: Assignment, state: ClusterState, where: str, needs: Needs) -> None:
    """Raise InputError where nobody knows what the rows do: nothing would say how fast they go."""
    if assignment.shares_gpus and Need.COLOCATION not in needs:
        expected = "no partners, or a policy with Need.COLOCATION among its needs"
        raise InputError(where, field="partner", found="jobs that share GPUs", expected=expected)
    other = (assignment.gpus != state.scale_factors.take(assignment.jobs)).nonzero()[0]
    if not len(other):
        return
    job, pool, gpus = (column[other] for column in (assignment.jobs, assignment.pool, assignment.gpus))
    rates = state.rates_at(job, pool, gpus) if Need.CONFIGURATIONS in needs else None
    if rates is None:
        label = state.throughputs.jobs[int(job[0])]
        expected = f"its scale factor {state.scale_factors[job[0]]}, or a policy with Need.CONFIGURATIONS"
        raise InputError(where, field=f"GPUs of job {label!r}", found=int(gpus[0]), expected=expected)
    if not (rates > 0).all():
        at = int(np.argmin(rates > 0))
        label = state.throughputs.jobs[int(job[at])]
        field = f"GPUs of job {label!r} on {state.cluster.accelerators[int(pool[at])]!r}"
        expected = "a number for which the job has a throughput"
        raise InputError(where, field=field, found=int(gpus[at]), expected=expected)
