"""A job table that grows, and a core that is told of it."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.mechanism import DecisionCore, MechanismSettings
from allocator.protocol.jobs import JobTable
from tests.simulator.worlds import SharesPolicy, make_trace
from throughputs import InputError, Trace

CLUSTER = Cluster({"v100": 2, "k80": 2})


def table(trace: Trace, seed: int = 0) -> JobTable:
    return JobTable(trace, np.random.default_rng(seed).uniform(1, 2, (len(trace), 2)), CLUSTER)


def test_appended_columns_are_those_of_the_whole() -> None:
    trace = make_trace([5, 6, 7, 8], sizes=[1, 2, 1, 1], arrivals=[0.0, 1.0, 1.0, 9.0])
    whole = table(trace)
    columns = {name: getattr(trace, name)[2:] for name in Trace.column_names()}
    grown = JobTable(trace.head(2), whole.rates[:2], CLUSTER)
    grown.steps_done[1] = 4.0
    grown.append(JobTable(Trace(**columns), whole.rates[2:], CLUSTER))
    assert len(grown) == 4
    assert grown.steps_done.tolist() == [0.0, 4.0, 0.0, 0.0]
    for name in ("job_type", "scale_factor", "total_steps", "arrival_time", "rates", "current_accelerator"):
        assert np.array_equal(getattr(grown, name), getattr(whole, name))
    assert grown.runnable.tolist() == [True] * 4


def test_what_does_not_fit_is_refused() -> None:
    first, earlier = table(make_trace([1], arrivals=[5.0])), table(make_trace([1], arrivals=[4.0]))
    with pytest.raises(InputError, match=r"at least the last arrival so far, 5.0 s"):
        first.append(earlier)
    spread = JobTable(make_trace([1], arrivals=[9.0]), [[1.0, 1.0]], CLUSTER, [[1.0, 1.0]])
    with pytest.raises(InputError, match="unconsolidated_rates"):
        first.append(spread)


@pytest.mark.parametrize("aware", [True, False])
@pytest.mark.parametrize("idle_fill", ["best_type", "queue_order"])
def test_a_core_that_is_told_of_growth_decides_as_one_that_knew(aware: bool, idle_fill: str) -> None:
    trace = make_trace([500] * 8, sizes=[1, 2, 1, 1, 2, 1, 1, 2], arrivals=[0.0] * 8)
    settings = MechanismSettings(idle_fill=idle_fill)  # type: ignore[arg-type]
    knew = table(trace)
    told = JobTable(trace.head(3), knew.rates[:3], CLUSTER)
    cores = [DecisionCore(SharesPolicy(heterogeneity_aware=aware), CLUSTER, jobs, settings) for jobs in (knew, told)]
    rounds: list[list[tuple[list[int], list[int]]]] = [[], []]
    for k, core in enumerate(cores):
        core.arrive([0, 1, 2])
        for number in range(6):
            if number == 2:
                if k == 1:
                    columns = {name: getattr(trace, name)[3:] for name in Trace.column_names()}
                    told.append(JobTable(Trace(**columns), knew.rates[3:], CLUSTER))
                    core.jobs_appended()
                core.arrive([3, 4, 5, 6, 7])
            decision = core.next_round(360.0 * number)
            core.jobs.steps_done[decision.jobs] += 10.0
            core.record(decision, np.full(len(decision.jobs), 360.0))
            rounds[k].append((decision.jobs.tolist(), decision.accelerator.tolist()))
    assert rounds[0] == rounds[1]
    assert np.array_equal(knew.isolated_seconds, told.isolated_seconds)
    assert cores[0].policy_calls == cores[1].policy_calls == 2
