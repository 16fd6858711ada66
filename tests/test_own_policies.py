"""The examples of docs/policies.md: shown as they are, short, and working from a package of their own."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from allocator import Assignment, Cluster, Plan, PlanPolicy, default_table, simulate, solve
from allocator.report import allocation_table, render_report
from allocator.results.output import tables_of
from allocator.results.result import SimulationResult
from allocator.results.shown import as_text
from allocator.testing import check_policy
from allocator.testing.template import KINDS
from throughputs import InputError, ThroughputMatrix, Trace

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "docs" / "examples" / "own_policies"
NAMES = (
    "equal_steps",
    "power_cap",
    "envy_free",
    "gang_quota",
    "user_quota",
    "least_gpu_time",
    "fair_share",
    "thrifty",
    "best_speedup",
    "turns",
)


def code_of(name: str) -> str:
    return (PACKAGE / "own_policies" / f"{name}.py").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_the_file(name: str) -> None:
    page = (ROOT / "docs" / "policies.md").read_text()
    shown = re.search(rf"<!-- {name} -->\n```python\n(.*?)```\n<!-- /{name} -->", page, re.DOTALL)
    assert shown is not None
    assert shown.group(1) == code_of(name)
    assert len(code_of(name).splitlines()) <= 45


def test_the_example_with_a_memory_is_what_a_new_planner_begins_with() -> None:
    code = code_of("turns").replace("\n\nfrom allocator", "\nfrom allocator", 1)  # which is third-party there
    assert code == KINDS["plan"][0].format(name="turns", policy="Turns")


@pytest.mark.parametrize("believed", [None, [[np.nan]] * 2, [[-1.0]] * 2, np.ones((2, 1)), [["a"] * 2] * 2])
def test_rates_that_a_policy_believes_are_numbers_of_at_least_0_for_each_type(policies, believed) -> None:
    class Believes(policies["equal_steps"]):
        def believed_rates(self, state):  # noqa: ARG002
            return believed

    with pytest.raises(InputError, match="believed_rates"):
        solve(Believes(), {"v100": [4.0, 2.0], "k80": [1.0, 1.0]}, "v100:1,k80:1")


@pytest.fixture(scope="module")
def policies() -> dict[str, type]:
    sys.path.insert(0, str(PACKAGE))
    try:
        from own_policies.best_speedup import BestSpeedup
        from own_policies.envy_free import EnvyFree
        from own_policies.equal_steps import EqualSteps
        from own_policies.fair_share import FairShare
        from own_policies.gang_quota import GangQuota
        from own_policies.least_gpu_time import LeastGpuTime
        from own_policies.power_cap import PowerCap
        from own_policies.thrifty import Thrifty
        from own_policies.turns import Turns
        from own_policies.user_quota import UserQuota
    finally:
        sys.path.remove(str(PACKAGE))
    own = (EqualSteps, PowerCap, EnvyFree, GangQuota, UserQuota, LeastGpuTime, FairShare, Thrifty, BestSpeedup, Turns)
    return dict(zip(NAMES, own, strict=True))


def run(policy: object, jobs: int = 6) -> SimulationResult:
    kinds = ["LM (batch size 20)", "ResNet-18 (batch size 64)", "LM (batch size 5)"] * (jobs // 3)
    trace = Trace(kinds, [1, 2, 1] * (jobs // 3), [2e5] * jobs, [600.0 * i for i in range(jobs)])
    return simulate(trace, Cluster({"v100": 4, "k80": 2}), policy, default_table())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_each_runs_jobs_to_their_end(name: str, policies: dict[str, type]) -> None:
    result = run(policies[name](), 3)
    assert (result.jobs["status"] == "completed").all()
    assert {allocation.status for _, _, allocation in result.decisions} <= {"optimal", "order", "plan"}


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


LM = "LM (batch size 20)"
HOUR = 3600 * float(default_table().rates([LM], [1], ["v100"])[0, 0])
"""Steps of an hour on a V100."""


def one_gpu(policy: object, steps: list[float], arrivals: list[float], **columns: object) -> SimulationResult:
    trace = Trace([LM] * len(steps), [1] * len(steps), steps, arrivals, **columns)  # type: ignore[arg-type]
    return simulate(trace, Cluster({"v100": 1}), policy, default_table())  # type: ignore[arg-type]


def test_gpus_draw_no_more_power_than_the_cap(policies: dict[str, type]) -> None:
    """Four V100 and two K80 draw 1,500 W; 700 W are for less than half of them, and all are used."""
    capped = policies["power_cap"](watts=700.0)
    check_policy(capped)
    result = run(capped)
    drawn = [(found.throughputs.scale_factors @ found.shares) @ [300.0, 150.0] for _, _, found in result.decisions]
    assert max(drawn) == pytest.approx(700.0, rel=1e-6)
    rounds = result.rounds.assign(gpus=result.rounds["gpus"].str.len())
    used = rounds["gpus"] * (rounds["end_time"] - rounds["start_time"])
    joules = float((used * rounds["accelerator"].astype(str).map({"v100": 300.0, "k80": 150.0})).sum())
    # a gang may be ahead of its shares by a round
    assert joules / result.jobs["completion_time"].max() <= 700.0 + 600.0 * 360.0 / result.jobs["completion_time"].max()


def test_the_price_of_a_row_is_what_loosening_it_brings(policies: dict[str, type]) -> None:
    """In the allocation, the table of decisions, an explanation, the report, and on a terminal."""
    speeds = {"v100": [4.0, 2.0, 3.0], "k80": [1.0, 1.0, 1.0]}
    tight, loose = (solve(policies["power_cap"](watts=watts), speeds, "v100:4,k80:2") for watts in (700.0, 710.0))
    assert tight.row_prices["watts"] == pytest.approx((loose.objective - tight.objective) / 10, rel=1e-3)
    assert solve(policies["power_cap"](watts=9e9), speeds, "v100:4,k80:2").row_prices == {"watts": 0.0}
    assert solve("max_min_fairness_perf", speeds, "v100:4,k80:2").row_prices == {}
    result = run(policies["power_cap"](watts=700.0))
    written = tables_of(result, ["decisions.parquet"])["decisions.parquet"]["price of watts"]
    assert written.tolist() == [found.row_prices["watts"] for _, _, found in result.decisions]
    moment = result.explain(5).waits[0].moment
    number = moment.decision
    assert moment.row_prices == {"watts": written[number]}
    assert f"limit of the policy: watts {written[number]:.4g}" in str(result.explain(5))
    assert f'"rowPrices":{{"watts":{float(f"{written[0]:.5g}")}}}' in render_report([result]).replace('": ', '":')
    told = " ".join(as_text([allocation_table(tight)]).split())
    assert f"price of watts {tight.row_prices['watts']:.4g}" in told


def test_fair_share_goes_by_user(policies: dict[str, type]) -> None:
    """Ada has had an hour when Bob comes, and both her jobs wait for his, which takes 30 s to start."""
    jobs = {"steps": [2 * HOUR, HOUR, HOUR], "arrivals": [0.0, 0.0, 3600.0]}
    ended = one_gpu(policies["fair_share"](), **jobs, user=["ada", "ada", "bob"]).jobs["completion_time"]
    np.testing.assert_allclose(ended[2], 7230.0)
    assert ended[:2].min() > 7230.0


def test_energy_is_kept_for_the_policy_that_declares_it(policies: dict[str, type]) -> None:
    """A job of 300 W has used 1.071 MJ in an hour less 30 s; a newcomer takes its place only beyond the margin."""
    jobs = {"steps": [3 * HOUR, HOUR], "arrivals": [0.0, 3600.0]}
    first = one_gpu(policies["thrifty"](margin=1.0e6), **jobs).jobs
    assert first["preemptions"].tolist() == [1, 0]
    assert one_gpu(policies["thrifty"](margin=1.1e6), **jobs).jobs["preemptions"].tolist() == [0, 0]
    # a policy works on when its file is loaded once more
    runpy.run_path(str(PACKAGE / "own_policies" / "thrifty.py"))
    assert one_gpu(policies["thrifty"](margin=1.0e6), **jobs).jobs["preemptions"].tolist() == [1, 0]


def test_a_turn_goes_on_where_a_run_was_interrupted(policies: dict[str, type], tmp_path: Path) -> None:
    """Two hours of work each, turns of an hour; the second run is resumed from a checkpoint of its every event."""

    class StoppedError(Exception):
        pass

    def stop(_clock: float, completed: int, _jobs: int) -> None:
        if completed == 1:
            raise StoppedError

    trace = Trace(["job"] * 3, [1] * 3, [7200.0] * 3, [0.0, 10.0, 20.0], duration=[7200.0] * 3)
    whole = simulate(trace, "gpu:1", policies["turns"]())
    assert whole.rounds["job_id"].tolist() == [0, 1, 2] * 3
    kept = {"checkpoint": tmp_path / "run", "checkpoint_every": 1}
    with pytest.raises(StoppedError):
        simulate(trace, "gpu:1", policies["turns"](), progress=stop, **kept)  # type: ignore[arg-type]
    resumed = simulate(trace, "gpu:1", policies["turns"](), resume=True, **kept)  # type: ignore[arg-type]
    assert resumed.jobs.equals(whole.jobs)


class Greedy(PlanPolicy):
    """Counts down the GPUs of the cluster itself."""

    name = "greedy"

    def plan(self, state, memory):  # noqa: ARG002
        state.capacity[0] -= 1
        return Plan.until_next_event(Assignment.none())


def test_a_policy_cannot_change_the_cluster_nor_the_throughputs_that_others_read():
    cluster = Cluster({"v100": 4})
    trace = Trace(["a"], scale_factor=[1], total_steps=[100.0], arrival_time=[0.0])
    with pytest.raises(ValueError, match="read-only"):
        simulate(trace, cluster, Greedy(), [[1.0]])
    assert cluster.capacity.tolist() == [4]
    with pytest.raises(ValueError, match="read-only"):
        ThroughputMatrix([[2.0]], jobs=["a"], accelerators=["v100"]).rates[0] = 1.0
