"""Decisions of a finished run made once more, as they were and with one thing changed.

Nothing is said of a change unless the decision without it comes out as it did in the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.explanations.columns import Rows
from allocator.explanations.replay import Instant, job_table, mechanism_of, settings_of
from allocator.explanations.run import FinishedRun
from allocator.fractions import WHOLE, GpuFractions
from allocator.mechanism.core import DecisionCore
from allocator.protocol.assignment import Assignment, among_ids
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Hindrance, Need, PlanPolicy, SharePolicy
from allocator.simulator.rules.base import rule_of
from allocator.simulator.rules.starts import StartsTakeTime
from throughputs import InputError

_Ints = NDArray[np.int64]

_UNKNOWN = Need.COLOCATION | Need.TRAINING | Need.CONFIGURATIONS | Need.DEADLINE_OPTIONS
"""What a finished run does not tell."""

# Of a row that is all start, seconds.
_SHORTEST = 1e-12

_EACH = 8
"""Up to so many GPUs more are tried one by one, and so many jobs."""


@dataclass(frozen=True)
class Change:
    """One thing that was otherwise when the decision was made anew, with which the job would have run.

    Attributes
    ----------
    kind : "gpus" more of a type, without a "job", with a "gang" of fewer GPUs, with a smaller "fraction" of one,
        allowed on another "type".
    accelerator, gpus, job : of which type, how many (or what part of one), without whom; "", 0 and -1 where that does
        not apply.
    tried : what was tried before and was not enough: GPUs more.
    text : the whole in words.
    """

    kind: str
    text: str
    accelerator: str = ""
    gpus: float = 0
    job: int = -1
    tried: tuple[int, ...] = ()


def can_redecide(run: FinishedRun) -> bool:
    """Whether the record of a run tells all that the policy decides from."""
    policy = run.policy
    if policy is None or policy.needs & _UNKNOWN:
        return False
    if policy.answers == "shares":
        return True
    if Need.PREDICTIONS in policy.needs and run.settings.get("lengths") != "true":
        return False
    planner = cast(PlanPolicy, policy)
    return not planner.in_rounds and (planner.new_memory() is None or planner.memory_at({}) is not None)


def decided(
    run: FinishedRun, at: Instant, *, cluster: Cluster | None = None, table: JobTable | None = None, without: int = -1
) -> Assignment:
    """Who runs by the decision made once more, with other GPUs, other figures of the jobs, or without a job."""
    policy, cluster, table = run.policy, cluster or run.cluster, copy(table or at.table)
    assert policy is not None
    # a decision notes there which type it gives to whom
    table.current_accelerator = table.current_accelerator.copy()
    active = at.active[at.active != without]
    if policy.answers == "plan":
        return _core_at(run, at, cluster, table, active).next(at.clock).assignment
    state = table.snapshot(active, at.clock, cluster, policy.needs, at.running.among(active))
    assert at.mechanism is not None
    sharing = cast(SharePolicy, policy)
    mechanism = mechanism_of(run, table, cluster)
    mechanism.restore(_copied(at.mechanism))
    if without >= 0:
        mechanism.left(np.array([without]))
    mechanism.capacity_changed()
    if at.asked:
        mechanism.ask(sharing, state, active)
    return mechanism.next(at.clock, at.running.among(active)).assignment


def _core_at(run: FinishedRun, at: Instant, cluster: Cluster, table: JobTable, active: _Ints) -> DecisionCore:
    """What is about to ask a policy that decides at events, with the jobs that ran on the GPUs that they had."""
    policy = cast(PlanPolicy, run.policy)
    # A new core begins with nobody's service, and here it is known.
    known, table.columns = table.columns, {}
    core = DecisionCore(policy, cluster, table, settings_of(run).mechanism)
    table.columns = known
    memory = policy.memory_at(dict(zip(at.running.jobs.tolist(), at.started, strict=True)))
    state = core.state() | {"active": active}
    state["executor"] |= {"memory": None if memory is None else memory.state()}
    # Among more GPUs of a type, those of the types behind it have other ids.
    shift = (cluster.first_gpu - run.cluster.first_gpu).take(at.running.pool).tolist()
    there = among_ids(at.running.jobs, active).tolist()
    gpus = [tuple(gpu + by for gpu in held) for held, by, stays in zip(at.gpus, shift, there, strict=True) if stays]
    core.resume(state, at.running.among(active), gpus)
    return core


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
    for one in (_smaller_gang, _smaller_fraction, _another_type, _nobody_before):
        found += one(run, at, job)
    return found


def _runs(run: FinishedRun, at: Instant, job: int, **changed: object) -> Assignment | None:
    """Who runs, if the job does."""
    try:
        rows = decided(run, at, **changed)  # type: ignore[arg-type]
    except (InputError, RuntimeError, ValueError, ArithmeticError):
        return None
    return rows if job in rows.jobs else None


def _gpus(count: float) -> str:
    return f"{count:g} of a GPU" if count < 1 else f"{count:g} GPU{'s' * (count != 1)}"


def _more_gpus(run: FinishedRun, at: Instant, job: int, pool: int) -> Iterator[Change]:
    """A number of further GPUs of a type with which the job would have run, and with one less not.

    Up to its gang one by one, so that it is the least; beyond that twice as many each time, up to as many as the
    cluster has, and then between the last two.
    """
    name, gang = run.cluster.accelerators[pool], int(run.jobs.gpus[job])
    if run.jobs.rates[job, pool] <= 0:
        return

    def runs_with(count: int) -> Assignment | None:
        gpus = dict(run.cluster.gpus) | {name: run.cluster.gpus[name] + count}
        return _runs(run, at, job, cluster=Cluster(gpus, run.cluster.gpus_per_server))

    tried: list[int] = []
    doubled = (gang << k for k in range(max(run.cluster.total_gpus // gang, 1).bit_length()))
    for count in sorted({*range(1, min(gang, _EACH) + 1), *doubled}):
        rows = runs_with(count)
        if rows is not None:
            break
        tried.append(count)
    else:
        return
    while tried and count - max(tried) > 1:
        between = (count + max(tried)) // 2
        fewer = runs_with(between)
        if fewer is None:
            tried.append(between)
        else:
            count, rows = between, fewer
    on = run.cluster.accelerators[int(rows.pool[rows.jobs == job][0])]
    where = "" if on == name else f", on {on}"
    few = f" (with {max(tried)} it waits)" if tried else ""
    yield Change("gpus", f"{_gpus(count)} more of {name}{few}{where}", name, count, tried=tuple(sorted(tried)))


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


def _smaller_fraction(run: FinishedRun, at: Instant, job: int) -> list[Change]:
    """Where GPUs are shared: half of what it asks for of its one GPU, half of that, and so on."""
    fractions = at.table.fractions
    if fractions is None or run.jobs.gpus[job] != 1:
        return []
    part = int(fractions.thousandths[job])
    for less in (part >> k for k in range(1, part.bit_length())):
        table, thousandths = copy(at.table), fractions.thousandths.copy()
        thousandths[job] = less
        table.fractions, table.rates = GpuFractions(thousandths, fractions.source), table.rates.copy()
        table.rates[job] *= less / part
        if _runs(run, at, job, table=table) is not None:
            return [Change("fraction", f"{_gpus(less / WHOLE)}, as fast for its size", gpus=less / WHOLE)]
    return []


def _another_type(run: FinishedRun, at: Instant, job: int) -> list[Change]:
    """Types on which it may not run though they have enough GPUs."""
    found: list[Change] = []
    if not at.asked:
        return found  # shares are decided on, and none is of a type that was closed
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
    latest = there[np.lexsort((-there, -jobs.arrival[there]))]
    waiting = at.active[~np.isin(at.active, rows.jobs) & (at.active < job)]
    largest = waiting[np.lexsort((waiting, -(jobs.gpus * jobs.fraction)[waiting]))]
    for other in [*latest[:_EACH].tolist(), *largest[:_EACH].tolist()]:
        if _runs(run, at, job, without=other) is not None:
            what = "ran" if other in there else "waited, too"
            return [Change("job", f"no job {jobs.name(other)} ({_gpus(jobs.gpus_taken(other))}; {what})", job=other)]
    return []


class EventReplay:
    """What a policy that decides at events knew at any instant of a finished run.

    Parameters
    ----------
    run : one that `can_replay`.
    """

    def __init__(self, run: FinishedRun) -> None:
        self._run, self._table = run, job_table(run)
        cost = rule_of(settings_of(run).world, StartsTakeTime)
        self._lost = cost.seconds_of(run.rows.gpus, run.jobs.kind[run.rows.job])

    @staticmethod
    def can_replay(run: FinishedRun) -> bool:
        """Whether the policy decides at events, and the run tells all that it decides from."""
        return not run.ideal and isinstance(run.policy, PlanPolicy) and can_redecide(run)

    def instant(self, clock: float) -> Instant:
        """At `clock` (seconds)."""
        rows, jobs, policy = self._run.rows, self._run.jobs, self._run.policy
        assert policy is not None
        begun = rows.start < clock
        past, lost = rows.take(begun), self._lost[begun]
        trained = np.clip(np.minimum(past.finish, clock) - past.start - lost, 0.0, None)
        whole = np.maximum(past.finish - past.start - lost, _SHORTEST)
        table, n = copy(self._table), len(jobs)
        done = np.bincount(past.job, past.steps * np.minimum(trained / whole, 1.0), n)
        table.steps_done = np.minimum(done, table.total_steps)
        spent = table.with_fractions(Assignment.alone(past.job, past.pool, past.gpus))
        table.columns = {
            view.column: np.bincount(past.job, view.adds(self._run.cluster, spent, trained), n)
            for view in policy.needs
            if view.adds is not None
        }
        before = _by_job(past.take((past.finish >= clock) & (jobs.gone[past.job] > clock)))
        after = rows.take((rows.start <= clock) & (rows.finish > clock))
        active = np.flatnonzero((jobs.arrival <= clock) & (jobs.gone > clock))
        running = table.with_fractions(Assignment(before.job, before.pool, before.gpus, before.partner))
        gpus = tuple(tuple(map(int, places.split())) for places in before.places)
        started, ran = tuple(before.start.tolist()), np.unique(after.job)
        return Instant(clock, -1, True, table, active, running, None, ran, gpus, started)

    def hindrance(self, at: Instant, job: int) -> Hindrance | None:
        """What the policy has against the `job` then."""
        run, policy = self._run, self._run.policy
        assert policy is not None
        state = next(_core_at(run, at, run.cluster, copy(at.table), at.active).deciding(at.clock))
        return policy.hindrance(state, int(at.active.searchsorted(job)))


def _by_job(rows: Rows) -> Rows:
    """Ascending by job, of several rows of a job the one that began last."""
    order = np.lexsort((rows.start, rows.job))
    last = np.append(rows.job[order][1:] != rows.job[order][:-1], True)[: len(order)]
    return rows.take(order[last])
