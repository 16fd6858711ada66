"""The audit: all properties of one allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from allocator.audit.case import case_of
from allocator.audit.explain import agree, explain
from allocator.audit.probe import probe_strategy
from allocator.audit.properties import envy, feasibility, pareto_efficiency, sharing_incentive, utilisation
from allocator.audit.record import Audit

if TYPE_CHECKING:
    from allocator.protocol.allocation import Allocation
    from allocator.protocol.policy import Policy
    from allocator.protocol.state import ClusterState


def audit(
    allocation: Allocation,
    state: ClusterState,
    policy: Policy | None = None,
    *,
    seed: int = 0,
    probed_jobs: int = 8,
    misreports: int = 8,
) -> Audit:
    """Properties of `allocation`, each with its definition, value and worst job, and an explanation for each job.

    Prices are those of the policy's program where they send every job to where it is. Where there are none, or where
    they are of the few jobs that hold the objective, those at which the program of Pareto efficiency values GPUs.

    Parameters
    ----------
    allocation, state, policy : what was decided, from what, and by whom; without a policy nothing is probed.
    seed : of the jobs and misreports of the probe; nothing else is random, and no draw depends on the order of the
        jobs.
    probed_jobs, misreports : jobs that misreport, and misreports of each; 0 of either for no probe.

    Raises
    ------
    InputError
        The allocation is of other jobs or types than the state.

    Sources: Narayanan et al., OSDI 2020, section 4.4 (properties of policies); Ghodsi et al., NSDI 2011 (sharing
    incentive, envy-freeness, Pareto efficiency, strategy-proofness of shares of several resources).
    """
    case = case_of(allocation, state)
    efficiency, worth = pareto_efficiency(case, state, policy)
    prices, unit = allocation.prices, allocation.objective_unit
    if prices is None or not agree(case, prices):
        prices, unit = worth, "total normalised throughput"
    properties = [feasibility(case), sharing_incentive(case), envy(case), efficiency]
    if probed_jobs > 0 and misreports > 0 and policy is not None:
        rng = np.random.default_rng(seed)
        properties.append(probe_strategy(case, state, policy, rng, jobs=probed_jobs, misreports=misreports))
    properties.append(utilisation(case))
    return Audit(
        policy=allocation.policy,
        properties=tuple(properties),
        explanations=explain(case, prices),
        prices=dict(zip(case.accelerators, prices.tolist(), strict=True)),
        price_unit=f"{unit} per GPU",
    )
