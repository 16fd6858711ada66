"""ElasticFlow and earliest deadline first, in the simulator: promises, capacity, memory, and what the settings do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import Cluster, ClusterState, ThroughputMatrix, get_policy
from allocator.policies.deadlines.memory import DeadlineMemory
from allocator.protocol import Assignment, Plan
from allocator.simulator import SimulationResult, preset, simulate
from formulations import SolverError
from throughputs import InputError, Trace
from throughputs.configurations import Configurations

NAMES = ("elasticflow", "elasticflow_no_admission", "elasticflow_mip", "edf", "edf_admission")
LEVELS = (1, 2, 4, 8, 16)


def trace_of(steps: Any, slack: Any, arrivals: Any) -> Trace:
    """Jobs that are due `slack` seconds after their arrival; nan: never."""
    n = len(steps)
    return Trace(["job"] * n, [1] * n, steps, arrivals, duration=np.ones(n), slo=np.asarray(slack, dtype=np.float64))


def curves_of(rates: Any) -> Configurations:
    """(N, levels) steps/s on 1, 2, 4, ... GPUs."""
    rates = np.asarray(rates, dtype=np.float64)
    n, k = rates.shape
    return Configurations(
        np.repeat(np.arange(n), k), np.zeros(n * k), np.tile(LEVELS[:k], n), rates.ravel(),
        jobs=range(n), pools=["a100"],
    )  # fmt: skip


def run(name: str, gpus: int, rates: Any, steps: Any, slack: Any, arrivals: Any, **options: Any) -> SimulationResult:
    own = {k: options.pop(k) for k in ("restart_penalty_seconds",) if k in options}
    chosen = preset("default").replace(**own, **options.pop("changes", {}))
    trace = trace_of(steps, slack, arrivals)
    return simulate(trace, Cluster({"a100": gpus}), get_policy(name, **options), curves_of(rates), preset=chosen)


@st.composite
def workloads(draw: st.DrawFn) -> dict[str, Any]:
    """Curves of any shape, loads from light to hopeless, some best effort."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, gpus = draw(st.integers(1, 14)), draw(st.sampled_from([2, 8, 16]))
    shape = draw(st.sampled_from(["concave", "any"]))
    rates = np.cumsum(rng.uniform(0.1, 1.0, (n, len(LEVELS))), axis=1)
    if shape == "any":
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


def check_capacity(result: SimulationResult, gpus: int) -> None:
    assert max(result.timeline["busy_gpus"], default=0) <= gpus


@given(workloads(), st.sampled_from(["each", "batch", "repair"]), st.sampled_from([0.0, 60.0]))
@settings(max_examples=150)
def test_who_is_admitted_meets_the_deadline(workload, admission, slot) -> None:
    result = run("elasticflow", **workload, admission=admission, slot_seconds=slot)
    assert set(result.jobs["status"]) <= {"completed", "rejected"}
    assert (result.jobs["status"] == "completed").to_numpy()[np.isnan(workload["slack"])].all()
    assert late(result, workload) == 0
    check_capacity(result, workload["gpus"])


@given(workloads(), st.sampled_from(["each", "repair"]), st.sampled_from([5.0, 40.0]))
@settings(max_examples=80)
def test_who_is_admitted_meets_the_deadline_where_restarts_cost_what_the_policy_knows(
    workload, admission, restart
) -> None:
    known = {"restart_seconds": restart, "restart_penalty_seconds": restart}
    result = run("elasticflow", **workload, admission=admission, **known)
    assert late(result, workload) == 0
    check_capacity(result, workload["gpus"])


@given(workloads(), st.sampled_from(["elasticflow_no_admission", "edf", "edf_admission"]))
@settings(max_examples=60)
def test_everybody_is_served_who_is_not_rejected(workload, name) -> None:
    result = run(name, **workload)
    expected = {"completed", "rejected"} if name == "edf_admission" else {"completed"}
    assert set(result.jobs["status"]) <= expected
    check_capacity(result, workload["gpus"])


@given(workloads())
@settings(max_examples=30)
def test_published_settings_run_too(workload) -> None:
    workload["arrivals"] = np.floor(workload["arrivals"])
    result = run(
        "elasticflow", **workload, admission="batch", score="published", keep_promises=False, levels="all",
        slot_seconds=60.0, whole_seconds=True, margin_seconds=0.0,
    )  # fmt: skip
    assert set(result.jobs["status"]) <= {"completed", "rejected"}
    check_capacity(result, workload["gpus"])


