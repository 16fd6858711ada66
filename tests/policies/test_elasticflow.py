"""ElasticFlow and earliest deadline first: promises, capacity, memory, and what the settings do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import Cluster, ClusterState, ThroughputMatrix
from allocator.protocol import Plan
from allocator.results.result import SimulationResult
from allocator.simulator import preset, simulate
from tests.simulator.cases import with_settings
from throughputs import Trace
from throughputs.configurations import Configurations

NAMES = ("elasticflow", "elasticflow_no_admission", "elasticflow_mip", "edf", "edf_admission")
LEVELS = (1, 2, 4, 8, 16)


def curves_of(rates: Any) -> Configurations:
    """(N, levels) steps/s on 1, 2, 4, ... GPUs."""
    rates = np.asarray(rates, dtype=np.float64)
    n, k = rates.shape
    rows = np.repeat(np.arange(n), k), np.zeros(n * k), np.tile(LEVELS[:k], n), rates.ravel()
    return Configurations(*rows, jobs=range(n), pools=["a100"])


def run(name: str, gpus: int, rates: Any, steps: Any, slack: Any, arrivals: Any, **options: Any) -> SimulationResult:
    """Jobs that are due `slack` seconds after their arrival; nan: never."""
    own = {k: options.pop(k) for k in ("restart_penalty_seconds",) if k in options}
    chosen = with_settings(preset("default"), **own, **options.pop("changes", {}))
    n = len(steps)
    due = np.asarray(slack, dtype=np.float64)
    cluster = Cluster({"a100": gpus})
    policy = preset(options.pop("system", "default")).make_policy(name, cluster, **options)
    trace = Trace(["job"] * n, [1] * n, steps, arrivals, duration=np.ones(n), slo=due)
    result = simulate(trace, cluster, policy, curves_of(rates), preset=chosen)
    assert max(result.timeline["busy_gpus"], default=0) <= gpus
    return result


@st.composite
def workloads(draw: st.DrawFn) -> dict[str, Any]:
    """Curves of any shape, loads from light to hopeless, some best effort."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, gpus = draw(st.integers(1, 12)), draw(st.sampled_from([2, 8, 16]))
    rates = np.cumsum(rng.uniform(0.1, 1.0, (n, len(LEVELS))), axis=1)
    if draw(st.booleans()):
        rates = rng.permuted(rates, axis=1)
    seconds = 10 ** rng.uniform(1.5, 3.5, n)
    slack = seconds * rng.uniform(0.4, 2.5, n)
    slack[rng.uniform(size=n) < draw(st.sampled_from([0.0, 0.2]))] = np.nan
    arrivals = np.sort(rng.uniform(0, draw(st.sampled_from([10.0, 2000.0])), n))
    if draw(st.booleans()):
        arrivals = np.floor(arrivals / 200) * 200
    return {"gpus": gpus, "rates": rates, "steps": seconds * rates[:, 1], "slack": slack, "arrivals": arrivals}


def late(result: SimulationResult, workload: dict[str, Any]) -> int:
    """How many jobs complete after their deadlines."""
    due = workload["arrivals"] + workload["slack"]
    return int((result.jobs["completion_time"].to_numpy() > due).sum())


@given(workloads(), st.sampled_from(["each", "repair"]), st.sampled_from([(0, 0), (60, 0), (0, 5), (0, 40)]))
@settings(max_examples=30)
def test_who_is_admitted_meets_the_deadline(workload, admission, slot_and_restart) -> None:
    slot, restart = map(float, slot_and_restart)
    known = {"restart_seconds": restart, "restart_penalty_seconds": restart} if restart else {}
    result = run("elasticflow", **workload, admission=admission, slot_seconds=slot, **known)
    assert set(result.jobs["status"]) <= {"completed", "rejected"}
    assert (result.jobs["status"] == "completed").to_numpy()[np.isnan(workload["slack"])].all()
    assert late(result, workload) == 0


