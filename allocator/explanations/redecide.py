"""Decisions of a finished run made once more, as they were and with one thing changed.

Nothing is said of a change unless the decision without it comes out as it did in the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from allocator.cluster import Cluster
from allocator.explanations.replay import Instant, job_table, mechanism_of
from allocator.explanations.run import FinishedRun, Rows
from allocator.fractions import WHOLE, GpuFractions
from allocator.mechanism.core import DecisionCore
from allocator.presets import preset_of
from allocator.protocol.assignment import Assignment, among_ids
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Hindrance, Need, Past, PlanPolicy, SharePolicy
from allocator.simulator.rules.base import rule_of
from allocator.simulator.rules.starts import StartsTakeTime
from throughputs import InputError
from throughputs.arrays import Ints

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
    told = run.settings.get("lengths") == "true" or not np.isnan(run.jobs.predicted_seconds).all()
    if Need.PREDICTIONS in policy.needs and not told:
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
    running = at.running.among(active)
    if at.mechanism is None:
        return _core_at(run, at, cluster, table, active).next(at.clock).assignment
    state = table.snapshot(active, at.clock, cluster, policy.needs, running)
    mechanism = mechanism_of(run, table, cluster)
    mechanism.restore(_copied(at.mechanism))
    if without >= 0:
        mechanism.left(np.array([without]))
    mechanism.can_run_changed()
    if at.asked:
        mechanism.ask(cast(SharePolicy, policy), state, active)
    return mechanism.next(at.clock, running).assignment


def _core_at(run: FinishedRun, at: Instant, cluster: Cluster, table: JobTable, active: Ints) -> DecisionCore:
    """What is about to ask a policy that decides at events, with the jobs that ran on the GPUs that they had."""
    policy = cast(PlanPolicy, run.policy)
    # A new core begins with nobody's service, and here it is known.
    known, table.columns = table.columns, {}
    core = DecisionCore(policy, cluster, table, preset_of(run.settings).mechanism)
    table.columns = known
    memory = _memory_at(run, at, policy)
    state = core.state() | {"active": active}
    state["executor"] |= {"memory": None if memory is None else memory.state()}
    # Among more GPUs of a type, those of the types behind it have other ids.
    shift = (cluster.first_gpu - run.cluster.first_gpu).take(at.running.pool).tolist()
    there = among_ids(at.running.jobs, active).tolist()
    gpus = [tuple(gpu + by for gpu in held) for held, by, stays in zip(at.gpus, shift, there, strict=True) if stays]
    core.resume(state, at.running.among(active), gpus)
    return core


def _memory_at(run: FinishedRun, at: Instant, policy: PlanPolicy) -> Any:
    """What the policy remembers then."""
    started = dict(zip(at.running.jobs.tolist(), at.started, strict=True))
    rows, table = run.rows.before(at.clock), at.table
    whose = np.where(table.entity == "", table.user, table.entity)[rows.job_id]
    return policy.memory_at(started, Past(at.clock, whose, rows.weighted_gpus, rows.start_time, rows.end_time))


def _copied(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a mechanism, which changes its arrays in place."""
    ledger = {name: copy(value) for name, value in state["ledger"].items()}
    return {**state, "ledger": ledger}


def comes_out_the_same(run: FinishedRun, at: Instant) -> bool:
    """Whether those run who did in the run."""
    rows = _tried(run, at)
    return rows is not None and bool(np.array_equal(np.sort(rows.jobs), at.ran))


def changes_that_help(run: FinishedRun, at: Instant, job: int) -> list[Change]:
    """What would have let the `job` run, one change at a time; each was tried, and it ran."""
    found = [change for j in range(len(run.cluster.accelerators)) for change in _more_gpus(run, at, job, j)]
    for one in (_smaller, _another_type, _nobody_before):
        found += one(run, at, job)
    return found


def _tried(run: FinishedRun, at: Instant, job: int | None = None, **changed: Any) -> Assignment | None:
    """Who runs by the decision with something changed; None where it cannot be made, or the job does not run."""
    try:
        rows = decided(run, at, **changed)
    except (InputError, RuntimeError, ValueError, ArithmeticError):
        return None
    return rows if job is None or job in rows.jobs else None


