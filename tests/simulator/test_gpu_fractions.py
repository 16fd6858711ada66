"""Jobs that ask for fractions of a GPU, simulated between events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from allocator import Cluster, Trace, get_policy, simulate
from allocator.presets import Preset
from throughputs import InputError, read_trace

FREE_STARTS = Preset().replace(restart_penalty_seconds=0.0)


def jobs(*rows: tuple[float, float, float], **columns: Any) -> Trace:
    """Arrival, seconds, and GPUs: below 1 a fraction of one."""
    arrival, seconds, gpus = (list(column) for column in zip(*rows, strict=True))
    fraction = [size if size < 1 else 1.0 for size in gpus]
    return Trace(
        ["a"] * len(rows), [max(int(size), 1) for size in gpus], seconds, arrival, duration=seconds,
        gpu_fraction=fraction, **columns,
    )  # fmt: skip


def starts(trace: Trace, gpus: int, **policy: Any) -> list[float]:
    result = simulate(trace, f"gpu:{gpus}", get_policy("fcfs", **policy), preset=FREE_STARTS)
    found: list[float] = result.jobs["start_time"].tolist()
    return found


def random_jobs(seed: int, n: int = 60) -> Trace:
    rng = np.random.default_rng(seed)
    sizes = rng.choice([0.1, 0.25, 1 / 3, 0.5, 0.75, 1, 2, 4], n, p=[0.15, 0.2, 0.1, 0.2, 0.1, 0.15, 0.07, 0.03])
    arrival = np.sort(np.round(rng.uniform(0, 2000, n)))
    return jobs(*zip(arrival.tolist(), np.round(rng.uniform(50, 900, n)).tolist(), sizes.tolist(), strict=True))


def test_a_schedule_by_hand() -> None:
    """0.5 + 0.3 + 0.2 fill a GPU; 0.6 takes the other, on which 0.4 is left; the gang of two waits for both."""
    trace = jobs((0, 100, 0.5), (0, 200, 0.3), (0, 300, 0.2), (0, 100, 0.6), (0, 50, 2), (0, 10, 0.4))
    assert starts(trace, 2) == [0, 0, 0, 0, 300, 350]
    assert starts(trace, 2, backfill="skip") == [0, 0, 0, 0, 300, 0]
    assert starts(trace, 2, backfill="easy") == [0, 0, 0, 0, 300, 0]


def test_what_is_free_in_sum_is_not_room() -> None:
    """0.4 is free on each of two GPUs: neither 0.5 nor a whole GPU fits, though 0.8 is free."""
    trace = jobs((0, 100, 0.6), (0, 200, 0.6), (0, 10, 0.5), (0, 10, 0.4))
    assert starts(trace, 2) == [0, 0, 100, 100]
    assert starts(trace, 2, backfill="skip") == [0, 0, 100, 0]


def test_sums_are_exact() -> None:
    assert starts(jobs(*[(0, 10, 0.1)] * 11), 1) == [0.0] * 10 + [10.0]
    assert starts(jobs(*[(0, 10, 1 / 3)] * 4), 1) == [0.0] * 3 + [10.0]
    assert starts(jobs((0, 10, 0.7), (0, 10, 0.3)), 1, backfill="easy") == [0.0, 0.0]


def test_backfilling_does_not_delay_the_first_in_line() -> None:
    """A whole GPU is promised for t = 100: 0.5 for 90 s may start before it, 0.5 for 200 s may not."""
    trace = jobs((0, 100, 0.5), (0, 50, 1), (0, 200, 0.5), (0, 90, 0.5))
    assert starts(trace, 1, backfill="easy") == [0, 100, 150, 0]
    assert starts(trace, 1, backfill="skip") == [0, 200, 0, 100]


def test_a_fraction_counts_as_one_in_every_figure() -> None:
    trace = jobs((0, 100, 0.5), (0, 100, 0.25), (0, 100, 2))
    result = simulate(trace, "gpu:3", get_policy("fcfs"), preset=FREE_STARTS)
    assert result.jobs["gpu_seconds"].tolist() == [50.0, 25.0, 200.0]
    assert result.jobs["gpu_fraction"].tolist() == [0.5, 0.25, 1.0]
    assert result.timeline["busy_gpus"].tolist() == [2.75]
    assert result.utilization == pytest.approx(2.75 / 3)
    assert result.rounds["gpus"].tolist() == ["2", "2", "0 1"]
    # With a GPU each, half a GPU would have been no hindrance, and two GPUs for the gang would have been one.
    assert result.jobs["rho"].tolist()[:2] == pytest.approx([1.0, 1.0])
    assert result.jobs["rho"][2] < 0.7
    costs = simulate(trace, "gpu:3", get_policy("fcfs"), preset=FREE_STARTS.replace(restart_penalty_seconds=30.0))
    assert costs.jobs["restart_gpu_seconds"].tolist() == [15.0, 7.5, 60.0]
    priced = simulate(trace, "gpu:3", get_policy("fcfs"), preset=FREE_STARTS, prices={"gpu": 3600.0})
    assert priced.jobs["cost"].tolist() == [50.0, 25.0, 200.0]


def test_service_first_counts_the_fraction() -> None:
    """0.25 x 300 s is less GPU time than 1 x 100 s."""
    trace = jobs((0, 10, 1), (1, 100, 1), (1, 300, 0.25))
    result = simulate(trace, "gpu:1", get_policy("qssf"), preset=FREE_STARTS)
    assert result.jobs["start_time"].tolist() == [0.0, 310.0, 10.0]


def test_a_shorter_job_preempts_where_its_fraction_does_not_fit() -> None:
    """0.5 for 10 s at t = 20 needs the GPU of the longer one of two that have 0.6 each."""
    trace = jobs((0, 100, 0.6), (0, 200, 0.6), (20, 10, 0.5))
    result = simulate(trace, "gpu:2", get_policy("srtf"), preset=FREE_STARTS)
    assert result.jobs["completion_time"].tolist() == [100.0, 210.0, 30.0]
    assert result.jobs["preemptions"].tolist() == [0, 1, 0]


def test_attained_service_counts_the_fraction() -> None:
    """Half a GPU for 100 s is 50 GPU seconds, the limit of the first queue; then the other two have their turn."""
    trace = jobs((0, 200, 0.5), (0, 10, 0.6), (60, 10, 0.6))
    policy = get_policy("tiresias", queue_limits=(50.0,), promote_after=None)
    result = simulate(trace, "gpu:1", policy, preset=FREE_STARTS)
    assert result.jobs["start_time"].tolist() == [0.0, 100.0, 110.0]
    assert result.jobs["completion_time"].tolist() == [220.0, 110.0, 120.0]


@pytest.mark.parametrize("policy", ["srtf", "tiresias", "tiresias_gittins", "sjf", "qssf"])
def test_orders_complete_all_jobs_and_never_overfill(policy: str) -> None:
    trace = random_jobs(11)
    result = simulate(trace, Cluster({"gpu": 4}, {"gpu": 2}), get_policy(policy), preset=FREE_STARTS)
    assert (result.jobs["status"] == "completed").all()
    hours = trace.duration * trace.scale_factor * np.floor(trace.gpu_fraction * 1000 + 1e-6) / 1000
    np.testing.assert_allclose(result.jobs["gpu_seconds"], hours, rtol=1e-9)
    parts = np.floor(trace.gpu_fraction * 1000 + 1e-6).astype(int)
    for time in result.rounds["start_time"].unique():
        now = result.rounds[(result.rounds["start_time"] <= time) & (result.rounds["end_time"] > time)]
        used = np.zeros(4, dtype=int)
        for row in now.itertuples():
            used[[int(gpu) for gpu in row.gpus.split()]] += parts[row.job_id]
        assert used.max() <= 1000


@pytest.mark.parametrize("backfill", ["off", "skip", "easy"])
@pytest.mark.parametrize("placement", ["consolidated", "best_fit"])
@pytest.mark.parametrize("seed", range(3))
def test_gpus_are_never_overfull_and_nobody_who_fits_waits(seed: int, placement: str, backfill: str) -> None:
    trace = random_jobs(seed)
    settings = FREE_STARTS.replace(placement=placement)
    result = simulate(trace, Cluster({"gpu": 4}, {"gpu": 2}), get_policy("fcfs", backfill=backfill), preset=settings)
    assert (result.jobs["status"] == "completed").all()
    parts = np.floor(trace.gpu_fraction * 1000 + 1e-6).astype(int)
    leases = [
        (row.start_time, row.end_time, row.job_id, [int(gpu) for gpu in row.gpus.split()])
        for row in result.rounds.itertuples()
    ]
    assert len(leases) == len(trace)
    begin = result.jobs["start_time"].to_numpy()
    for time in sorted({0.0, *begin.tolist(), *(end for _, end, _, _ in leases)}):
        left = np.full(4, 1000)
        for start, end, job, gpus in leases:
            if start <= time < end:
                left[gpus] -= parts[job]
                assert len(gpus) == trace.scale_factor[job]
        assert left.min() >= 0
        waiting = np.flatnonzero((trace.arrival_time <= time) & (begin > time))
        if placement == "consolidated":
            fits = [
                (left >= parts[job]).any() if parts[job] < 1000 else (left == 1000).sum() >= trace.scale_factor[job]
                for job in waiting.tolist()
            ]
            assert not (any(fits) if backfill == "skip" else fits[:1] == [True])


def test_whole_gpus_are_as_without_fractions() -> None:
    trace = random_jobs(5)
    whole = simulate(trace.with_whole_gpus(), "gpu:4", get_policy("fcfs"))
    same = simulate(
        Trace(trace.job_type, trace.scale_factor, trace.total_steps, trace.arrival_time, duration=trace.duration),
        "gpu:4",
        get_policy("fcfs"),
    )
    assert whole.jobs.equals(same.jobs)
    assert whole.rounds.equals(same.rounds)
    assert "gpu_fraction" not in whole.jobs


@pytest.mark.parametrize("policy", ["fcfs", "qssf"])
def test_a_run_goes_on_from_a_checkpoint(tmp_path, policy: str) -> None:
    trace, cluster = random_jobs(7), Cluster({"gpu": 4}, {"gpu": 2})
    settings = FREE_STARTS
    through = simulate(trace, cluster, get_policy(policy), preset=settings)

    def stop(_clock: float, completed: int, _jobs: int) -> None:
        if completed >= 30:
            raise InterruptedError

    file = tmp_path / "run.zip"
    with pytest.raises(InterruptedError):
        simulate(
            trace, cluster, get_policy(policy), preset=settings, checkpoint=file, checkpoint_every=5, progress=stop
        )
    assert file.exists()
    again = simulate(trace, cluster, get_policy(policy), preset=settings, checkpoint=file, resume=True)
    assert again.jobs.equals(through.jobs)
    assert again.rounds.equals(through.rounds)


@pytest.mark.parametrize(
    ("columns", "settings", "policy", "told"),
    [
        (
            {},
            {},
            "max_min_fairness",
            r"gpu_fraction of job 1'.*0\.5.*max_min_fairness gives out whole GPUs.*--whole-gpus",
        ),
        ({}, {}, "elasticflow", "elasticflow gives out whole GPUs"),
        ({}, {"placement": "off"}, "fcfs", "placement off"),
        ({}, {"placement": "anew"}, "fcfs", "placement anew"),
        ({"scale_factor": [1, 2]}, {}, "fcfs", "the job has 2 GPUs, and only a job with 1 may share it"),
        ({"gpu_fraction": [1.0, 0.0004]}, {}, "fcfs", "0.0004.*at least a thousandth of a GPU"),
    ],
)
def test_what_cannot_have_fractions_says_so(columns, settings, policy: str, told: str) -> None:
    given = {"scale_factor": [1, 1], "gpu_fraction": [1.0, 0.5]} | columns
    trace = Trace(["a", "a"], total_steps=[9, 9], arrival_time=[0, 0], duration=[9, 9], **given)
    with pytest.raises(InputError, match=told):
        simulate(trace, "gpu:2", get_policy(policy), preset=FREE_STARTS.replace(**settings))
    if "gpu_fraction" not in columns:
        simulate(trace.with_whole_gpus(), "gpu:2", get_policy(policy), preset=FREE_STARTS.replace(**settings))


def test_a_cut_of_openb(public_data) -> None:
    """Of 400 pods, as many GPU hours as they asked for; sharing lets all of them start earlier or when they came."""
    trace = read_trace(public_data("field/openb_pod_list_default.csv.gz")).take(np.arange(3000, 3400))
    fractions = trace.gpu_fraction < 1
    assert fractions.sum() > 100
    cluster = Cluster({"gpu": 128}, {"gpu": 8})
    shared = simulate(trace, cluster, get_policy("fcfs", backfill="skip"), preset=FREE_STARTS)
    hours = (trace.duration * trace.scale_factor * trace.gpu_fraction).sum()
    assert shared.jobs["gpu_seconds"].sum() == pytest.approx(hours, rel=1e-12)
    whole = simulate(trace.with_whole_gpus(), cluster, get_policy("fcfs", backfill="skip"), preset=FREE_STARTS)
    assert shared.summary().average_queueing_time <= whole.summary().average_queueing_time
    assert shared.utilization < whole.utilization
