"""The simulator: a world of jobs and GPUs around the decision core.

while jobs are left:
    admit arrivals; ask the core for the coming round; run it; note completions
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from allocator.api import load_speeds
from allocator.checkpoint.checkpoint import Checkpoints, identity
from allocator.cluster import Cluster
from allocator.presets import Preset
from allocator.presets import preset as find_preset
from allocator.protocol.elastic import of_table
from allocator.protocol.entities import Entities, EntitiesLike
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Need, Policy, SharePolicy, checked_policy, fault_of
from allocator.results.measures.cost import Prices, price_table
from allocator.results.observers import Observer, Recorder
from allocator.results.record import Promises, RunRecord
from allocator.results.result import SimulationResult
from allocator.simulator.arrivals import ExtendTrace, MoreJobs
from allocator.simulator.goodput.world import goodput_world
from allocator.simulator.truth import Truth
from allocator.simulator.world import Progress, SimulationStalledError, World
from allocator.variants import policy_of
from throughputs import InputError, ThroughputMatrix, ThroughputTable, Trace, trace_of
from throughputs.configurations import Configurations
from throughputs.errors import expect
from throughputs.estimator.believed import BelievedColocation, Estimation
from throughputs.goodput.profiles import Profiles
from throughputs.goodput.trainings import Trainings, trainings_of

if TYPE_CHECKING:
    import pandas as pd

    from throughputs import PackedColumns

Known: TypeAlias = (
    "ThroughputTable | PackedColumns | ThroughputMatrix | Profiles | Trainings | Mapping[str, Any] | ArrayLike | None"
)

__all__ = ["SimulationStalledError"]


def simulate(
    trace: Trace | pd.DataFrame | str | os.PathLike[str],
    cluster: Cluster | str | Mapping[str, int],
    policy: Policy | str,
    throughputs: Known = None,
    *,
    preset: str | Preset = "default",
    seed: int = 0,
    window: tuple[int, int] | None = None,
    extend: ExtendTrace | None = None,
    prices: Prices | None = None,
    entities: EntitiesLike | None = None,
    estimation: Estimation | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 2000,
    resume: bool = False,
    progress: Progress | None = None,
    observers: Sequence[Observer] = (),
    label: str | None = None,
) -> SimulationResult:
    """Run the jobs of `trace` on `cluster` under `policy` until all that can run have completed.

    Parameters
    ----------
    trace : N jobs in the order of their arrival: a trace, a DataFrame with the columns of a trace or of a job log, or
        a file of either.
    cluster : of M types: a cluster, GPUs by type, or text such as ``"v100:4,k80:8"``.
    policy : decides on shares of time, or on plans of who runs as what; or its name, with settings of its own where
        wanted, as in ``"elasticflow:admission=repair"``: it is made as the preset has it.
    throughputs : a throughput table, or the file or folder of one; or the (N, M) true rates in steps/s: an array with
        the types in the order of the cluster, or with their names a DataFrame, a mapping of columns, or a
        `ThroughputMatrix`, whose rows are job types, or the jobs in order where they are numbered from 0. A policy
        that packs needs a table with co-location (`table.with_colocation`), or `PackedColumns` of the jobs. None: the
        embedded table. `Profiles` or `Trainings` (`throughputs.goodput`) are of jobs that train models: under policies
        that decide at events their goodput changes as they train. Jobs of known duration that a table does not have
        need none where it does not know the types of the cluster, or there is only one: they go at their steps over
        their duration.
    preset : "default", "gavel", "shockwave", "shockwave_published", or a `Preset` of your own:
        ``preset("gavel").replace(round_seconds=720)``. What it says of policies is for those who make them.
    seed : of all random draws of the run.
    window : ids (first, end) of the jobs that are measured, end not included. The run ends when all of them have
        completed; until then later jobs keep arriving.
    extend : called with a number of jobs when the trace runs short before the window is through; returns a trace of
        that length which begins with the same jobs. Without it the last jobs of a window may see an emptier cluster.
    prices : dollars per GPU hour by type, or a `PriceTable` of histories: for policies that read them,
        and for the cost of the run.
    entities : the entities that jobs of the trace name, in any form that `allocator.protocol.entities.Entities.parse`
        takes; without them what jobs name is ignored. They are for policies with water filling; all others ignore them.
    estimation : for policies that pack: what they know of pairs of jobs is estimated, until the pairs have run; None:
        they know what `throughputs` says.
    checkpoint : file into which the run is saved as it goes; taken away when the run is complete.
    checkpoint_every : rounds (without rounds: events) between two checkpoints.
    resume : go on from `checkpoint` if it exists. The result is the same as that of a run that never stopped, the
        wall times aside; `observers` see the rest of the run only.
    progress : called as ``progress(clock, completed, jobs)`` when jobs complete; clock in seconds.
    observers : watch the run, see `allocator.results.observers`.
    label : what the run is called in tables and reports; the policy's name if omitted.

    Returns
    -------
    SimulationResult
        Tables of jobs, rounds and decisions. Jobs that no type can run are left uncompleted (status "unserved").
        The run's own status is "completed", or "saturated" when one of its `Limits` cut it short.

    Raises
    ------
    InputError
        Throughputs that do not fit trace and cluster, an unknown preset or entity, bad shares from the policy, a window
        beyond the trace, or a checkpoint of another run.
    SimulationStalledError
        No job made progress for `max_rounds_without_progress` rounds.

    >>> import allocator
    >>> trace = allocator.Trace(["a", "b"], scale_factor=[1, 1], total_steps=[360.0, 720.0], arrival_time=[0.0, 0.0])
    >>> result = simulate(trace, "v100:1", "fifo", [[1.0], [1.0]])
    >>> result.jobs["jct"].tolist()
    [390.0, 1470.0]
    """
    _check_checkpoint(checkpoint, checkpoint_every, resume)
    trace, cluster = trace_of(trace), Cluster.of(cluster)
    if isinstance(policy, str):
        policy = policy_of(policy, find_preset(preset), cluster)
    try:
        run = Simulation(
            trace,
            cluster,
            policy,
            throughputs,
            preset=preset,
            seed=seed,
            window=window,
            extend=extend,
            prices=prices,
            entities=entities,
            estimation=estimation,
            progress=progress,
            observers=observers,
        )
        files = None if checkpoint is None else Checkpoints(checkpoint, run.identity())
        if files is not None and resume:
            run.started -= files.load(run.world, run.recorder) or 0.0
        _run(run, files, checkpoint_every)
    except Exception as error:
        if (fault := fault_of(error, type(policy))) is None:
            raise
        raise fault from error.__cause__
    return run.result(label)


class Simulation:
    """A run that is set up; parameters as for `simulate`.

    Attributes
    ----------
    world : to be run.
    recorder : what came of it so far.
    settings : every named setting of the run, ready for JSON.
    started : when the run began by `time.perf_counter`, imports left out.
    """

    def __init__(
        self,
        trace: Trace,
        cluster: Cluster | str | Mapping[str, int],
        policy: Policy,
        throughputs: Known = None,
        *,
        preset: str | Preset = "default",
        seed: int = 0,
        window: tuple[int, int] | None = None,
        extend: ExtendTrace | None = None,
        prices: Prices | None = None,
        entities: EntitiesLike | None = None,
        estimation: Estimation | None = None,
        progress: Progress | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        checked_policy(policy).prepare()
        cluster = Cluster.of(cluster)
        colocated = Need.COLOCATION in policy.needs
        if throughputs is None or isinstance(throughputs, str | os.PathLike):
            known: Any = load_speeds(throughputs, colocated=colocated)
        else:
            known = _in_order_of(cluster, trace, throughputs)
        known = trainings_of(known) if isinstance(known, Profiles) else known
        self.started = time.perf_counter()
        chosen = find_preset(preset).in_run(policy.name, cluster)
        _check_window(trace, window, extend)
        priced = None if prices is None else price_table(prices, cluster.accelerators)
        owners = None if entities is None else Entities.parse(entities)
        world = tuple(rule.in_run(trace, known, policy, chosen.world) for rule in chosen.world)
        needs = reduce(or_, (rule.needs for rule in world), policy.needs)
        about_jobs = {name: value for rule in world for name, value in rule.about_jobs.items()}

        def build(some: Trace, whose: Entities | None = None) -> tuple[JobTable, Truth]:
            if isinstance(known, Trainings):
                return goodput_world(some, known, cluster, policy, chosen, whose)
            table = JobTable.from_trace(some, known, cluster, needs=needs, entities=whose, **about_jobs)
            truth = Truth(table.rates, table.scale_factor, pairs=table.colocation, configurations=table.configurations)
            for rule in world:
                rule.make_true(truth, some, known, cluster, world)
            return table, truth

        jobs, self._truth = build(trace, owners)
        if estimation is not None and jobs.colocation is not None:
            jobs.believed = BelievedColocation(jobs.colocation, estimation, seed)
        if extend is not None and not isinstance(known, ThroughputTable | Trainings):
            expected = "a throughput table, or models of goodput"
            raise InputError("extend", found="throughputs as an array", expected=expected)
        self.settings = (
            chosen.as_dict()
            | chosen.told_of(policy)
            | {"seed": seed}
            | ({} if window is None else {"window": list(window)})
        )
        if owners is not None:
            self.settings["entities"] = owners.to_dict()
        if estimation is not None:
            self.settings["estimation"] = estimation.as_dict()
        self._trace, self._cluster, self._policy, self._throughputs = trace, cluster, policy, known
        self._window, self._prices = window, priced
        self.recorder = Recorder()
        self.world = World(
            jobs,
            self._truth,
            cluster,
            policy,
            chosen.mechanism,
            world,
            seed,
            window,
            priced,
            None if extend is None else MoreJobs(extend, build, trace),
            progress,
            (self.recorder, *observers),
        )

    def identity(self) -> dict[str, str]:
        """What a checkpoint must have been made of to belong to this run."""
        return identity(
            self._trace, self.world.jobs, self._truth, self._cluster, self._policy, self.settings, self._prices
        )

    def _promises(self) -> Promises | None:
        """What was promised; None by policies whose answers are plans, an order, or priorities."""
        policy, decisions = self._policy, self.recorder.decisions
        if not isinstance(policy, SharePolicy) or policy.relative_shares:
            return None
        if any(allocation.status == "order" for _, _, allocation in decisions):
            return None
        return Promises(decisions, self.world.core.settings.round_seconds, not policy.fills_idle_gpus)

    def result(self, label: str | None = None) -> SimulationResult:
        """What came of the run, which is called `label`."""
        world, trace, cluster = self.world, self._trace, self._cluster
        record = RunRecord(
            world.jobs,
            cluster,
            self.recorder.outcomes,
            self._window,
            self._prices,
            world.core.ideal,
            _by_gpus(trace, self._throughputs, cluster) if len(trace) == len(world.jobs) else None,
            self._promises(),
            self._policy,
            self._truth.steps_alone(world.jobs),
            world.capacity,
        )
        return SimulationResult(
            policy=self._policy.name,
            settings=self.settings
            | {"trace": trace.source, "policy_settings": _policy_settings(self._policy)}
            | ({"lengths": _known_lengths(trace)} if Need.PREDICTIONS in self._policy.needs else {}),
            policy_calls=world.core.policy_calls,
            policy_seconds=world.core.policy_seconds,
            wall_seconds=time.perf_counter() - self.started,
            decisions=tuple(self.recorder.decisions),
            record=record,
            status="saturated" if world.stop_reason else "completed",
            status_detail=world.stop_reason,
            label=label or "",
        )


def _known_lengths(trace: Trace) -> str:
    """What a policy that goes by predicted lengths goes by: "predicted", "true", or how many are."""
    without = int(np.count_nonzero(np.isnan(trace.predicted_seconds)))
    if without in (0, len(trace)):
        return "true" if without else "predicted"
    return f"predicted, true of {without} of {len(trace)} jobs"


def _in_order_of(cluster: Cluster, trace: Trace, throughputs: Any) -> Any:
    """Rates that come with names as an array, in the order of the jobs and of the cluster; others as they are."""
    # Nothing is a table of pandas before pandas is there.
    frame = getattr(sys.modules.get("pandas"), "DataFrame", ThroughputMatrix)
    if not isinstance(throughputs, ThroughputMatrix | Mapping | frame):
        return throughputs
    matrix = ThroughputMatrix.of(throughputs).on_types(cluster.accelerators)
    if matrix.jobs == tuple(range(matrix.n_jobs)):
        return matrix.rates
    row = {label: at for at, label in enumerate(matrix.jobs)}
    for name in trace.job_type.tolist():
        expect(
            name in row, "throughputs", "index", matrix.jobs, f"all job types, such as {name!r}, or 0, 1, ... by job"
        )
    return matrix.rates[[row[name] for name in trace.job_type.tolist()]]


def _by_gpus(trace: Trace, throughputs: Any, cluster: Cluster) -> Callable[[], Configurations] | None:
    """How to find out what jobs with deadlines do by number of GPUs; None where there is no way, or no deadline."""
    has_deadlines = not (np.isnan(trace.deadline) & np.isnan(trace.slo)).all()
    if not has_deadlines or not isinstance(throughputs, ThroughputTable | Configurations):
        return None
    return lambda: of_table(trace, throughputs, cluster)


def _policy_settings(policy: Policy) -> dict[str, Any]:
    """Settings of the policy, ready for JSON."""
    return {name: _as_json(value) for name, value in policy.settings().items()}


def _as_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _as_json(item) for key, item in value.items()}
    plain = value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))
    return value if plain else str(value)


def _run(run: Simulation, files: Checkpoints | None, every: int) -> None:
    """Run to the end, with a checkpoint every so many rounds."""
    world = run.world
    if files is None:
        world.run()
        return
    while not world.run(until_round=world.round + every):
        files.save(world, run.recorder, time.perf_counter() - run.started)
    files.remove()


def _check_window(trace: Trace, window: tuple[int, int] | None, extend: ExtendTrace | None) -> None:
    if window is not None:
        first, end = window
        if not 0 <= first < end:
            raise InputError("window", found=window, expected="ids of jobs, 0 <= first < end")
        if extend is None and end > len(trace):
            raise InputError("window", found=window, expected=f"jobs of the trace, which has {len(trace)}")
    elif extend is not None:
        raise InputError("extend", found="no window", expected="a window, as the run would never end")


def _check_checkpoint(checkpoint: str | os.PathLike[str] | None, checkpoint_every: int, resume: bool) -> None:
    if checkpoint_every < 1:
        raise InputError("checkpoint_every", found=checkpoint_every, expected="at least 1 round")
    if resume and checkpoint is None:
        raise InputError("resume", found="no checkpoint", expected="the file to go on from")
