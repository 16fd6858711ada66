"""The simulator as an environment: a run that stops at each decision and goes on with what an agent answers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike

from allocator.api import load_throughputs
from allocator.cluster import Cluster
from allocator.environment.actions import answered
from allocator.environment.observations import job_columns, observation_of, observation_space
from allocator.environment.rewards import Figure, Progress, figure_of
from allocator.presets import Preset
from allocator.presets import preset as find_preset
from allocator.protocol import Allocation, ClusterState, Plan
from allocator.results.result import SimulationResult
from allocator.simulator.engine import Simulation, SimulationStalledError
from throughputs import InputError, ThroughputMatrix, ThroughputTable, Trace, TraceGenerator
from throughputs.arrays import Floats, Values
from throughputs.errors import expect

Observation = dict[str, Values]


class ClusterEnvironment(gymnasium.Env[Observation, Floats]):
    """Decide who runs where, one decision after the other.

    An episode is a simulation of one trace. A step answers one question of the decision core, which asks whenever a
    policy would be asked: at arrivals, completions and changes of throughput (shares: at the end of the round in which
    they happen). Everything else is that of `allocator.simulate`: the same rounds, placement and restarts.

    Parameters
    ----------
    cluster : of M types: a cluster, GPUs by type, or text such as ``"v100:4,k80:8"``.
    trace : the jobs of every episode, or where they come from: a generator, or a function of a seed. Those are given
        a new seed at each `reset`, drawn from that of the environment.
    throughputs : as in `allocator.simulate`; None: the embedded table.
    action : "shares": of time, (max_jobs, M) in [0, 1], scaled into the polytope of allocations
        (`actions.into_polytope`) and carried out in rounds; "assignment": scores, (max_jobs, M) in [0, 1], by which
        gangs are put on types one after the other (`actions.chosen_by_scores`) and run until the next question.
    reward : name of a figure of `rewards.REWARDS`, or a function of `Progress`; the reward of a step is what the figure
        gains in it. Over an episode in which all jobs complete, rewards add up to the figure of the run's summary,
        with a minus where it is to be small.
    max_jobs : rows of observation and action. Of more active jobs the first to arrive are seen; the others wait,
        or have GPUs that would idle.
    preset : as in `allocator.simulate`.
    horizon : an episode is truncated at the first decision after so many seconds of the clock.
    decide_every : the agent is asked after so many seconds at the latest; with shares at the end of that round.
    render_mode : None, or "ansi": `render` returns a few lines of text.

    Raises
    ------
    InputError
        A cluster, preset, action or reward that there is not, or a number that is not positive.

    >>> environment = ClusterEnvironment("v100:2,k80:2", TraceGenerator(n_jobs=3, scale_factors={1: 1.0}), max_jobs=4)
    >>> observation, info = environment.reset(seed=0)
    >>> observation["jobs"].shape == (4, len(environment.job_columns))
    True
    >>> observation, reward, terminated, truncated, info = environment.step(environment.action_space.sample())
    >>> reward < 0, terminated
    (True, False)
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(
        self,
        cluster: Cluster | str | Mapping[str, int] = "v100:4,p100:4,k80:4",
        trace: Trace | TraceGenerator | Callable[[int], Trace] | None = None,
        throughputs: ThroughputTable | ArrayLike | None = None,
        *,
        action: Literal["shares", "assignment"] = "shares",
        reward: str | Figure = "average_jct",
        max_jobs: int = 64,
        preset: str | Preset = "default",
        horizon: float | None = None,
        decide_every: float = np.inf,
        render_mode: str | None = None,
    ) -> None:
        expect(max_jobs >= 1, "environment", "max_jobs", max_jobs, "at least 1")
        expect(
            render_mode in (None, *self.metadata["render_modes"]),
            "environment",
            "render_mode",
            render_mode,
            "None or 'ansi'",
        )
        self.cluster = Cluster.of(cluster)
        self.max_jobs, self.render_mode = max_jobs, render_mode
        self._policy, self._figure = answered(action, decide_every), figure_of(reward)
        chosen = find_preset(preset)
        self._preset = chosen if horizon is None else chosen.replace(max_clock_seconds=horizon)
        self._throughputs = load_throughputs() if throughputs is None else throughputs
        self._trace = TraceGenerator(n_jobs=20, mean_interarrival=900.0) if trace is None else trace
        self.job_columns = job_columns(self.cluster.accelerators)
        self.observation_space = observation_space(self.cluster.accelerators, max_jobs)
        self.action_space = spaces.Box(0.0, 1.0, (max_jobs, len(self.cluster.accelerators)), dtype=float)
        self._run: Simulation | None = None
        self._questions: Generator[ClusterState, None, bool] | None = None
        self._state: ClusterState | None = None
        self._stalled = ""
        self._value = 0.0

    @property
    def state(self) -> ClusterState:
        """What the decision core asks about: all that a policy would know.

        Raises
        ------
        InputError
            No question is open: before `reset`, or after the end of an episode.
        """
        if self._state is None:
            raise InputError(
                "environment", field="state", found="no open question", expected="a call of reset() before"
            )
        return self._state

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; ``options={"trace": trace}`` gives the jobs of this one.

        Raises
        ------
        InputError
            A trace of which the cluster can run no job, or another option.
        """
        super().reset(seed=seed)
        given = dict(options or {})
        trace = self._drawn(given.pop("trace", self._trace))
        expect(not given, "environment", "options", sorted(given), "'trace' alone")
        self._run = Simulation(trace, self.cluster, self._policy, self._throughputs, preset=self._preset)
        self._questions = self._run.world.questions()
        self._value, self._stalled = 0.0, ""
        self._go_on()
        if self._state is None:
            raise InputError(trace.source, found="nothing to decide", expected=f"a job that {self.cluster} can run")
        return observation_of(self._state, self.max_jobs), self._info(0.0)

    def step(self, action: Floats) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Answer the open question with `action`, and go on to the next one.

        Returns observation, reward, whether all jobs are through (terminated), whether the episode was cut short
        (truncated: the horizon, a limit of the preset, or an agent that leaves all jobs without progress), and info.
        After the last step the observation is without jobs.

        Raises
        ------
        InputError
            No question is open, or the action is not of the action space's shape, or not finite.
        """
        state, run = self.state, self._run
        assert run is not None
        answer = np.asarray(action, dtype=float)
        expect(
            answer.shape == self.action_space.shape, "environment", "action", answer.shape, f"{self.action_space.shape}"
        )
        expect(np.isfinite(answer).all(), "environment", "action", "nan or inf", "finite numbers")
        self._policy.action = answer.copy()
        self._go_on()
        before, self._value = self._value, self._figure(Progress.of(run.world))
        truncated = self._state is None and bool(run.world.stop_reason or self._stalled)
        terminated = self._state is None and not truncated
        seen = observation_of(_nobody(state, run.world.clock) if self._state is None else self._state, self.max_jobs)
        return seen, self._value - before, terminated, truncated, self._info(run.world.clock - state.clock)

    def action_of(self, answer: Allocation | Plan) -> Floats:
        """The action that says what a policy answered about `state`: shares, or scores that lead to its assignment.

        Raises
        ------
        InputError
            The answer is of the other kind.
        """
        said = self._policy.action_of(answer, self.state)[: self.max_jobs]
        action = np.zeros((self.max_jobs, len(self.cluster.accelerators)))
        action[: len(said)] = said
        return action

    def carried_out(self, action: Floats) -> Floats:
        """(N, M) what would be made of `action` now: feasible shares, or 1 where a job would run."""
        return self._policy.carried_out(np.asarray(action, dtype=float), self.state)

    def result(self) -> SimulationResult:
        """The run of the episode that is over, as `allocator.simulate` returns it.

        Raises
        ------
        InputError
            There is none yet, or it is not over.
        """
        if self._run is None or self._state is not None:
            raise InputError("environment", field="result", found="an open episode", expected="one that is over")
        return self._run.result()

    def render(self) -> str | None:
        """A few lines on the moment, where the render mode is "ansi"."""
        if self.render_mode is None or self._run is None:
            return None
        world = self._run.world
        left = f"{world.completed} of {len(world.jobs)} jobs through"
        if self._state is None:
            return f"{world.clock:,.0f} s: {left}, the episode is over"
        running = self._state.running
        used = running.gpus_used(len(self.cluster.capacity)).tolist()
        busy = ", ".join(
            f"{name} {gpus}/{of}" for (name, of), gpus in zip(self.cluster.gpus.items(), used, strict=True)
        )
        return f"{world.clock:,.0f} s: {left}, {self._state.n_jobs} here, {len(running)} running\nbusy GPUs: {busy}"

    def close(self) -> None:
        """Drop the episode."""
        self._run = self._questions = self._state = None

    def _drawn(self, trace: Trace | TraceGenerator | Callable[[int], Trace]) -> Trace:
        if isinstance(trace, Trace):
            return trace
        seed = int(self.np_random.integers(2**31))
        return replace(trace, seed=seed).generate() if isinstance(trace, TraceGenerator) else trace(seed)

    def _go_on(self) -> None:
        """Run to the next question; `_state` is None where there is none any more."""
        assert self._questions is not None
        try:
            self._state = next(self._questions, None)
        except SimulationStalledError as error:
            self._state, self._stalled = None, str(error)

    def _info(self, seconds: float) -> dict[str, Any]:
        assert self._run is not None
        world = self._run.world
        info: dict[str, Any] = {"clock": world.clock, "seconds": seconds, "completed_jobs": world.completed}
        if self._state is not None and (world.jobs.trace_id != "").any():
            active = np.array(self._state.throughputs.jobs[: self.max_jobs], dtype=np.int64)
            info["trace_id"] = world.jobs.trace_id[world.jobs.rows(active)].tolist()
        if self._state is None:
            info["reason"] = self._stalled or world.stop_reason or "all jobs are through"
        return info


def _nobody(state: ClusterState, clock: float) -> ClusterState:
    """The cluster of `state` without jobs."""
    types = state.cluster.accelerators
    return ClusterState(state.cluster, ThroughputMatrix(np.zeros((0, len(types))), (), types), clock=clock)
