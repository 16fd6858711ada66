"""Lucid: who shares with whom, quiet hours, the profiling pool, lent servers, and the program for the greedy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from allocator import Cluster, SimulationResult, simulate
from allocator.policies.lucid.profiling import ArrivalForecast, ProfilerSettings, profile_apart
from allocator.presets import preset
from throughputs import RetainedFractions, ThroughputTable, Trace

KINDS = ("light", "middle", "heavy")
SCORES = {"light": 0, "middle": 1, "heavy": 2}
RETAINED = np.array([[1.0, 0.9, 0.8], [0.9, 0.8, 0.6], [0.8, 0.6, 0.5]])

World = dict[str, Any]


def run(
    jobs: str,
    gpus: str,
    policy: str = "lucid",
    servers: str | None = None,
    world: World | None = None,
    system: str = "default",
    **settings: Any,
) -> SimulationResult:
    """Jobs, each a kind, GPUs, seconds and arrival, that go at 1 step/s on every pool."""
    cluster = Cluster.parse(gpus, servers)
    pools = cluster.accelerators
    keys = [(kind, size) for size in (1, 2, 4, 8, 16) for kind in KINDS]
    model = RetainedFractions(KINDS, pools, np.repeat(RETAINED[:, :, None], len(pools), axis=2))
    table = ThroughputTable(keys, pools, np.ones((len(keys), len(pools)))).with_colocation(model, (1, 2, 4, 8, 16))
    kinds, *columns = zip(*(job.split() for job in jobs.strip("; ").split("; ")), strict=True)
    sizes, seconds, arrivals = (list(map(float, column)) for column in columns)
    trace = Trace(kinds, sizes, seconds, arrivals, duration=seconds)
    alike = preset("default").replace(placement="best_fit", restart_penalty_seconds=0.0, **(world or {}))
    made = preset(system).make_policy(policy, cluster, **{"scores": SCORES, **settings})
    return simulate(trace, cluster, made, table, preset=alike)


def starts(result: SimulationResult) -> list[float]:
    return result.jobs["start_time"].tolist()


def ends(result: SimulationResult) -> list[float]:
    return result.jobs["completion_time"].tolist()


def test_two_jobs_share_and_the_one_left_alone_recovers() -> None:
    found = run("light 1 90 0; middle 1 180 0", "v100:1", score_budget=1)
    # Both keep 0.9: the first is through at 100 s, when the second has 90 of its 180 steps left.
    assert starts(found) == [0.0, 0.0]
    assert ends(found) == pytest.approx([100.0, 190.0])


@pytest.mark.parametrize(("budget", "joins"), [(0, False), (1, True), (2, True)])
def test_the_budget_bounds_the_scores_of_two(budget: int, joins: bool) -> None:
    found = run("light 1 100 0; middle 1 100 0", "v100:1", score_budget=budget)
    assert (starts(found)[1] == 0.0) == joins


def test_the_shorter_job_goes_first_and_a_long_one_does_not_join_it() -> None:
    found = run("light 1 500 0; light 1 100 0", "v100:1")
    assert starts(found) == [100.0, 0.0]
    assert starts(run("light 1 200 0; light 1 100 0", "v100:1")) == [0.0, 0.0]
    assert starts(run("light 1 500 0; light 1 100 0", "v100:1", length_ratio=5.0)) == [0.0, 0.0]


def test_gangs_share_with_gangs_of_their_size_up_to_eight() -> None:
    assert starts(run("light 2 100 0; light 1 100 0", "v100:2")) == [100.0, 0.0]
    assert starts(run("light 16 100 0; " * 2, "v100:16", servers="v100:8")) == [0.0, 100.0]
    assert starts(run("light 8 100 0; " * 2, "v100:8", servers="v100:8")) == [0.0, 0.0]


def test_free_gpus_come_first_unless_one_packs_first() -> None:
    jobs = "middle 1 100 0; middle 1 100 1"
    assert ends(run(jobs, "v100:2")) == [100.0, 101.0]
    assert ends(run(jobs, "v100:2", system="lucid"))[1] > 101.0


def test_a_host_takes_one_guest_at_a_time() -> None:
    found = run("light 1 100 0; light 1 110 0; light 1 120 0", "v100:1")
    assert starts(found) == [0.0, 0.0, 100.0]


def forecast_of(*jobs: float) -> ArrivalForecast:
    """So many jobs in each interval of ten minutes."""
    return ArrivalForecast(tuple(600.0 * i for i in range(len(jobs))), jobs, jobs)


def test_nobody_is_packed_in_quiet_hours_and_the_line_is_strict() -> None:
    even = forecast_of(*[3.0] * 40)
    jobs = "light 1 5000 0; light 2 3000 10; light 1 6500 20"
    assert starts(run(jobs, "v100:2", forecast=even, quiet_jobs=2.0)) == [0.0, 6520.0, 20.0]
    assert starts(run(jobs, "v100:2", forecast=even, quiet_jobs=3.0)) == [0.0, 5000.0, 8000.0]
    # At 4,200 s the next five intervals have three busy ones: packing is switched on while nothing else happens.
    rising = forecast_of(*[0.0] * 10, *[9.0] * 30)
    two = "light 1 9000 0; light 1 9000 10"
    assert starts(run(two, "v100:1", forecast=rising, quiet_jobs=5.0)) == [0.0, 4200.0]
    # it is looked at now and then only
    late = {"forecast": rising, "quiet_jobs": 5.0, "review_seconds": 3000.0}
    assert starts(run("light 1 9000 0; light 1 9000 5000", "v100:1", **late)) == [0.0, 6000.0]


def test_who_is_through_at_the_limit_has_ended_in_the_profiler() -> None:
    found = profile_apart([0, 0], [1, 1], [200, 201], ProfilerSettings(limit_seconds=200))
    assert (found.ended.tolist(), found.end.tolist()) == ([True, False], [200.0, 200.0])


def test_new_jobs_are_profiled_first_for_a_while_at_most() -> None:
    jobs = "heavy 2 500 0; heavy 1 150 0; heavy 4 300 0"
    found = run(jobs, "v100:4,lab:2", profiling_pool="lab", profiling_gpus=2)
    # One GPU first, to its end; the gang of two from then on for 200 s; that of four is too large for it.
    assert starts(found) == [150.0, 0.0, 0.0]
    assert ends(found) == [650.0, 150.0, 300.0]
    rounds = found.rounds.sort_values(["job_id", "start_time"])
    assert rounds[rounds["job_id"] == 0]["accelerator"].tolist() == ["lab", "v100"]
    assert set(rounds[rounds["job_id"] == 2]["accelerator"]) == {"v100"}


def test_a_lent_server_is_out_of_use_until_it_comes_back() -> None:
    jobs = "heavy 8 100 0; heavy 8 100 20"
    lent = {"servers": "v100:8", "system": "lucid", "loans": ((10.0, -1), (60.0, 1)), "lender": "v100"}
    found = run(jobs, "v100:16", **lent)
    # the line has been walked through when it comes back
    assert starts(found) == [0.0, 61.0]
    # Servers in use are not lent.
    busy = run("heavy 8 100 0; " * 2, "v100:16", **lent)
    assert starts(busy) == [0.0, 0.0]


def test_the_program_chooses_the_pairs_that_save_most() -> None:
    jobs = "middle 1 5000 0; light 1 6000 0; middle 1 1000 1"
    greedy, best = (run(jobs, "v100:2", policy, score_budget=2) for policy in ("lucid", "lucid_program"))
    partner = {
        name: found.rounds.query("job_id == 2")["partner"].iloc[0]
        for name, found in (("greedy", greedy), ("best", best))
    }
    # The first host is the shorter one, which it disturbs more.
    assert partner == {"greedy": 0, "best": 1}
    assert sum(ends(best)) < sum(ends(greedy))


def test_scores_follow_from_what_jobs_keep_where_none_are_given() -> None:
    """On the average light ones keep and leave 0.9 and heavy ones 0.65 of the throughput."""
    found = run(
        "light 1 100 0; heavy 1 100 0; light 1 100 0", "v100:1", scores={}, score_budget=1, score_thresholds=(0.85, 0.7)
    )
    assert sorted(starts(found)) == [0.0, 0.0, 100.0]
