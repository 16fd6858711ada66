from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from allocator.report.bars import merge_rounds
from allocator.results.result import SimulationResult
from throughputs.numerics import interval_means


def test_bars_hold_exactly_the_rounds_and_no_two_could_be_merged(results: list[SimulationResult]) -> None:
    for result in results:
        rounds = result.rounds
        bars = merge_rounds(rounds, rounds["job_id"].to_numpy(np.int64))
        expected = {
            (int(gpu), job, number)
            for number, job, gpus in rounds[["round", "job_id", "gpus"]].itertuples(index=False)
            for gpu in gpus
        }
        columns = (bars.gpu.tolist(), bars.job.tolist(), bars.first_round.tolist(), bars.last_round.tolist())
        found = [
            (gpu, job, number)
            for gpu, job, first, last in zip(*columns, strict=True)
            for number in range(first, last + 1)
        ]
        assert (set(found), len(found)) == (expected, len(expected))
        touching = (np.diff(bars.gpu) == 0) & (np.diff(bars.job) == 0)
        assert not (touching & (bars.first_round[1:] == bars.last_round[:-1] + 1)).any()


def test_a_gap_or_another_job_splits_a_bar() -> None:
    rounds = pd.DataFrame(
        {
            "round": [0, 1, 2, 4, 0, 1],
            "start_time": [0.0, 10, 20, 40, 0, 10],
            "end_time": [10.0, 20, 30, 45, 10, 20],
            "gpus": [(3,), (3, 1), (3,), (3,), (1,), ()],
        }
    )
    bars = merge_rounds(rounds, np.array([7, 7, 7, 7, 8, 8]))
    table = np.column_stack([bars.gpu, bars.job, bars.first_round, bars.last_round, bars.start, bars.end])
    assert table.tolist() == [
        [1, 8, 0, 0, 0, 10],
        [1, 7, 1, 1, 10, 20],
        [3, 7, 0, 2, 0, 30],
        [3, 7, 4, 4, 40, 45],
    ]
    assert len(merge_rounds(rounds.iloc[:0], np.empty(0, np.int64))) == 0


@pytest.mark.parametrize("seed", range(3))
def test_interval_means_against_sampling(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 90, size=30).astype(np.float64)
    end, height = start + rng.integers(1, 10, size=30).astype(np.float64), rng.uniform(0, 4, size=30)
    edges = np.array([0.0, 3.0, 10.0, 50.0, 51.0, 120.0])
    # Pulses begin and end at whole numbers, so that the middles of unit steps sample them exactly.
    middles = np.arange(120) + 0.5
    level = (((start[:, None] <= middles) & (middles < end[:, None])) * height[:, None]).sum(axis=0)
    expected = [level[int(a) : int(b)].mean() for a, b in pairwise(edges.tolist())]
    np.testing.assert_allclose(interval_means(start, end, height, edges), expected, atol=1e-9)
