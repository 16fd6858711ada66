"""The properties that every policy has: one function each, which raises `BrokenError` where a policy lacks it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from allocator.checkpoint.state_file import Part
from allocator.protocol import Allocation, ClusterState, PlanPolicy, Policy, SharePolicy
from allocator.protocol.views import VIEWS, Need
from allocator.testing.worlds import World
from throughputs import ThroughputMatrix
from throughputs.arrays import Floats

_ROUNDING = 1e-6
"""Part of a limit by which it may be exceeded."""

_TOLERANCE = 1e-4
"""Shares of time that differ by less are the same: a choice among optima is exact to several digits only."""

_LARGEST_GAP = 1e-2
"""Relative gap from which nothing is proven; planners that search among whole rounds state gaps of some thousandths."""

_VIEWS_OF_THROUGHPUT = Need.COLOCATION | Need.CONFIGURATIONS | Need.TRAINING


class BrokenError(Exception):
    """A policy lacks a property; says what was seen."""


@dataclass(frozen=True)
class Property:
    """A property by name, how it is looked at, and the worlds in which it is, the smallest first."""

    name: str
    check: Callable[[Policy, World], None]
    worlds: tuple[World, ...]


def _few(*sizes: int) -> tuple[World, ...]:
    return tuple(World(n, seed) for n in sizes for seed in range(2))


def answers_as_it_says(policy: Policy, world: World) -> None:
    """An allocation of the jobs and types that it was asked about, shares in the polytope."""
    state = world.state(policy)
    allocation = policy.allocate(state)
    if not isinstance(allocation, Allocation):
        raise BrokenError(f"allocate returned {type(allocation).__name__}, not an allocator.Allocation")
    shares = np.asarray(allocation.shares)
    if shares.shape != state.rates.shape:
        raise BrokenError(f"shares have shape {shares.shape}, not {state.rates.shape}")
    if not np.isfinite(shares).all() or (shares < 0).any():
        raise BrokenError(f"a share is negative or no number: {shares.min(initial=0.0):g}")
    time, used = _time_and_gpus(allocation, state)
    if time.max(initial=0.0) > 1.0 + _ROUNDING:
        raise BrokenError(f"job {int(time.argmax())} has {time.max():.6g} of its time; at most 1")
    over = used > state.capacity * (1.0 + _ROUNDING) + _ROUNDING
    relative = isinstance(policy, SharePolicy) and policy.relative_shares
    if over.any() and not relative:
        j = int(np.argmax(over))
        name = state.cluster.accelerators[j]
        raise BrokenError(
            f"the shares take {used[j]:.6g} GPUs of {name}, of which there are {state.capacity[j]}; say "
            "relative_shares = True if they are meant as priorities"
        )


def answers_alike_twice(policy: Policy, world: World) -> None:
    """Determinism: the same state, the same answer, of the same object and of a copy."""
    first = _answer(policy, world.state(policy))
    for again, whose in ((policy, "asked again"), (copy.deepcopy(policy), "of a copy of the policy")):
        _same(first, _answer(again, world.state(policy)), f"the answer {whose} is another one", exact=True)


def leaves_the_state(policy: Policy, world: World) -> None:
    """A state is read, not written."""
    state = world.state(policy)
    before = {name: value.copy() for name in VIEWS if isinstance(value := state.known(name), np.ndarray)}
    policy.allocate(state)
    for name, values in before.items():
        if not np.array_equal(values, state.known(name)):
            raise BrokenError(f"state.{name} was changed by the policy")


def minds_no_order(policy: Policy, world: World) -> None:
    """The order of the rows of a state means nothing."""
    if policy.in_order_of_rows:
        return
    state = world.state(policy)
    order = np.random.default_rng([world.seed, world.n_jobs, 2]).permutation(state.n_jobs)
    told = "the answer depends on the order of the jobs; say in_order_of_rows = True if earlier rows are to go first"
    _same(_answer(policy, state), _answer(policy, state.take(order)), told)


def minds_no_common_unit(policy: Policy, world: World) -> None:
    """Steps of all jobs counted by the thousand change nothing."""
    _in_units(policy, world, np.full(world.n_jobs, 1024.0), "the unit in which steps of all jobs are counted")


def minds_no_unit_of_a_job(policy: Policy, world: World) -> None:
    """Steps of one job counted in another unit change nothing, unless the policy compares them by intent."""
    powers = np.random.default_rng([world.seed, world.n_jobs, 3]).integers(-6, 7, world.n_jobs)
    what = "the unit in which a job's steps are counted; name this among what it lacks if steps are to be compared"
    _in_units(policy, world, np.ldexp(1.0, powers), what)


def says_that_it_knows_lengths(policy: Policy, world: World) -> None:
    """Who decides by how long jobs still take says so: people want to know."""
    if Need.LENGTHS in policy.needs:
        return
    state = world.state(policy)
    other: Any = world.state(policy)
    factors = np.random.default_rng([world.seed, world.n_jobs, 4]).uniform(0.2, 5.0, world.n_jobs)
    other.steps_remaining = np.ceil(state.steps_remaining * factors)
    told = "the answer depends on the steps that are left; say needs = Need.LENGTHS | ..."
    _same(_answer(policy, state), _answer(policy, other), told)


def copes_without(policy: Policy, world: World) -> None:
    """No jobs, or no GPUs: nobody has anything."""
    allocation = policy.allocate(world.state(policy))
    if np.any(allocation.shares) or (allocation.pairs is not None and len(allocation.pairs)):
        raise BrokenError("somebody has a share of nothing")


def serves_one(policy: Policy, world: World) -> None:
    """A job that is alone runs."""
    allocation = policy.allocate(world.state(policy))
    if not allocation.rejected and not allocation.effective_throughput.sum() > 0:
        raise BrokenError("the only job there is does not run")


def copes_with_idle_jobs(policy: Policy, world: World) -> None:
    """Jobs that can run nowhere: a gang larger than every type, and where rates are all that is known one of rate 0."""
    answers_as_it_says(policy, world)
    if policy.needs & _VIEWS_OF_THROUGHPUT:
        return
    state = world.state(policy)
    rates = state.rates.copy()
    rates[0] = 0.0
    policy.allocate(state.with_throughputs(state.throughputs.with_rates(rates)))


def proves_what_it_says(policy: Policy, world: World) -> None:
    """A certified status comes with objective, bound and gap."""
    allocation = policy.allocate(world.state(policy))
    if allocation.status != "optimal":
        return
    proof = (allocation.objective, allocation.bound, allocation.gap)
    if not np.isfinite(proof).all() or not 0 <= allocation.gap <= _LARGEST_GAP:
        raise BrokenError("the status is optimal, objective, bound and gap are {:.6g}, {:.6g}, {:.2g}".format(*proof))


def remembers_what_it_says(policy: Policy, world: World) -> None:
    """A planner with a memory restored from its state plans as with the memory itself."""
    if not isinstance(policy, PlanPolicy):
        return
    memory = policy.new_memory()
    if memory is None:
        return
    policy.plan(world.state(policy), memory)
    restored = policy.new_memory()
    restored.restore(Part.of(memory.state()).tree())
    plans = [policy.plan(world.state(policy), each) for each in (memory, restored)]
    one, other = (
        [
            (step.seconds, *(getattr(step.assignment, name).tolist() for name in ("jobs", "pool", "gpus")))
            for step in plan.steps
        ]
        for plan in plans
    )
    if one != other:
        raise BrokenError("with a memory restored from its state the next plan is another one")


def _in_units(policy: Policy, world: World, factors: Floats, what: str) -> None:
    if policy.needs & _VIEWS_OF_THROUGHPUT:
        return  # these state throughputs too, and each in its own way
    state = world.state(policy)
    other: Any = state.with_throughputs(state.throughputs.with_rates(state.rates * factors[:, None]))
    other.steps_remaining = state.steps_remaining * factors
    _same(_answer(policy, state), _answer(policy, other), f"the answer depends on {what}")


@dataclass(frozen=True)
class _Answer:
    """Who has what, by label."""

    shares: dict[Any, Floats]
    pairs: dict[Any, float]
    rejected: frozenset[Any]


def _answer(policy: Policy, state: ClusterState) -> _Answer:
    allocation = policy.allocate(state)
    matrix: ThroughputMatrix = allocation.throughputs
    pairs: dict[Any, float] = {}
    found = allocation.pairs
    for p in range(0 if found is None else len(found)):
        assert found is not None
        both = frozenset((matrix.jobs[found.first[p]], matrix.jobs[found.second[p]]))
        pairs[both, int(found.accelerator[p])] = float(found.share[p])
    return _Answer(dict(zip(matrix.jobs, allocation.shares, strict=True)), pairs, frozenset(allocation.rejected))


def _same(one: _Answer, other: _Answer, told: str, *, exact: bool = False) -> None:
    within = 0.0 if exact else _TOLERANCE
    if one.rejected != other.rejected:
        raise BrokenError(f"{told} (rejected: {sorted(one.rejected)} and {sorted(other.rejected)})")
    for job, shares in one.shares.items():
        if np.abs(shares - other.shares[job]).max(initial=0.0) > within:
            raise BrokenError(f"{told} (shares of job {job}: {_short(shares)} and {_short(other.shares[job])})")
    for key in one.pairs | other.pairs:
        if abs(one.pairs.get(key, 0.0) - other.pairs.get(key, 0.0)) > within:
            raise BrokenError(f"{told} (jobs {sorted(key[0])} share GPUs)")


def _short(shares: Floats) -> str:
    return "[" + ", ".join(f"{share:.6g}" for share in shares) + "]"


def _time_and_gpus(allocation: Allocation, state: ClusterState) -> tuple[Floats, Floats]:
    """(N,) time of each job and (M,) GPUs taken; where the policy chose numbers of GPUs, those."""
    pairs, sizes = allocation.pairs, state.scale_factors
    time = allocation.shares.sum(axis=1)
    used = (sizes[:, None] * allocation.shares).sum(axis=0)
    if pairs is not None:
        time, used = time + pairs.time(state.n_jobs), used + pairs.gpus(sizes, len(used))
    if allocation.assignment is not None:
        used = allocation.assignment.gpus_used(len(used)).astype(float)
    return time, used


PROPERTIES = (
    Property("answers with shares of time in the polytope", answers_as_it_says, _few(1, 2, 3, 5, 9)),
    Property("answers alike when asked twice", answers_alike_twice, _few(2, 5)),
    Property("leaves the state as it is", leaves_the_state, _few(2, 5)),
    Property("minds no order of jobs", minds_no_order, _few(2, 3, 5, 9)),
    Property("minds no common unit of throughput", minds_no_common_unit, _few(2, 3, 5)),
    Property("minds no unit of one job's throughput", minds_no_unit_of_a_job, _few(2, 3, 5)),
    Property("says that it knows lengths", says_that_it_knows_lengths, _few(2, 3, 5, 9)),
    Property("copes with no jobs", copes_without, (World(0),)),
    Property("copes with no GPUs", copes_without, tuple(World(n, 0, (0, 0, 0)) for n in (1, 3))),
    Property("runs a job that is alone", serves_one, tuple(World(1, seed) for seed in range(4))),
    Property(
        "copes with jobs that can run nowhere",
        copes_with_idle_jobs,
        tuple(World(n, s, (1, 0, 0)) for n in (2, 5) for s in range(3)),
    ),
    Property("proves what it calls optimal", proves_what_it_says, _few(1, 3, 9)),
    Property("plans alike with a memory that was saved", remembers_what_it_says, _few(2, 5)),
)
