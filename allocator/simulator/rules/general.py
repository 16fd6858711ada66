"""Rules that change what a run begins with, and limits at which it is given up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from allocator.conversion import AtLeastOne, NotNegative, NotNegativeWhole
from allocator.simulator.rules.base import Rule


@dataclass(frozen=True)
class Limits(Rule):
    """When a run is cut short.

    Attributes
    ----------
    max_rounds_without_progress : the simulation stops with an error after so many rounds in a row in which no job did
        a step although some are active and no arrival is to come.
    max_waiting_jobs : the run is cut short as saturated when more jobs wait in a round; None: no limit.
    max_clock_seconds : the run is cut short as saturated when the clock passes this time; None: no limit.
    """

    max_rounds_without_progress: AtLeastOne = 100
    max_waiting_jobs: NotNegativeWhole | None = None
    max_clock_seconds: NotNegative | None = None


@dataclass(frozen=True)
class IdealShares(Rule):
    """A world without rounds.

    Attributes
    ----------
    ideal : no rounds; at every moment each job gets exactly its shares, and the policy decides at every arrival and
        completion. The settings of rounds and queues then mean nothing.
    """

    ideal: bool = False


@dataclass(frozen=True)
class SpreadGangs(Rule):
    """Gangs over several servers.

    Attributes
    ----------
    unconsolidated_throughputs : a gang whose GPUs are on more than one server goes at the throughput that the table
        has for that. Policies reckon with the consolidated one.
    """

    unconsolidated_throughputs: bool = False


@dataclass(frozen=True)
class GangRates(Rule):
    """How fast a job goes with its own number of GPUs.

    Attributes
    ----------
    gang_rates : "table": as the throughputs say; "duration": as the trace says, its steps over its duration.
    """

    gang_rates: Literal["table", "duration"] = "table"


@dataclass(frozen=True)
class DeadlineMeasure(Rule):
    """Which jobs the deadline ratio of the results counts as in time.

    Attributes
    ----------
    deadline_measure : "first": those that completed by their first deadline, as in ElasticFlow; "last": by any of their
        deadlines; "value": each in part, by the value of the deadline that it kept over that of its first, one less
        Chronus' miss rate. For jobs with one deadline all are the same.
    """

    deadline_measure: Literal["first", "last", "value"] = "first"


@dataclass(frozen=True)
class BatchSizes(Rule):
    """Jobs of mode accordion and gns.

    Attributes
    ----------
    batch_size_adaptation : whether such jobs change their batch size. "off": never; "exact": as their rule says,
        keeping their progress; "published": as the simulator of Shockwave does, one of their rounds late and with
        progress rounded up to a whole epoch.
    """

    batch_size_adaptation: Literal["off", "exact", "published"] = "exact"