@given(workloads())
@settings(max_examples=15)
def test_the_program_keeps_promises_too(workload) -> None:
    result = run("elasticflow_mip", **workload)
    assert late(result, workload) == 0
    check_capacity(result, workload["gpus"])


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_the_program_admits_the_most_value(solver) -> None:
    """On four GPUs until 100 s: the last job alone is worth more than those that come before it together."""
    steps, slack, weights = [100.0, 150.0, 330.0], [100.0, 100.0, 100.0], np.array([1.0, 1.0, 2.5])
    state = state_of(steps, slack, gpus=4, priority_weights=weights)
    answer = get_policy("elasticflow_mip", solver=solver, margin_seconds=0.0).allocate(state)
    assert answer.rejected == (0, 1)
    assert answer.objective == 2.5
    assert (answer.bound, answer.gap) == pytest.approx((2.5, 0.0), abs=1e-7)
    assert (answer.status, answer.solver) == ("optimal", solver)
    least = get_policy("elasticflow", margin_seconds=0.0).allocate(state)
    assert least.rejected == (2,)


def test_forty_jobs_are_decided_to_the_optimum() -> None:
    """Three times as much work as there is room for: other orders do not find all that patterns do."""
    rng = np.random.default_rng(0)
    rates = np.array([[10.5, 13.3, 15.1, 15.6], [7.4, 13.2, 23.6, 35.0], [2.0, 3.5, 5.0, 6.1]])[
        rng.integers(3, size=40)
    ]
    seconds = 10 ** rng.uniform(2.3, 3.8, 40)
    slack = seconds * rng.uniform(1.0, 2.0, 40)
    arrivals = np.sort(rng.uniform(0, 4000, 40))
    workload = {"rates": rates, "steps": seconds * rates[:, 2], "slack": slack, "arrivals": arrivals}
    result = run("elasticflow_mip", 16, **workload, time_limit_seconds=60.0, restart_penalty_seconds=0.0)
    assert late(result, workload) == 0
    answers = [decision[-1] for decision in result.decisions]
    assert {answer.status for answer in answers} == {"optimal"}
    assert any(answer.solver == "highs" for answer in answers)


def test_time_that_runs_out_is_no_proof() -> None:
    """A job that other orders do not let in: without time for the programs, nobody knows whether it could be."""
    state = state_of([150.0, 330.0], [100.0, 100.0], gpus=4)
    policy = get_policy("elasticflow_mip", margin_seconds=0.0, time_limit_seconds=1e-9)
    answer = policy.allocate(state)
    assert answer.status == "feasible"
    assert (answer.objective, answer.bound, answer.gap) == (1.0, 2.0, 0.5)


def test_a_promise_comes_before_more_value() -> None:
    policy = get_policy("elasticflow_mip", margin_seconds=0.0)
    memory = policy.new_memory()
    first = policy.plan(state_of([150.0], [100.0], gpus=4), memory)
    assert not len(first.rejected)
    state = state_of([150.0, 330.0], [100.0, 100.0], gpus=4, priority_weights=np.array([1.0, 9.0]))
    assert policy.plan(state, memory).rejected.tolist() == [1]


