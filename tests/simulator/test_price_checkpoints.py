"""Runs under a policy with a table of prices go on from a checkpoint, and only with the same prices."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from allocator import Cluster, default_table, get_policy, simulate
from allocator.presets import Preset
from throughputs import InputError, PriceTable, TraceGenerator

COST = "max_sum_throughput_normalized_by_cost_perf"


class StoppedError(Exception):
    """The run is cut off."""


HISTORY = {"v100": ([0, 7200], [0.74, 0.9]), "p100": ([0], [0.43]), "k80": ([0], [0.135])}
OTHER = {
    "one price": {"k80": ([0], [0.2])},
    "a later price": {"v100": ([0, 7200], [0.74, 0.91])},
    "when a price changes": {"v100": ([0, 7201], [0.74, 0.9])},
    "one change more": {"v100": ([0, 7200, 9000], [0.74, 0.9, 1.0])},
    "two types swapped": {"p100": ([0], [0.135]), "k80": ([0], [0.43])},
}


def prices(k80: float = 0.135) -> PriceTable:
    """A history, built anew each time as another process would."""
    return PriceTable(HISTORY | {"k80": ([0], [k80])})


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Arguments of a run whose costs are reckoned, stopped after some rounds, with the file that it left."""
    folder, table = tmp_path_factory.mktemp("prices"), default_table()
    run = {
        "trace": TraceGenerator(n_jobs=8, mean_interarrival=600, seed=4, table=table).generate(),
        "cluster": Cluster.parse("v100:4,p100:4,k80:4"),
        "throughputs": table,
        "policy": get_policy("isolated"),
        "preset": Preset(),
        "checkpoint": folder / "run.checkpoint",
    }

    calls = itertools.count()

    def stop(*_: object) -> None:
        if next(calls) == 3:
            raise StoppedError

    with pytest.raises(StoppedError):
        simulate(**run, prices=prices(), checkpoint_every=1, progress=stop)
    return run


@pytest.mark.parametrize("change", OTHER)
def test_a_run_with_other_prices_is_another_run(change: str, stopped: dict[str, Any]) -> None:
    """The policy does not read them: what differs are the costs that are reckoned, and they would be mixed."""
    before = stopped["checkpoint"].read_bytes()
    with pytest.raises(InputError, match="prices"):
        simulate(**stopped, prices=PriceTable(HISTORY | OTHER[change]), resume=True)
    assert stopped["checkpoint"].read_bytes() == before


def test_a_run_without_prices_is_another_run(stopped: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="prices"):
        simulate(**stopped, resume=True)


def test_equal_prices_however_they_are_given(stopped: dict[str, Any], tmp_path: Path) -> None:
    kept = tmp_path / "run.checkpoint"
    kept.write_bytes(stopped["checkpoint"].read_bytes())
    resumed = simulate(**(stopped | {"checkpoint": kept}), prices=prices(), resume=True)
    whole = simulate(**{name: value for name, value in stopped.items() if name != "checkpoint"}, prices=prices())
    pd.testing.assert_frame_equal(resumed.jobs, whole.jobs)
    assert resumed.jobs["cost"].sum() > 0


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
