"""A whole system in one file: the cluster of a campus, with its scheduler, its jobs and its log."""

from dataclasses import dataclass

import numpy as np

from allocator import Need, OrderPolicy
from allocator.experiments.workloads import OwnWorkload
from allocator.presets import Comparison, Preset
from allocator.simulator import Rule, RunningRule
from allocator.simulator.rules.starts import StartsTakeTime
from throughputs import Trace
from throughputs.traces.logs.layouts import Layout


@dataclass(frozen=True)
class WholeMinutes(Rule):
    """The scheduler wakes up at whole minutes only."""

    wake_seconds: float = 60.0

    def start(self, world):
        """Says when the world looks."""
        return [Awake(self.wake_seconds)]


class Awake(RunningRule):
    """What happens is seen at the next whole minute."""

    says_ends = False

    def __init__(self, seconds):
        self.seconds = seconds

    def seen_at(self, time):
        """Seconds."""
        return np.ceil(time / self.seconds) * self.seconds


@dataclass(frozen=True)
class SharedLink(Rule):
    """Gangs of several GPUs share one switch, and each slows all of them down."""

    slowdown: float = 0.02

    def start(self, world):
        """Says how fast jobs go."""
        return [Shared(self.slowdown)]


class Shared(RunningRule):
    """Goes by the gangs that run."""

    says_ends = False

    def __init__(self, slowdown):
        self.slowdown = slowdown

    def rates(self, decision, at, rates):
        """Until the next decision."""
        wide = decision.assignment.gpus > 1
        return rates / (1 + self.slowdown * wide.sum() * wide)


@dataclass(frozen=True)
class CampusLine(OrderPolicy):
    """Users who have used the least GPU time go first; every hour of waiting makes up for some of it."""

    hours_for_waiting: float = 1.0

    needs = Need.SERVICE
    in_order_of_rows = True  # of equals, who came first
    paper = "an example"
    program = "in order of sum_{k of the user of i} GPU time of k - a (clock - arrival_i)"

    def key(self, state):
        """(N,) GPU seconds."""
        _, user = np.unique(state.submitter.astype(str), return_inverse=True)
        used = np.bincount(user, state.gpu_seconds)[user]
        return used - self.hours_for_waiting * state.elapsed_seconds


@dataclass(frozen=True, kw_only=True)
class CampusWorkload(OwnWorkload):
    """Jobs of the default generator, of ten users, who submit between nine and five."""

    generator = "campus"

    def drawn(self, draw):
        """As many jobs as are asked for."""
        trace = super().drawn(draw)
        columns = {name: getattr(trace, name) for name in Trace.column_names()}
        day, since_nine = np.divmod(columns["arrival_time"], 8 * 3600.0)
        columns["arrival_time"] = day * 86400.0 + since_nine
        columns["user"] = [f"user{k}" for k in draw.stream(1).integers(10, size=len(trace))]
        return Trace(**columns, source=f"campus generator (seed={draw.seed})")


LOG = Layout(
    "campus",
    {"id": "ticket", "user": "who", "gpus": "cards", "submit": "asked", "start": "began", "end": "ended"},
    told_by=("ticket", "who", "cards", "asked", "began", "ended"),
    zone="Europe/Zurich",
)

CAMPUS = Preset(
    "campus",
    world=(
        WholeMinutes(),
        SharedLink(),
        StartsTakeTime(restart_penalty_seconds=90.0, restart_when_moved=True),
    ),
    comparison=Comparison(
        policies=("campus_line", "fcfs", "srtf"),
        cluster="v100:16",
        gpus_per_server="v100:4",
        workload={"generator": "campus"},
        jobs=60,
        mean_interarrival_seconds=1500.0,
        labels={"campus_line": "Campus line", "fcfs": "First come, first served", "srtf": "Shortest first"},
    ),
)
