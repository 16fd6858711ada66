"""The simulator that came with Sia, its policy and its discipline of policies in rounds (Jayaram Subramanya et al.,
SOSP 2023, public artifact).

Costs of the policy are rounded, so that many choices are equally good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from allocator.conversion import NotNegativeWhole, Range
from allocator.mechanism.gang_packing import Vacancies, pack
from allocator.mechanism.rounds import Discipline, Queues, RoundMechanism, Rounds
from allocator.mechanism.settings import MechanismSettings
from allocator.policies.goodput.sia import Sia
from allocator.presets.preset import Preset
from allocator.protocol import ClusterState
from allocator.protocol.decision import Decision
from allocator.protocol.jobs import JobTable
from allocator.published.gavel.rounds import FractionLedger, FractionRounds
from allocator.published.pollux import EVERY_MINUTE, GOODPUT, POLLUX
from allocator.published.pollux import trainings as pollux
from allocator.simulator.goodput.runs import GoodputRuns
from allocator.simulator.rules.starts import Starts, StartsTakeTime
from formulations import Pairs
from formulations.goodput import SiaProgram
from throughputs import Configurations, InputError
from throughputs.arrays import Floats, Ints
from throughputs.errors import one_of

if TYPE_CHECKING:
    from allocator.simulator.world import World
    from throughputs.goodput.log_errors import Cells


def descended(cells: Cells) -> tuple[Floats, Floats]:
    """Parameters and losses of the descent of Pollux' code, which ends earlier in Sia's: with a tolerance of 1e-5."""
    return pollux.descended(cells, tolerance=1e-5)


@dataclass(frozen=True)
class FractionsSinceArrival(Discipline):
    """One queue of all (row, type), by share over fraction of time received since the job arrived.

    A decision forgets nothing, and the time of a type counts from the start of the run, with that of jobs that have
    left. Of equal priorities the larger share comes first.

    Attributes
    ----------
    share_decimals : decimals to which shares are rounded before they count; None: not at all.
    """

    name: ClassVar[str] = "time_fraction_since_arrival"

    share_decimals: Annotated[int, Range(1, 17)] | None = 5

    def start(self, run: Rounds) -> RoundMechanism:
        """See Discipline."""
        types = len(run.cluster.accelerators)
        return SiaRounds(run, SinceArrival(run.jobs, types, run.seconds, self.share_decimals))


class SinceArrival(FractionLedger):
    """Forgets nothing when a count starts."""

    def __init__(self, jobs: JobTable, n_types: int, round_seconds: float, share_decimals: int | None) -> None:
        super().__init__(jobs, n_types, round_seconds)
        self._decimals = share_decimals

    def add(self, jobs: Ints) -> None:
        """The credit of new jobs counts into the time of the types."""
        super().add(jobs)
        self.type_time = self.type_time + len(jobs) * self.credit_seconds

    def start_count(self, clock: float) -> None:
        """What counts since arrival goes on."""
        self.counted_since = clock

    def set_shares(self, shares: Floats, pairs: Pairs | None = None) -> None:
        """As in Ledger, rounded."""
        if self._decimals is not None:
            shares = np.clip(np.round(shares, self._decimals), 0.0, 1.0)
        super().set_shares(shares, pairs)


class SiaRounds(FractionRounds):
    """Sia's discipline in a run."""

    def __init__(self, run: Rounds, ledger: FractionLedger) -> None:
        super().__init__(run, ledger)
        self.draws_types = False

    def ties(self) -> tuple[Floats, ...]:
        """The larger share."""
        return (-self.ledger.shares,)

    def choose(self, clock: float, queues: Queues, negated: Floats, types: list[int]) -> list[list[int]]:  # noqa: ARG002
        """See RoundMechanism."""
        ledger = self.ledger
        queue = zip(*queues.merged(negated, types), strict=True)
        return pack(queue, ledger.packing, Vacancies(self._capacity, len(ledger.jobs)), self._strict)


