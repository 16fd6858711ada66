"""Runs under a policy with a table of prices go on from a checkpoint, and only with the same prices."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from allocator import Cluster, default_table, get_policy, simulate
from throughputs import InputError, PriceTable, TraceGenerator

COST = "max_sum_throughput_normalized_by_cost_perf"


class StoppedError(Exception):
    """The run is cut off."""


def prices(k80: float = 0.135) -> PriceTable:
    """A history, built anew each time as another process would."""
    return PriceTable({"v100": ([0, 7200], [0.74, 0.9]), "p100": ([0], [0.43]), "k80": ([0], [k80])})


def test_the_same_prices_go_on_and_others_do_not(tmp_path: Path) -> None:
    table = default_table()
    trace = TraceGenerator(n_jobs=8, mean_interarrival=600, seed=4, table=table).generate()
    run = {"trace": trace, "cluster": Cluster.parse("v100:4,p100:4,k80:4"), "throughputs": table}
    rounds = 0

    def stop(*_: object) -> None:
        nonlocal rounds
        rounds += 1
        if rounds > 3:
            raise StoppedError

    kept = run | {"checkpoint": tmp_path / "run.checkpoint"}
    with pytest.raises(StoppedError):
        simulate(**kept, policy=get_policy(COST, prices=prices()), checkpoint_every=1, progress=stop)
    assert (tmp_path / "run.checkpoint").exists()
    with pytest.raises(InputError, match=r"field 'policy'.*k80: 0\.2"):
        simulate(**kept, policy=get_policy(COST, prices=prices(0.2)), resume=True)
    resumed = simulate(**kept, policy=get_policy(COST, prices=prices()), resume=True)
    whole = simulate(**run, policy=get_policy(COST, prices=prices()))
    pd.testing.assert_frame_equal(resumed.jobs, whole.jobs)
