"""Percentiles, parts of the jobs, fragmentation and contention, each against its definition in plain loops."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pandas as pd
import pytest

from allocator import Cluster, get_policy, simulate
from allocator.presets import preset
from allocator.results.measures.completion import percentiles_by_group
from allocator.results.measures.contention import average_concurrency, isolated_run_jct
from allocator.results.measures.fragmentation import fragmentation_table, measure_fragmentation
from allocator.results.measures.parts import named_parts_table, sizes_table
from allocator.results.result import SimulationResult
from allocator.results.summary import Summary
from throughputs import InputError, RetainedFractions, ThroughputTable, Trace

COLUMNS = {"arrival_time": "submit", "completion_time": "finish"}
FREE = preset("default").replace(restart_penalty_seconds=0.0)
TWO_CLUSTERS = Cluster({"red": 20, "blue": 8}, {"red": 8, "blue": 4})


def run(cluster: Cluster = TWO_CLUSTERS, n: int = 60, policy: str = "fifo", **settings: object) -> SimulationResult:
    rng = np.random.default_rng(5)
    seconds = rng.integers(200, 4000, n).astype(float)
    partition = rng.choice(list(cluster.gpus), n)
    trace = Trace(
        ["job"] * n,
        rng.choice([1, 2, 3, 4, 8], n),
        seconds,
        np.sort(rng.integers(0, 20000, n)).astype(float),
        duration=seconds,
        partition=partition.tolist(),
        user=[f"u{k}" for k in rng.integers(0, 5, n)],
    )
    return simulate(trace, cluster, get_policy(policy), None, **settings)


@pytest.fixture(scope="module")
def result() -> SimulationResult:
    return run()


def free_gpus(result: SimulationResult, clock: float) -> dict[str, list[tuple[int, int]]]:
    """(free, all) GPUs of each server of each type, from the table of rounds."""
    rounds, cluster = result.rounds, result.cluster
    there = rounds[(rounds["start_time"] <= clock) & (clock < rounds["end_time"])]
    held = {gpu for gpus in there["gpus"] for gpu in gpus}
    servers: dict[str, list[tuple[int, int]]] = {}
    for name, first in zip(cluster.accelerators, cluster.first_gpu.tolist(), strict=True):
        count, size = cluster.gpus[name], cluster.gpus_per_server[name]
        servers[name] = [
            (sum(first + gpu not in held for gpu in range(at, min(at + size, count))), min(size, count - at))
            for at in range(0, count, size)
        ]
    return servers


def gang_fits(servers: list[tuple[int, int]], size: int, gang: int) -> bool:
    """Takes wholly free servers, then any that has room for the rest."""
    free = sorted((free for free, _ in servers), reverse=True)
    while gang >= size and free and free[0] >= size:
        gang -= free.pop(0)
    return gang == 0 or (gang < size and any(each >= gang for each in free))


@pytest.mark.parametrize("gang", [1, 6, 12])
def test_fragmentation_is_what_the_rounds_say(result: SimulationResult, gang: int) -> None:
    table = fragmentation_table(result.record, gang)
    rng = np.random.default_rng(gang)
    fitted = []
    for clock in rng.uniform(0, result.makespan, 60).tolist():
        for name, servers in free_gpus(result, clock).items():
            row = table[(table["accelerator"] == name) & (table["time"] <= clock)].iloc[-1]
            assert row["free_gpus"] == sum(free for free, _ in servers)
            assert row["fragmented_gpus"] == sum(free for free, size in servers if free < size)
            assert row["gang_fits"] == gang_fits(servers, result.cluster.gpus_per_server[name], gang)
            fitted.append(row["gang_fits"])
    assert gang == 1 or 0 < sum(fitted) < len(fitted)


def test_fragmentation_over_time_is_the_mean_of_the_table(result: SimulationResult) -> None:
    record = result.record
    start, end = 1234.5, 17000.0
    grid = np.arange(start, end, 0.5)
    weights = result.cluster.capacity / result.cluster.capacity.sum()
    for gang in (4, 8):
        measured = measure_fragmentation(record, start, end, gang)
        assert measured is not None
        table = fragmentation_table(record, gang)
        for pool, name in enumerate(result.cluster.accelerators):
            own = table[table["accelerator"] == name]
            at = own.iloc[np.searchsorted(own["time"], grid, side="right") - 1]
            assert measured.share[pool] == pytest.approx(at["fragmented_gpus"].sum() / at["free_gpus"].sum())
            assert measured.fits[pool] == pytest.approx(at["gang_fits"].mean())
            blocked = ~at["gang_fits"] & (at["free_gpus"] >= gang)
            assert measured.blocked[pool] == pytest.approx(blocked.mean())
        assert list(measured.overall.values())[1:] == pytest.approx(
            [measured.fits @ weights, measured.blocked @ weights]
        )
    too_large = measure_fragmentation(record, start, end, 10)
    assert too_large is not None
    assert np.isnan(too_large.fits[1])
    assert too_large.overall["gang_fits_fraction"] == too_large.fits[0]


@pytest.mark.parametrize("n", [0, 1, 7, 200])
def test_percentiles_of_groups_are_those_of_numpy(n: int) -> None:
    rng = np.random.default_rng(n)
    values = np.where(rng.random(n) < 0.2, np.nan, rng.exponential(100, n))
    of = rng.integers(0, 5, n)
    found = percentiles_by_group(values, of, 7, "jct")
    for prefix, percent in {"median": 50, "p90": 90, "p95": 95, "p99": 99, "p99_9": 99.9}.items():
        for group in range(7):
            mine = values[(of == group) & ~np.isnan(values)]
            expected = np.percentile(mine, percent) if len(mine) else np.nan
            assert found[f"{prefix}_jct"][group] == pytest.approx(expected, nan_ok=True)


def measured(policy: str = "fifo", **columns: object) -> Summary:
    """Two jobs of an hour on one type of two, the second half an hour later."""
    trace = Trace(["a", "b"], [4, 2], [3600.0, 3600.0], [0.0, 1800.0], partition=["red", "blue"], **columns)
    cluster = Cluster({"red": 4, "blue": 8}, {"red": 4, "blue": 8})
    return simulate(trace, cluster, get_policy(policy), [[1.0, 0.0], [0.0, 1.0]], preset=FREE).summary()


def test_measured_utilisation_is_a_mean_over_gpu_time() -> None:
    """Up to the last arrival four GPUs of twelve are busy, at 50 %."""
    summary = measured(gpu_utilization=[0.5, 0.9])
    assert summary.gpu_utilization == pytest.approx(0.5 * 4 / 12)
    assert summary.busy_gpu_utilization == pytest.approx(0.5)
    assert summary.known_gpu_utilization == 1.0
    assert summary.by_accelerator is not None
    assert [row["gpu_utilization"] for row in summary.by_accelerator] == pytest.approx([0.5, 0.0])


def test_jobs_that_share_gpus_use_them_together_to_the_full_at_most() -> None:
    table = ThroughputTable([("a", 1), ("b", 1)], ("v100",), np.ones((2, 1)))
    kept = RetainedFractions(("a", "b"), ("v100",), np.ones((2, 2, 1)))
    for used, together in ((0.3, 0.7), (0.8, 1.0)):
        trace = Trace(["a", "b", "b"], [1, 1, 1], [3600.0] * 3, [0.0, 0.0, 1800.0], gpu_utilization=[used, 0.4, 0.4])
        packed = get_policy("lucid", score_budget=4)
        run = simulate(trace, Cluster({"v100": 1}), packed, table.with_colocation(kept), preset=FREE)
        assert run.summary().gpu_utilization == pytest.approx(together)


def test_concurrency_is_the_mean_number_of_jobs_that_a_job_saw(result: SimulationResult) -> None:
    jobs = result.jobs
    arrival, done = jobs["arrival_time"].to_numpy(), jobs["completion_time"].to_numpy()
    found = average_concurrency(result)
    for job in range(0, len(jobs), 7):
        overlap = np.minimum(done, done[job]) - np.maximum(arrival, arrival[job])
        assert found[job] == pytest.approx(np.maximum(overlap, 0).sum() / (done[job] - arrival[job]))


@pytest.mark.parametrize("name", ["sia_r10w1", "sia_tiny"])
def test_concurrency_is_near_what_sia_counts_once_a_round(name: str, reference_data: Callable[[str], Path]) -> None:
    jobs = list(json.loads(reference_data(f"pollux_sia/runs/{name}.json").read_text())["jobs"].values())
    times = {column: [float(job[theirs]) for job in jobs] for column, theirs in COLUMNS.items()}
    made = cast(SimulationResult, SimpleNamespace(jobs=pd.DataFrame(times | {"status": "completed"})))
    assert average_concurrency(made) == pytest.approx([job["n_avg"] for job in jobs], rel=0.05)


def test_isolated_runs_lie_between_whole_numbers_of_gpus(result: SimulationResult) -> None:
    work = result.jobs["total_steps"].to_numpy()
    speeds = {"red": 1.0, "blue": 2.0}
    asked: list[int] = []

    def run_alone(name: str, jobs: np.ndarray, gpus: np.ndarray) -> np.ndarray:
        asked.extend(gpus.tolist())
        return np.where((name == "blue") & (jobs == 3), np.inf, work[jobs] / (speeds[name] * gpus))

    isolated, concurrency = isolated_run_jct(result, run_alone), average_concurrency(result)
    for job in (0, 3, 17, 40):
        total = weights = 0.0
        for name, count in result.cluster.gpus.items():
            if (name, job) == ("blue", 3):
                continue
            share = count / concurrency[job]
            if share < 1:
                seconds = work[job] / speeds[name] / share
            else:
                ends = [int(np.floor(share)), int(np.ceil(share))]
                seconds = np.interp(share, ends, [work[job] / speeds[name] / gpus for gpus in ends])
            total, weights = total + count * seconds, weights + count
        assert isolated[job] == pytest.approx(total / weights)
    assert min(asked) == 1
    with pytest.raises(InputError, match="a time for each of 60 jobs"):
        isolated_run_jct(result, lambda *_: np.ones(3))


def test_parts_are_parts_of_the_jobs(result: SimulationResult) -> None:
    summary, jobs, table = result.summary(), result.jobs, named_parts_table(result.jobs, "partition")
    assert sorted(table["partition"]) == ["blue", "red"]
    assert table["gpu_share"].sum() == pytest.approx(1)
    for _, row in table.iterrows():
        mine = jobs[jobs["partition"] == row["partition"]]
        assert row["jobs"] == len(mine)
        assert row["average_queueing_time"] == pytest.approx(mine["queueing_time"].mean())
        assert row["p99_9_jct"] == pytest.approx(np.percentile(mine["jct"], 99.9))
        assert row["gpu_share"] == pytest.approx(mine["gpu_seconds"].sum() / jobs["gpu_seconds"].sum())
    assert [row["partition"] for row in summary["by_partition"]] == table["partition"].tolist()
    assert summary["p95_queueing_time"] == pytest.approx(np.percentile(jobs["queueing_time"], 95))
    sizes = sizes_table(jobs, (1, 4, 8))
    counts = [int(jobs["scale_factor"].between(first, last).sum()) for first, last in ((1, 3), (4, 7), (8, 99))]
    assert (sizes["gpus"].tolist(), sizes["jobs"].tolist()) == (["1-3", "4-7", "8+"], counts)
    assert [row["gpus"] for row in result.summary(size_classes=(1, 4, 8))["by_size"]] == ["1-3", "4-7", "8+"]
    assert [row["gpus"] for row in summary["by_size"]] == ["1", "2-4", "5-8"]
    for wrong in ((), (2, 4), (1, 4, 4)):
        with pytest.raises(InputError, match="ascending"):
            sizes_table(jobs, wrong)