def test_one_impossible_job_is_rejected_alone() -> None:
    """As published with all that arrive with it. Best effort is never rejected."""
    world = {"gpus": 4, "rates": [[1.0, 2.0, 4.0]] * 3, "steps": [100.0] * 3, "arrivals": [0.0, 0.0, 0.0]}
    for system, first in (("default", "completed"), ("elasticflow", "rejected")):
        found = run("elasticflow", **world, slack=[200.0, 10.0, np.nan], system=system)
        assert found.jobs["status"].tolist() == [first, "rejected", "completed"]


def test_all_gpus_are_used_and_given_back_in_time() -> None:
    """Alone, a job takes all; for the second one it makes room as far as it can.

    40 of 400 steps by 10 s; then one GPU each second needs at least 2 until 58 s: 4 GPUs would do 192 of 180 by 58 s.
    """
    rates = [[1.0, 2.0, 4.0]] * 2
    result = run("elasticflow", 4, rates, [400.0, 180.0], [390.0, 50.0], [0.0, 10.0], restart_penalty_seconds=0.0)
    assert result.jobs["completion_time"].tolist() == pytest.approx([145.0, 55.0])


def test_a_late_job_stands_in_nobodys_way() -> None:
    """The first job is slower than it was believed to be: of the 60 s that a start takes here nobody has told.

    160 s are more than 150, if the policy is told, or the world tells.
    """
    world = {"gpus": 1, "rates": [[1.0], [1.0]], "steps": [100.0, 50.0], "slack": [150.0, 500.0]}
    world |= {"arrivals": [0.0, 110.0], "restart_penalty_seconds": 0.0}
    unknown = {"changes": {"overhead": "starts", "overhead_base_seconds": 60.0}}
    for more, expected in (
        (unknown, ["completed", "completed"]),
        (unknown | {"system": "elasticflow"}, ["completed", "rejected"]),
        (unknown | {"restart_seconds": 60.0}, ["rejected", "completed"]),
        ({"restart_penalty_seconds": 60.0}, ["rejected", "completed"]),
    ):
        assert run("elasticflow", **world | more).jobs["status"].tolist() == expected


def state_of(said: str, gpus: int = 8, **columns: Any) -> ClusterState:
    """Jobs as ``600<101``: 600 steps, due in 101 s."""
    steps, slack = np.array([job.split("<") for job in said.split()], dtype=float).T
    n = len(steps)
    rates = np.tile([[1.0, 1.9, 3.5, 6.0]], (n, 1))
    return ClusterState(
        Cluster({"a100": gpus}),
        ThroughputMatrix(rates[:, :1], range(n), ["a100"]),
        configurations=columns.pop("configurations", curves_of(rates)),
        steps_remaining=steps,
        slo_seconds=slack,
        **columns,
    )


def asked(
    name: str, *states: ClusterState, unpromised: Any = (), system: str = "default", **options: Any
) -> tuple[dict[int, int], Plan, Any]:
    """GPUs of each job, plan and memory of the last of the decisions; `unpromised` jobs are known before."""
    unhurried = {"time_limit_seconds": 60.0} if name == "elasticflow_mip" else {}
    policy = preset(system).make_policy(name, states[0].cluster, **unhurried | options)
    memory = policy.new_memory()
    memory.unpromised = set(unpromised)
    for state in states:
        plan = policy.plan(state, memory)
    first = plan.steps[0].assignment
    return dict(zip(first.jobs.tolist(), first.gpus.tolist(), strict=True)), plan, memory


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_says_when_its_numbers_change(name) -> None:
    """Six GPU seconds a step for the first job until 90 s; the second one follows."""
    gpus, plan, _ = asked(name, state_of("600<101 500<400"), margin_seconds=0.0)
    assert (gpus, len(plan.steps)) == ({0: 8}, 1)
    # earliest deadline first waits for the first job to end; 4 GPUs at last, until 101 s, take the least GPU time
    expected = {"edf": np.inf, "elasticflow_mip": pytest.approx(98.6, rel=1e-5)}
    assert plan.steps[0].seconds == expected.get(name, pytest.approx(100.0))


