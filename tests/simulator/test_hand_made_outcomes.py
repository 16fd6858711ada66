"""Rounds, GPUs and yardsticks of small runs worked out by hand, seen from outside: tables in, tables out.

Each of them comes out otherwise if one rule of the mechanism or of a yardstick is another one.
"""

from __future__ import annotations

import numpy as np

from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.simulator import preset, simulate
from tests.simulator.worlds import SharesPolicy, make_trace
from throughputs import ThroughputTable, Trace


def order_of_rounds(sizes: list[int], shares: list[float], rounds: int) -> list[int]:
    """Who runs in each of the first rounds on two GPUs, where any two of the jobs want more than these."""
    result = simulate(
        make_trace([1e6] * len(sizes), sizes),
        Cluster({"v100": 2}),
        SharesPolicy(lambda _: np.array(shares)[:, None], fills_idle_gpus=False),
        np.ones((len(sizes), 1)),
        preset=preset("default").replace(max_clock_seconds=360.0 * rounds, idle_fill="best_type"),
    )
    table = result.rounds[result.rounds["round"] < rounds]
    assert not table.duplicated("round").any()
    return table.sort_values("round")["job_id"].tolist()


def test_a_gang_is_owed_the_time_of_all_its_gpus() -> None:
    """What a gang of two is owed counts twice: 2 (0.3 k - a) beside 0.5 k - b at the end of round k, in rounds.

    At the end of the first round 0.6 beside 0.5: the gang goes first, though the single job has the larger share.
    """
    owed, ran, expected = np.zeros(2), np.zeros(2), []
    for k in range(1, 13):
        owed = np.array([2.0, 1.0]) * (np.array([0.3, 0.5]) * k - ran)
        expected.append(int(owed.argmax()))
        ran[expected[-1]] += 1
    assert expected == [0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 0]
    assert order_of_rounds([2, 1], [0.3, 0.5], 12) == expected


def test_gangs_take_the_fullest_server_with_room_for_them() -> None:
    """Five gangs come one after the other to three servers of four GPUs, and all stay."""
    sizes, arrivals = [2, 3, 1, 2, 4], [0.0, 1.0, 361.0, 721.0, 1081.0]
    cluster = Cluster({"v100": 12}, {"v100": 4})
    result = simulate(make_trace([7200.0] * 5, sizes, arrivals), cluster, SharesPolicy(), np.ones((5, 1)))
    gpus = result.rounds.groupby("job_id")["gpus"].agg(set).map(sorted).tolist()
    # The 2 has the first server and the 3 no room there. The 1 fills up the second server, which has one GPU left,
    # rather than the first, which has two, or the third, which is empty; the other 2 fills up the first. So the third
    # is whole when the 4 comes.
    assert gpus == [["0 1"], ["4 5 6"], ["7"], ["2 3"], ["8 9 10 11"]]


def test_a_full_server_is_left_for_the_gang_that_needs_one() -> None:
    """The last gang runs at the speed of one server: nobody was put where it could do without."""
    table = ThroughputTable(
        [("job", size) for size in (1, 2, 3, 4)],
        ["v100", "v100_unconsolidated"],
        [[1.0, 1.0], [1.0, 0.5], [1.0, 0.5], [1.0, 0.25]],
    )
    trace = make_trace([7200.0] * 5, [2, 3, 1, 2, 4], [0.0, 1.0, 361.0, 721.0, 1081.0])
    slower = preset("default").replace(unconsolidated_throughputs=True)
    result = simulate(trace, Cluster({"v100": 12}, {"v100": 4}), SharesPolicy(), table, preset=slower)
    # Each starts with the round after its arrival, and then nothing keeps it from its end.
    assert result.jobs["start_time"].tolist() == [0.0, 360.0, 720.0, 1080.0, 1440.0]
    assert (result.jobs["completion_time"] - result.jobs["start_time"]).tolist() == [7200.0] * 5


def test_contention_counts_every_round_of_a_job_from_admission_to_completion() -> None:
    """One GPU, rounds of 100 s, first come, first served: 1, 1, 3, 2 and 1 jobs in the cluster round by round."""
    trace = Trace(["job"] * 3, [1] * 3, [300.0, 100.0, 100.0], [0.0, 150.0, 150.0])
    table = ThroughputTable([("job", 1)], ["v100"], [[1.0]])
    # Profiles, and with them the yardsticks, are kept where something may ask for them.
    chosen = preset("default").replace(round_seconds=100.0, overtime_factor=100.0)
    result = simulate(trace, Cluster({"v100": 1}), get_policy("fifo"), table, preset=chosen)
    assert result.timeline["active_jobs"].tolist() == [1, 1, 3, 2, 1]
    assert result.jobs["jct"].tolist() == [300.0, 250.0, 350.0]
    alone = np.array([300.0, 100.0, 100.0])
    contention = np.array([(1 + 1 + 3) / 3, (3 + 2) / 2, (3 + 2 + 1) / 3])
    jct = result.jobs["jct"]
    np.testing.assert_allclose(result.jobs["rho_themis"], jct / (alone * contention), rtol=1e-12)
    # Three jobs on one GPU all the while.
    np.testing.assert_allclose(result.jobs["rho_static"], jct / (alone * 3), rtol=1e-12)
    # On four GPUs nobody waits, and there is no contention below 1.
    apart = simulate(trace, Cluster({"v100": 4}), get_policy("fifo"), table, preset=chosen)
    np.testing.assert_allclose(apart.jobs["rho_themis"], apart.jobs["jct"] / alone, rtol=1e-12)
