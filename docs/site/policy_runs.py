"""What the pages of policies show: a small run of each policy on the same jobs, and audits of its allocations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from allocator import Cluster, SimulationResult, Trace, get_policy, load_throughputs, simulate
from allocator.audit import audit
from allocator.protocol import Policy
from allocator.results.deadlines import assign_slos
from allocator.testing.worlds import World, for_one_type
from throughputs import LogUniformDurations, TraceGenerator

CLUSTER, CLUSTER_OF_ONE_TYPE = "v100:4,p100:4,k80:4", "v100:8"
JOBS = 24

_GANGS = {1: 0.6, 2: 0.25, 4: 0.15}
# Those that run on every type at every size drawn.
_JOB_TYPES = ("ResNet-18 (batch size 64)", "LM (batch size 20)", "ResNet-50 (batch size 32)", "LM (batch size 5)")
_WORLDS = tuple(World(n_jobs, seed) for n_jobs in (3, 6, 10) for seed in (0, 1))
_PROBED_JOBS, _MISREPORTS = 3, 4


@cache
def jobs() -> Trace:
    """24 jobs of one, two or four GPUs, one every five minutes on average, each with a deadline."""
    # a quarter of the lengths that are usually drawn: planners decide every minute as long as anybody is there
    generator = TraceGenerator(
        n_jobs=JOBS,
        mean_interarrival=300.0,
        durations=LogUniformDurations(unit=15.0),
        scale_factors=_GANGS,
        job_types=_JOB_TYPES,
        seed=4,
    )
    return assign_slos(generator.generate(), np.random.default_rng(0))


def cluster_of(policy: Policy) -> str:
    """The cluster of the small run of a policy: of one type for a policy that is for those."""
    return CLUSTER_OF_ONE_TYPE if for_one_type(policy) else CLUSTER


@cache
def run(name: str) -> SimulationResult:
    """The small run of a policy with its default settings."""
    policy = get_policy(name)
    return simulate(jobs(), Cluster.parse(cluster_of(policy)), policy, load_throughputs(colocated=True))


@dataclass(frozen=True)
class Measured:
    """A property over all audited allocations of a policy.

    Attributes
    ----------
    name, definition : as in the audit.
    held, audits : in how many of how many it held; None for a figure that is neither good nor bad.
    values : its value in each.
    """

    name: str
    definition: str
    held: int | None
    audits: int
    values: Sequence[float]


@cache
def audited(name: str) -> tuple[Measured, ...]:
    """Properties of six allocations of a policy that answers with shares: 3, 6 and 10 jobs, two draws of each.

    A policy that answers with plans has none.
    """
    policy = get_policy(name)
    if policy.answers != "shares":
        return ()
    audits = [
        audit(policy.allocate(state), state, policy, probed_jobs=_PROBED_JOBS, misreports=_MISREPORTS)
        for state in (world.state(policy) for world in _WORLDS)
    ]
    found = []
    for place, first in enumerate(audits[0].properties):
        each = [one.properties[place] for one in audits]
        held = None if first.holds is None else sum(bool(one.holds) for one in each)
        found.append(Measured(first.name, first.definition, held, len(each), [one.value for one in each]))
    return tuple(found)
