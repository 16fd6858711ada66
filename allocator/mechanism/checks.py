"""What a policy answered, looked at before anybody acts on it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from allocator.protocol.plan import Plan
from allocator.protocol.state import ClusterState
from formulations import Pairs
from throughputs import InputError

__all__ = ["check_plan", "checked_pairs", "checked_shares"]


def checked_shares(shares: NDArray[np.float64], state: ClusterState, name: str) -> NDArray[np.float64]:
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


def check_plan(plan: Plan, state: ClusterState, name: str) -> None:
    """Raise InputError where a step of a plan for `state` is none that the cluster can run, or lasts no time."""
    source = f"policy {name}"
    if not plan.steps:
        raise InputError(source, field="steps", found="none", expected="a plan of at least 1 step")
    for number, step in enumerate(plan.steps):
        jobs = step.assignment.jobs
        where = f"{source}, step {number} of the plan"
        if len(jobs) and (jobs.min() < 0 or jobs.max() >= state.n_jobs):
            raise InputError(where, field="jobs", found=jobs.tolist(), expected=f"positions below {state.n_jobs}")
        step.assignment.check(state.capacity, where)
        if not step.seconds > 0:
            raise InputError(where, field="seconds", found=step.seconds, expected="a time above 0, inf for no end")
    for field in ("rejected", "hold"):
        ids = getattr(plan, field)
        if len(ids) and (ids.min() < 0 or ids.max() >= state.n_jobs):
            raise InputError(source, field=field, found=ids.tolist(), expected=f"positions below {state.n_jobs}")
