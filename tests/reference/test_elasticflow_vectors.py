"""ElasticFlow and its EDF, function by function: what the public code answered is answered exactly."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from allocator.published.elasticflow.scaling import scale_as_published
from formulations.deadlines import (
    DeadlineJob,
    DeadlineOrder,
    Filling,
    FreeProfile,
    JobPlan,
    ScalingCurve,
    earliest_share,
)

Rates = dict[tuple[str, str, int], dict[int, float]]


VECTORS = Path(__file__).resolve().parent / "elasticflow_vectors.json.gz"
"""The recorded answers, with the throughputs that they rest on."""


@pytest.fixture(scope="module")
def vectors() -> dict[str, Any]:
    return json.loads(gzip.decompress(VECTORS.read_bytes()))


@pytest.fixture(scope="module")
def rates(vectors) -> Rates:
    """Steps/s by number of GPUs, of type of GPU, model and batch size."""
    return {
        (kind, model, batch_size): {int(gpus): rate for gpus, rate in known.items()}
        for kind, model, batch_size, known in vectors["rates"]
    }


def job_of(rates: Rates, case: dict[str, Any], job: dict[str, Any]) -> DeadlineJob:
    known = rates[case["gpu_type"], job["model_name"], job["batch_size"]]
    curve = ScalingCurve(list(known), list(known.values()), case["num_gpu_cluster"], job["max_gpu"])
    return DeadlineJob(curve, float(job["iter_left"]), job["ddl"])


def steps_of(plan: JobPlan) -> list[list[float]]:
    """(start, GPUs); with the zero by which the public code ends a plan before further breakpoints."""
    steps = [[start, gpus] for start, gpus in zip(plan.starts, plan.gpus, strict=True)]
    return steps if plan.charged_until == plan.end else [*steps, [plan.charged_until, 0]]


def without_last_zero(steps: list[list[float]]) -> list[list[float]]:
    return steps[:-1] if steps[-1][1] == 0 else steps


def listed(profile: FreeProfile) -> list[list[float]]:
    return [[time, free] for time, free in zip(profile.times, profile.free, strict=True)]


def test_least_shares_of_single_jobs(vectors, rates) -> None:
    assert len(vectors["ef_alloc"]) == 225
    for case in vectors["ef_alloc"]:
        profile = FreeProfile.of(case["profile"])
        plan = Filling(case["slot"], whole_seconds=True).minimum_share(profile, job_of(rates, case, case["job"]))
        profile.take(plan)
        assert without_last_zero(steps_of(plan)) == without_last_zero(case["allocations"])
        assert (plan.met, plan.end, plan.real_end) == (case["ok"], case["end_time"], case["real_end_time"])
        assert listed(profile) == case["profile_after"]


def test_earliest_deadline_first_of_single_jobs(vectors, rates) -> None:
    assert len(vectors["edf_alloc"]) == 225
    for case in vectors["edf_alloc"]:
        profile = FreeProfile.of(case["profile"])
        plan = earliest_share(Filling(case["slot"], whole_seconds=True), profile, job_of(rates, case, case["job"]))
        assert steps_of(plan) == case["new_allocations"]
        assert (plan.met, plan.real_end) == (case["ok"], case["new_end_time"])


def test_whole_decisions(vectors, rates) -> None:
    """Admission, least shares of all jobs, and who is scaled how far."""
    assert len(vectors["event"]) == 120
    for case in vectors["event"]:
        filling = Filling(case["slot"], whole_seconds=True)
        order = DeadlineOrder.filled(filling, FreeProfile(case["now"], case["num_gpu_cluster"]))
        found = sorted(case["jobs"], key=lambda job: job["ddl"])
        labels = [str(job["job_idx"]) for job in found]
        jobs = [job_of(rates, case, job) for job in found]
        assert order.admit(jobs) == case["all_feasible"]
        if not case["all_feasible"]:
            order.add(jobs)
        plans, left_over = list(order.plans), order.left_over
        scale_as_published(filling, left_over, order.jobs, plans)
        for answers, name, now in ((order.plans, "min_share", "num_gpu_now"), (plans, "final", "num_gpu")):
            for label, plan in zip(labels, answers, strict=True):
                expected = case[name][label]
                steps = without_last_zero(expected["allocations"])
                assert without_last_zero(steps_of(plan)) == steps
                assert (plan.end, plan.real_end) == (expected["end_time"], expected["real_end_time"])
                assert plan.gpus[0] == expected[now]
