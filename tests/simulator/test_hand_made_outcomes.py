"""Rounds, GPUs and yardsticks of small runs worked out by hand, seen from outside: tables in, tables out.

Each of them comes out otherwise if one rule of the mechanism or of a yardstick is another one.
"""

from __future__ import annotations

import numpy as np

from allocator.cluster import Cluster
from allocator.registry import get_policy
from allocator.simulator import preset, simulate
from tests.simulator.cases import with_settings
from throughputs import ThroughputTable, Trace


def test_contention_counts_every_round_of_a_job_from_admission_to_completion():
    """One GPU, rounds of 100 s, first come, first served: 1, 1, 3, 2 and 1 jobs in the cluster round by round."""
    trace = Trace(["job"] * 3, [1] * 3, [300.0, 100.0, 100.0], [0.0, 150.0, 150.0])
    table = ThroughputTable([("job", 1)], ["v100"], [[1.0]])
    # Profiles, and with them the yardsticks, are kept where something may ask for them.
    chosen = with_settings(preset("default"), round_seconds=100.0, overtime_factor=100.0)
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
