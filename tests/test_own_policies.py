"""The examples of docs/policies.md: shown as they are, short, and working from a package of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from allocator import Cluster, default_table, simulate, solve
from allocator.results.result import SimulationResult
from throughputs import Trace

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "docs" / "examples" / "own_policies"
NAMES = ("equal_steps", "envy_free", "gang_quota", "user_quota", "least_gpu_time", "best_speedup")


def code_of(name: str) -> str:
    return (PACKAGE / "own_policies" / f"{name}.py").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_the_file(name: str) -> None:
    page = (ROOT / "docs" / "policies.md").read_text()
    shown = re.search(rf"<!-- {name} -->\n```python\n(.*?)```\n<!-- /{name} -->", page, re.DOTALL)
    assert shown is not None
    assert shown.group(1) == code_of(name)
    assert len(code_of(name).splitlines()) <= 40


@pytest.fixture(scope="module")
def policies() -> dict[str, type]:
    sys.path.insert(0, str(PACKAGE))
    try:
        from own_policies.best_speedup import BestSpeedup
        from own_policies.envy_free import EnvyFree
        from own_policies.equal_steps import EqualSteps
        from own_policies.gang_quota import GangQuota
        from own_policies.least_gpu_time import LeastGpuTime
        from own_policies.user_quota import UserQuota
    finally:
        sys.path.remove(str(PACKAGE))
    return dict(zip(NAMES, (EqualSteps, EnvyFree, GangQuota, UserQuota, LeastGpuTime, BestSpeedup), strict=True))


def run(policy: object, jobs: int = 6) -> SimulationResult:
    kinds = ["LM (batch size 20)", "ResNet-18 (batch size 64)", "LM (batch size 5)"] * (jobs // 3)
    trace = Trace(kinds, [1, 2, 1] * (jobs // 3), [2e5] * jobs, [600.0 * i for i in range(jobs)])
    return simulate(trace, Cluster({"v100": 4, "k80": 2}), policy, default_table())  # type: ignore[arg-type]


def test_the_objective_gives_all_jobs_the_same_throughput(policies: dict[str, type]) -> None:
    _, _, allocation = run(policies["equal_steps"]()).decisions[3]
    steps = allocation.effective_throughput
    assert allocation.status == "optimal"
    assert steps.min() == pytest.approx(allocation.objective, rel=1e-6)


def test_nobody_envies_anybody_and_it_is_proven(policies: dict[str, type]) -> None:
    allocations = [allocation for _, _, allocation in run(policies["envy_free"]()).decisions]
    assert {allocation.status for allocation in allocations} == {"optimal"}
    busiest = max(allocations, key=lambda allocation: allocation.throughputs.n_jobs)
    envy = next(p for p in busiest.audit(probed_jobs=0).properties if p.name == "envy-freeness")
    assert envy.holds, envy.detail
    free = solve("max_sum_throughput_perf", busiest.throughputs, Cluster({"v100": 4, "k80": 2}))
    assert not next(p for p in free.audit(probed_jobs=0).properties if p.name == "envy-freeness").holds


@pytest.mark.parametrize("part", [0.1, 0.25, 1.0])
def test_gangs_keep_to_their_quota(part: float, policies: dict[str, type]) -> None:
    allocations = [allocation for _, _, allocation in run(policies["gang_quota"](part=part)).decisions]
    assert {allocation.status for allocation in allocations} == {"optimal"}
    most = 0.0
    for allocation in allocations:
        sizes = allocation.throughputs.scale_factors
        of_gangs = (sizes * (sizes > 1)) @ allocation.shares
        assert (of_gangs <= part * np.array([4, 2]) + 1e-6).all()
        most = max(most, float((of_gangs / [4, 2]).max()))
    assert most == pytest.approx(part, rel=1e-5) or part == 1.0


def test_no_user_has_more_than_its_quota(policies: dict[str, type]) -> None:
    jobs = pd.DataFrame({"entity": ["ann", "ann", "bob", None]}, index=["a", "b", "c", "d"])
    speeds = pd.DataFrame({"v100": [4.0, 2.0, 3.0, 1.0]}, index=jobs.index)
    policy = policies["user_quota"](part=0.25)
    answer = solve(policy, speeds, "v100:4", jobs=jobs, entities={"ann": 1, "bob": 1})
    # Ann's two jobs share one GPU, Bob's has one, and so has the job that belongs to nobody.
    assert answer.shares[:, 0].tolist() == pytest.approx([0.5, 0.5, 1.0, 1.0], abs=1e-5)


def test_the_order_preempts_for_who_needs_less_gpu_time(policies: dict[str, type]) -> None:
    table = default_table()
    rate = table.rates(["LM (batch size 20)"], [1], ["v100"])[0, 0]
    trace = Trace(["LM (batch size 20)"] * 2, [1, 1], [rate * 1000, rate * 100], [0.0, 200.0])
    result = simulate(trace, Cluster({"v100": 1}), policies["least_gpu_time"](), table)
    # each start takes 30 s, of which the first job has two
    np.testing.assert_allclose(result.jobs["completion_time"], [30.0 + 1000.0 + 130.0 + 30.0, 330.0])
    assert result.jobs["preemptions"].tolist() == [1, 0]


def test_the_selection_runs_jobs_on_other_numbers_of_gpus_than_they_came_with(policies: dict[str, type]) -> None:
    rounds = run(policies["best_speedup"]()).rounds
    assert set(rounds["gpu_count"]) > {1}
    alone = rounds[rounds["job_id"] == 0].iloc[0]
    # The first job came with 1 GPU and has the cluster to itself; four GPUs would be slower than two.
    assert (alone["start_time"], alone["gpu_count"]) == (0.0, 2)


@pytest.mark.exhaustive
def test_installed_as_a_package_they_are_known_by_name(tmp_path: Path) -> None:
    target = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(PACKAGE)]
    subprocess.run(pip, check=True, capture_output=True)
    command = [
        sys.executable,
        "-m",
        "allocator",
        "compare",
        "--policies",
        ",".join(NAMES),
        "--jobs",
        "8",
        "--cluster",
        "v100:4,k80:4",
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(target), str(ROOT)))}
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out")], check=True, capture_output=True, text=True, env=environment
    )
    for name in NAMES:
        assert (tmp_path / "out" / name / "jobs.csv").exists()
        assert name in done.stdout + done.stderr