def test_a_solver_that_fails_is_named(monkeypatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise SolverError("highs: out of order")

    monkeypatch.setattr("allocator.policies.deadlines.optimum.plans_by_patterns", fails)
    state = state_of([100.0, 150.0], [100.0, 100.0], gpus=4)
    with pytest.warns(UserWarning, match="elasticflow_mip: highs: out of order"):
        answer = get_policy("elasticflow_mip").allocate(state)
    assert answer.rejected == ()
    assert answer.objective == 2.0
    assert answer.fallbacks == ("auto",)


def test_one_impossible_job_rejects_its_batch_or_itself_alone() -> None:
    world = {"gpus": 4, "rates": [[1.0, 2.0, 4.0]] * 3, "steps": [100.0] * 3, "arrivals": [0.0, 0.0, 0.0]}
    slack = [200.0, 10.0, np.nan]
    each = run("elasticflow", **world, slack=slack)
    assert each.jobs["status"].tolist() == ["completed", "rejected", "completed"]
    batch = run("elasticflow", **world, slack=slack, admission="batch")
    # best effort is never rejected
    assert batch.jobs["status"].tolist() == ["rejected", "rejected", "completed"]


def test_repair_lets_in_more_jobs_at_once() -> None:
    """Thirty jobs are offered one after the other at the same instant."""
    met = dict.fromkeys(("each", "repair"), 0)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        n = 30
        seconds = 10 ** rng.uniform(2, 3.3, n)
        world = {
            "gpus": 8, "rates": np.tile([[1.0, 1.7, 2.9, 4.1]], (n, 1)), "steps": seconds * 1.7,
            "slack": seconds * rng.uniform(0.7, 2.5, n), "arrivals": np.zeros(n),
        }  # fmt: skip
        for admission in met:
            result = run("elasticflow", **world, admission=admission, restart_penalty_seconds=0.0)
            assert late(result, world) == 0
            met[admission] += int((result.jobs["status"] == "completed").sum())
    assert met["repair"] > 1.05 * met["each"]


def test_all_gpus_are_used_and_given_back_in_time() -> None:
    """Alone, a job takes all; for the second one it makes room as far as it can."""
    rates = [[1.0, 2.0, 4.0]] * 2
    result = run("elasticflow", 4, rates, [400.0, 180.0], [390.0, 50.0], [0.0, 10.0], restart_penalty_seconds=0.0)
    # 40 of 400 steps by 10 s; then one GPU each second needs at least 2 until 58 s: 4 GPUs would do 192 of 180 by 58 s
    assert result.jobs["status"].tolist() == ["completed", "completed"]
    assert result.jobs["completion_time"].tolist() == pytest.approx([145.0, 55.0])


def test_a_late_job_stands_in_nobodys_way() -> None:
    """The first job is slower than it was believed to be: of the 60 s that a start takes here nobody has told."""
    world = {
        "gpus": 1, "rates": [[1.0], [1.0]], "steps": [100.0, 50.0], "slack": [150.0, 500.0], "arrivals": [0.0, 110.0],
        "restart_penalty_seconds": 0.0, "changes": {"overhead": "starts", "overhead_base_seconds": 60.0},
    }  # fmt: skip
    corrected = run("elasticflow", **world)
    assert corrected.jobs["status"].tolist() == ["completed", "completed"]
    published = run("elasticflow", **world, keep_promises=False)
    assert published.jobs["status"].tolist() == ["completed", "rejected"]
    # 160 s are more than 150, if the policy is told, or the world tells
    told = run("elasticflow", **world, restart_seconds=60.0)
    tells = run("elasticflow", **(world | {"restart_penalty_seconds": 60.0, "changes": {}}))
    for known in (told, tells):
        assert known.jobs["status"].tolist() == ["rejected", "completed"]


def state_of(steps: list[float], slack: list[float], gpus: int = 8, **columns: Any) -> ClusterState:
    n = len(steps)
    rates = np.tile([[1.0, 1.9, 3.5, 6.0]], (n, 1))
    return ClusterState(
        Cluster({"a100": gpus}),
        ThroughputMatrix(rates[:, :1], range(n), ["a100"]),
        configurations=curves_of(rates),
        steps_remaining=np.array(steps),
        slo_seconds=np.array(slack),
        **columns,
    )


def gpus_of(plan: Plan) -> dict[int, int]:
    first = plan.steps[0].assignment
    return dict(zip(first.jobs.tolist(), first.gpus.tolist(), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_says_when_its_numbers_change(name) -> None:
    policy = get_policy(name, margin_seconds=0.0)
    # six GPU seconds a step for the first job until 90 s; the second one follows
    plan = policy.plan(state_of([600.0, 500.0], [101.0, 400.0]), policy.new_memory())
    assert gpus_of(plan) == {0: 8}
    # earliest deadline first waits for the first job to end; 4 GPUs at last, until 101 s, take the least GPU time
    expected = {"edf": np.inf, "elasticflow_mip": pytest.approx(98.6, rel=1e-5)}
    assert plan.steps[0].seconds == expected.get(name, pytest.approx(100.0))
    assert len(plan.steps) == 1


@pytest.mark.parametrize("name", [name for name in NAMES if name != "elasticflow_mip"])
def test_what_rounding_leaves_of_a_job_takes_gpus_too(name) -> None:
    # so little that it would end at the clock of its start, to the last digit
    state = state_of([1.2e-9] * 5, [np.inf] * 5, clock=4_525_145.4645)
    policy = get_policy(name)
    assert sum(gpus_of(policy.plan(state, policy.new_memory())).values()) <= 8


def test_a_cap_by_job_type() -> None:
    state = state_of([600.0], [np.inf], job_types=np.array(["job"], dtype=object))
    for name in NAMES:
        for most, expected in (({}, 8), ({"job": 4}, 4), ({"other": 4}, 8)):
            policy = get_policy(name, most_gpus=most)
            assert gpus_of(policy.plan(state, policy.new_memory())) == {0: expected}


def test_levels_that_are_no_faster_are_not_used() -> None:
    flat = curves_of([[1.0, 1.0, 2.0, 1.5]])
    state = state_of([600.0], [np.inf])
    state.configurations = flat
    for name in NAMES:
        policy = get_policy(name)
        assert gpus_of(policy.plan(state, policy.new_memory())) == {0: 4}
    policy = get_policy("edf", levels="all")
    assert gpus_of(policy.plan(state, policy.new_memory())) == {0: 8}


@pytest.mark.parametrize("name", NAMES)
def test_a_memory_comes_back(name) -> None:
    policy = get_policy(name, restart_seconds=10.0)
    memory = policy.new_memory()
    state = state_of([600.0, 500.0, 100.0], [120.0, 400.0, np.inf])
    first = policy.plan(state, memory)
    again = DeadlineMemory()
    again.restore(memory.state())
    running = Assignment.of(*(getattr(first.steps[0].assignment, c) for c in ("jobs", "pool", "gpus")))
    later = state_of([590.0, 480.0, 90.0], [115.0, 395.0, np.inf], clock=5.0, running=running)
    plans = [policy.plan(later, kept) for kept in (memory, again)]
    assert gpus_of(plans[0]) == gpus_of(plans[1])
    assert plans[0].steps[0].seconds == plans[1].steps[0].seconds
    assert memory.state() == again.state()


def test_promises_that_can_be_kept_are_where_gpus_are_lost() -> None:
    policy = get_policy("elasticflow", margin_seconds=0.0)
    memory = policy.new_memory()
    assert not len(policy.plan(state_of([600.0, 350.0], [101.0, 210.0]), memory).rejected)
    assert set(memory.promised) == {0, 1}
    plan = policy.plan(state_of([600.0, 350.0], [101.0, 210.0], gpus=4), memory)
    assert not len(plan.rejected)
    assert set(memory.promised) == {1}
    assert memory.unpromised == {0}


def test_promises_for_which_gpus_were_lost_are_made_anew() -> None:
    """Both need two GPUs to the end; of two that are left one job has them, and the other one is not forgotten."""
    policy = get_policy("elasticflow", margin_seconds=0.0)
    memory = policy.new_memory()
    policy.plan(state_of([180.0, 180.0], [100.0, 100.0], gpus=4), memory)
    assert set(memory.promised) == {0, 1}
    plan = policy.plan(state_of([180.0, 180.0], [100.0, 100.0], gpus=2), memory)
    assert (set(memory.promised), memory.unpromised) == ({0}, {1})
    assert gpus_of(plan) == {0: 2}


def test_who_is_late_may_still_end_within_the_margin() -> None:
    policy = get_policy("elasticflow", margin_seconds=10.0)
    for steps, promised in ((95.0, {0}), (101.0, set())):
        memory = policy.new_memory()
        memory.unpromised = {0}
        policy.plan(state_of([steps], [100.0], gpus=1), memory)
        assert set(memory.promised) == promised
        assert memory.unpromised == {0} - promised


def test_of_those_who_are_late_the_one_due_first_is_first() -> None:
    policy = get_policy("elasticflow")
    memory = policy.new_memory()
    memory.unpromised = {0, 1, 2}
    plan = policy.plan(state_of([50.0] * 3, [-5.0, -10.0, np.inf], gpus=1, clock=100.0), memory)
    assert gpus_of(plan) == {1: 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slot_seconds": -1.0}, "slot_seconds"),
        ({"margin_seconds": -1.0}, "margin_seconds"),
        ({"most_gpus": {"job": 0}}, "most_gpus of 'job'"),
        ({"admission": "some"}, "admission"),
        ({"repair_quantile": 1.5}, "repair_quantile"),
        ({"admission": "repair", "keep_promises": False}, "admission"),
        ({"repair_rounds": 0}, "repair_rounds"),
        ({"gpu_time_gap": -1.0}, "gpu_time_gap"),
        ({"time_limit_seconds": 0.0}, "time_limit_seconds"),
    ],
)
def test_bad_settings_say_so(options, message) -> None:
    name = "elasticflow_mip" if message in ("gpu_time_gap", "time_limit_seconds") else "elasticflow"
    with pytest.raises(InputError, match=message):
        get_policy(name, **options)


@pytest.mark.parametrize("name", NAMES)
def test_two_types_are_refused(name) -> None:
    state = ClusterState(Cluster({"a100": 1, "t4": 1}), ThroughputMatrix([[1.0, 1.0]], [0], ["a100", "t4"]))
    with pytest.raises(InputError, match="GPUs of one type"):
        get_policy(name).allocate(state)


def test_a_job_that_nothing_can_run_is_rejected() -> None:
    for name in NAMES:
        policy = get_policy(name, most_gpus={"job": 1})
        state = state_of([600.0, 10.0], [np.inf, np.inf], job_types=np.array(["job", "other"], dtype=object))
        state.configurations = Configurations([0, 1], [0, 0], [2, 2], [1.0, 1.0], jobs=[0, 1], pools=["a100"])
        plan = policy.plan(state, policy.new_memory())
        assert plan.rejected.tolist() == [0]
        assert gpus_of(plan) == {1: 2}