@dataclass(frozen=True)
class PublishedSia(Sia):
    """Costs are in steps of 0.01, and 3,000 at most.

    Parameters
    ----------
    tie_seed : of types with the same least cost of all jobs those that a generator with this seed draws, anew for every
        second; None: those that the solver finds, typically the first.
    tie_types : in place of a draw: types in the order in which they are taken at the same cost; those that are not
        named come last, in the order of the cluster.
    """

    tie_seed: NotNegativeWhole | None = None
    tie_types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, good, expected in (
            ("tie_types", not self.tie_types or self.tie_seed is None, "none beside a tie_seed"),
            ("tie_types", len(set(self.tie_types)) == len(self.tie_types), "each type once"),
        ):
            if not good:
                raise InputError("policy sia", field=name, found=getattr(self, name), expected=expected)

    def program_of(self, state: ClusterState, ways: Configurations, held: Ints, kept: Floats) -> SiaProgram:
        """The program of a state."""
        program = super().program_of(state, ways, held, kept)
        return replace(program, decimals=2, most_cost=3000.0, ties=self._ties(state, ways))

    def _ties(self, state: ClusterState, ways: Configurations) -> Floats | float:
        """(C,) parts of a step, equal for columns of one job and type, of which the fewest GPUs are taken then."""
        most = 0.5 / max(ways.n_jobs, 1)
        if self.tie_types:
            for name in self.tie_types:
                if name not in ways.pools:
                    expected = one_of(name, ways.pools)
                    raise InputError("policy sia", field="tie_types", found=name, expected=expected)
            order = {name: place for place, name in enumerate(dict.fromkeys((*self.tie_types, *ways.pools)))}
            place = np.array([order[name] for name in ways.pools])
            return np.asarray((1.0 - place / len(order))[ways.pool] * most)
        if self.tie_seed is None:
            return 0.0
        draws = np.random.default_rng([self.tie_seed, int(state.clock)]).random((ways.n_jobs, len(ways.pools)))
        return np.asarray(draws[ways.job, ways.pool] * most)


@dataclass(frozen=True)
class StartsByShape(StartsTakeTime):
    """Gangs that start take time.

    Attributes
    ----------
    restart_keeps_shape : of jobs with goodput, one that goes on with as many GPUs on each node of the same type does
        not start anew, whichever nodes these are.
    """

    restart_keeps_shape: bool = False

    def in_a_run(self, world: World) -> Starts:
        """Who starts, and on another shape."""
        return _ByShape(self, world) if self.restart_keeps_shape else super().in_a_run(world)


class _ByShape(Starts):
    def lost(self, decision: Decision) -> Floats:
        """Nothing on the same shape."""
        lost = super().lost(decision)
        for running in self._world.running:
            if isinstance(running, GoodputRuns):
                return np.where(running.alike, 0.0, lost)
        return lost


# Policies in rounds have six minutes, each with a decision, and a mechanism close to that of Gavel's simulator.
_ROUNDS: Mapping[str, Any] = {
    "round_seconds": 360.0,
    "decide_every_seconds": 360.0,
    "slot_seconds": 360.0,
    "goodput_in_rounds": "trained",
    "restart_delays": True,
    "placement": "in_order",
    "discipline": FractionsSinceArrival(),
}

SIA = Preset(
    "sia",
    MechanismSettings(placement="anew", decide_every_seconds=60.0),
    (
        StartsByShape(
            restart_penalty_seconds=30.0,
            restart_when_moved=True,
            restart_penalty_by_job_type=(
                ("bert", 120.0),
                ("cifar10", 50.0),
                ("deepspeech2", 25.0),
                ("imagenet", 250.0),
                ("ncf", 15.0),
                ("yolov3", 80.0),
            ),
            restart_keeps_shape=True,
        ),
        EVERY_MINUTE,
        replace(
            GOODPUT,
            goodput_fit="sia",
            goodput_slowdown=(
                ("bert", 1.2),
                ("cifar10", 1.8),
                ("deepspeech2", 1.2),
                ("imagenet", 1.2),
                ("ncf", 1.5),
                ("yolov3", 1.2),
            ),
        ),
    ),
    world_settings={
        "max_sum_throughput_perf": _ROUNDS,
        "finish_time_fairness_perf": _ROUNDS,
        "shockwave": _ROUNDS,
    },
    policies={"sia": "allocator.published.sia:PublishedSia"},
    policy_settings={
        "finish_time_fairness_perf": {"choice": "published"},
        "shockwave": {"future_rounds": 5, "makespan_weight": 1e-9, "round_seconds": 360.0},
        "sia": {
            "restart_seconds": 30.0,
            "restart_seconds_of_type": (
                ("bert", 120.0),
                ("cifar10", 30.0),
                ("deepspeech2", 25.0),
                ("imagenet", 250.0),
                ("yolov3", 45.0),
            ),
        },
    },
    comparison=replace(POLLUX.comparison, policies=("sia",)),
)