@pytest.mark.parametrize("name", NAMES)
def test_what_jobs_can_use(name) -> None:
    """What rounding leaves of jobs takes GPUs too; caps by type, levels that are no faster, jobs that nothing runs."""
    if name != "elasticflow_mip":
        # so little that it would end at the clock of its start, to the last digit
        little = state_of("1.2e-9<inf 1.2e-9<inf 1.2e-9<inf 1.2e-9<inf 1.2e-9<inf", clock=4_525_145.4645)
        assert sum(asked(name, little)[0].values()) <= 8
    kinds = np.array(["job", "other"], dtype=object)
    for most, expected in (({}, 8), ({"job": 4}, 4), ({"other": 4}, 8)):
        assert asked(name, state_of("600<inf", job_types=kinds[:1]), most_gpus=most)[0] == {0: expected}
    flat = state_of("600<inf", configurations=curves_of([[1.0, 1.0, 2.0, 1.5]]))
    assert asked(name, flat)[0] == {0: 4}
    if name == "edf":
        assert asked(name, flat, levels="all")[0] == {0: 8}
    pairs = Configurations([0, 1], [0, 0], [2, 2], [1.0, 1.0], jobs=[0, 1], pools=["a100"])
    stuck = state_of("600<inf 10<inf", job_types=kinds, configurations=pairs)
    gpus, plan, _ = asked(name, stuck, most_gpus={"job": 1})
    assert (gpus, plan.rejected.tolist()) == ({1: 2}, [0])


@pytest.mark.parametrize(
    ("said", "gpus", "promised"),
    [
        # the first cannot be kept where GPUs are lost, the second can
        ("600<101 350<210", (8, 4), {1}),
        # both need two GPUs to the end; of two that are left one job has them, and the other one is not forgotten
        ("180<100 180<100", (4, 2), {0}),
    ],
)
def test_promises_that_can_be_kept_are_where_gpus_are_lost(said, gpus, promised) -> None:
    states = [state_of(said, gpus=count) for count in gpus]
    assert set(asked("elasticflow", states[0], margin_seconds=0.0)[2].promised) == {0, 1}
    _, plan, memory = asked("elasticflow", *states, margin_seconds=0.0)
    assert not len(plan.rejected)
    assert (set(memory.promised), memory.unpromised) == (promised, {0, 1} - promised)


def test_who_is_late_and_due_first_is_first_and_more_gpus_are_used_when_they_come() -> None:
    state = state_of("50<-5 50<-10 50<inf", gpus=1, clock=100.0)
    assert asked("edf_admission", state, unpromised={0, 1, 2})[0] == {1: 1}
    assert asked("elasticflow", state_of("600<inf", gpus=4), state_of("600<inf"))[0] == {0: 8}


def test_earliest_deadline_first_gives_each_all_it_can_use() -> None:
    """Eleven GPUs: eight for the job that is due first, two of the three that are left for the next, then one."""
    for name, system in (("edf", "default"), ("edf_admission", "default"), ("edf_admission", "elasticflow")):
        gpus, plan, _ = asked(name, state_of("300<900 300<70 300<800", gpus=11), system=system)
        assert gpus == {1: 8, 2: 2, 0: 1}, name
        assert not len(plan.rejected)


@pytest.mark.parametrize(("system", "runs", "rejected"), [("default", 1, []), ("elasticflow", 0, [2])])
def test_a_late_job_comes_last_under_admission_or_keeps_newcomers_out(system, runs, rejected) -> None:
    """One GPU: the first job is past its deadline, the second needs 50 s of the next 100, a newcomer 50 s of 250."""
    state = state_of("50<-5 50<100 50<250", gpus=1, clock=100.0)
    options = {"unpromised": {0, 1}, "margin_seconds": 0.0, "system": system}
    gpus, plan, memory = asked("edf_admission", state, **options)
    assert (gpus, plan.rejected.tolist()) == ({runs: 1}, rejected)
    assert memory.unpromised == {0, 1, 2} - set(rejected)