def gpus_in_words(count: float) -> str:
    """So many GPUs, or a part of one."""
    return f"{count:g} of a GPU" if count < 1 else f"{count:g} GPU{'s' * (count != 1)}"


def _more_gpus(run: FinishedRun, at: Instant, job: int, pool: int) -> Iterator[Change]:
    """A number of further GPUs of a type with which the job would have run, and with one less not.

    Up to its gang one by one, so that it is the least; beyond that twice as many each time, up to as many as the
    cluster has, and then between the last two.
    """
    name, gang = run.cluster.accelerators[pool], int(run.jobs.scale_factor[job])
    if run.jobs.rates[job, pool] <= 0:
        return
    fails: list[int] = []
    runs: dict[int, Assignment] = {}

    def runs_with(count: int) -> bool:
        gpus = dict(run.cluster.gpus) | {name: run.cluster.gpus[name] + count}
        rows = _tried(run, at, job, cluster=Cluster(gpus, run.cluster.gpus_per_server))
        if rows is None:
            fails.append(count)
        else:
            runs[count] = rows
        return rows is not None

    doubled = (gang << k for k in range(max(run.cluster.total_gpus // gang, 1).bit_length()))
    if not any(map(runs_with, sorted({*range(1, min(gang, _EACH) + 1), *doubled}))):
        return
    while fails and min(runs) - max(fails) > 1:
        runs_with((min(runs) + max(fails)) // 2)
    count = min(runs)
    on = run.cluster.accelerators[_pool_of(runs[count], job)]
    where = "" if on == name else f", on {on}"
    few = f" (with {max(fails)} it waits)" if fails else ""
    yield Change("gpus", f"{gpus_in_words(count)} more of {name}{few}{where}", name, count, tried=tuple(sorted(fails)))


def _pool_of(rows: Assignment, job: int) -> int:
    return int(rows.pool[rows.jobs == job][0])


def _smaller(run: FinishedRun, at: Instant, job: int) -> Iterator[Change]:
    """The largest gang below its own, one GPU less or half, a quarter ..., that would have run, as fast for its size;
    where GPUs are shared, the same of the part that it asks for of its one GPU.
    """
    gang, fractions = int(run.jobs.scale_factor[job]), at.table.fractions
    of_one = fractions is not None and gang == 1
    whole = int(fractions.thousandths[job]) if fractions is not None and of_one else gang
    halves = {whole >> k for k in range(1, whole.bit_length())}
    for size in sorted(halves if of_one else halves | {gang - 1} - {0}, reverse=True):
        table = copy(at.table)
        table.rates = table.rates.copy()
        table.rates[job] *= size / whole
        if fractions is not None and of_one:
            thousandths = fractions.thousandths.copy()
            thousandths[job] = size
            table.fractions = GpuFractions(thousandths, fractions.source)
        else:
            table.scale_factor = table.scale_factor.copy()
            table.scale_factor[job] = size
        if _tried(run, at, job, table=table) is not None:
            gpus = size / WHOLE if of_one else size
            words = "" if of_one else "a gang of "
            yield Change(
                "fraction" if of_one else "gang", f"{words}{gpus_in_words(gpus)}, as fast for its size", gpus=gpus
            )
            return


def _another_type(run: FinishedRun, at: Instant, job: int) -> Iterator[Change]:
    """Types on which it may not run though they have enough GPUs."""
    rates, gang, names = run.jobs.rates[job], int(run.jobs.scale_factor[job]), run.cluster.accelerators
    # where shares are decided on, none is of a type that was closed
    closed = (rates <= 0) & (run.cluster.capacity >= gang) & at.asked
    for pool in np.flatnonzero(closed).tolist():
        table, opened = copy(at.table), at
        table.rates = table.rates.copy()
        table.rates[job, pool] = rates.max()
        if at.mechanism is not None:
            mechanism = _copied(at.mechanism)
            mechanism["ledger"]["can_run"][pool, at.active.searchsorted(job)] = True
            opened = replace(at, mechanism=mechanism)
        rows = _tried(run, opened, job, table=table)
        if rows is not None and _pool_of(rows, job) == pool:
            words = f"leave to run on {names[pool]}, as fast as on {names[int(rates.argmax())]}"
            yield Change("type", words, names[pool])


def _nobody_before(run: FinishedRun, at: Instant, job: int) -> Iterator[Change]:
    """The first job without which it would have run: of those that ran, the last to arrive first; then of those that
    waited before it, the largest first.
    """
    jobs, usable = run.jobs, np.flatnonzero(run.jobs.rates[job] > 0)
    rows = decided(run, at)
    there = rows.jobs[np.isin(rows.pool, usable)]
    latest = there[np.lexsort((-there, -jobs.arrival_time[there]))]
    waiting = at.active[~np.isin(at.active, rows.jobs) & (at.active < job)]
    largest = waiting[np.lexsort((waiting, -(jobs.scale_factor * jobs.gpu_fraction)[waiting]))]
    for other in [*latest[:_EACH].tolist(), *largest[:_EACH].tolist()]:
        if _tried(run, at, job, without=other) is not None:
            what = "ran" if other in there else "waited, too"
            yield Change(
                "job", f"no job {jobs.name(other)} ({gpus_in_words(jobs.gpus_taken(other))}; {what})", job=other
            )
            return


class EventReplay:
    """What a policy that decides at events knew at any instant of a finished run.

    Parameters
    ----------
    run : one that `can_replay`.
    """

    def __init__(self, run: FinishedRun) -> None:
        self._run, self._table = run, job_table(run)
        cost = rule_of(preset_of(run.settings).world, StartsTakeTime)
        self._lost = cost.seconds_of(run.rows.gpu_count, run.jobs.job_type[run.rows.job_id])

    @staticmethod
    def can_replay(run: FinishedRun) -> bool:
        """Whether the policy decides at events, and the run tells all that it decides from."""
        return not run.ideal and isinstance(run.policy, PlanPolicy) and can_redecide(run)

    def instant(self, clock: float) -> Instant:
        """At `clock` (seconds)."""
        run, jobs, policy = self._run, self._run.jobs, self._run.policy
        assert policy is not None
        past, lost = run.rows.before(clock), self._lost[run.rows.start_time < clock]
        trained = np.clip(np.minimum(past.end_time, clock) - past.start_time - lost, 0.0, None)
        whole = np.maximum(past.end_time - past.start_time - lost, _SHORTEST)
        table, n = copy(self._table), len(jobs)
        done = np.bincount(past.job_id, past.steps * np.minimum(trained / whole, 1.0), n)
        table.steps_done = np.minimum(done, table.total_steps)
        spent = table.with_fractions(Assignment.alone(past.job_id, past.pool, past.gpu_count))
        table.columns = {
            view.column: np.bincount(past.job_id, view.adds(run.cluster, spent, trained), n)
            for view in policy.needs
            if view.adds is not None
        }
        before = _by_job(past.take((past.end_time >= clock) & (jobs.gone[past.job_id] > clock)))
        after = run.rows.take((run.rows.start_time <= clock) & (run.rows.end_time > clock))
        running = Assignment(before.job_id, before.pool, before.gpu_count, before.partner)
        return Instant(
            clock=clock,
            asked=True,
            table=table,
            active=np.flatnonzero((jobs.arrival_time <= clock) & (jobs.gone > clock)),
            running=table.with_fractions(running),
            mechanism=None,
            ran=np.unique(after.job_id),
            gpus=tuple(before.gpus),
            started=tuple(before.start_time.tolist()),
        )

    def hindrance(self, at: Instant, job: int) -> Hindrance | None:
        """What the policy has against the `job` then; None where its decision does not come out as it was, too."""
        run, policy = self._run, self._run.policy
        if policy is None or job not in at.active or not comes_out_the_same(run, at):
            return None
        state = next(_core_at(run, at, run.cluster, copy(at.table), at.active).deciding(at.clock))
        return policy.hindrance(state, int(at.active.searchsorted(job)))


def _by_job(rows: Rows) -> Rows:
    """Ascending by job, of several rows of a job the one that began last."""
    order = np.lexsort((rows.start_time, rows.job_id))
    last = np.append(rows.job_id[order][1:] != rows.job_id[order][:-1], True)[: len(order)]
    return rows.take(order[last])
