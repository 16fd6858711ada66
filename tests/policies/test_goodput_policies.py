"""Selections by goodput as policies: what they read of a state, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest

import allocator
from allocator.policies.goodput.selection import Restarts, Selected, SelectionPolicy, held_columns
from allocator.protocol import Assignment, ClusterState
from allocator.testing import check_policy
from throughputs import Configurations, InputError, ThroughputMatrix, TraceGenerator

POLICIES = ("sia", "sia_fixed", "sia_unaware", "pollux", "pollux_fixed", "optimus")


def state_of(
    ways: Configurations, cluster: dict[str, int], running: Assignment | None = None, **columns: Any
) -> ClusterState:
    """Jobs that can run in these ways; the matrix has their first columns."""
    N, M = ways.n_jobs, len(cluster)
    rates, gpus = np.zeros((N, M)), np.ones(N, dtype=np.int64)
    for i in range(N):
        first = ways.offsets[i]
        gpus[i] = ways.gpus[first]
        rates[i, ways.pool[first]] = ways.rate[first]
    of = allocator.Cluster(cluster)
    matrix = ThroughputMatrix(rates, ways.jobs, of.accelerators, gpus)
    return ClusterState(of, matrix, configurations=ways, running=running, **columns)


def chosen(policy: Any, state: ClusterState, memory: Any = None) -> dict[Any, tuple[int, int]]:
    plan = policy.plan(state, policy.new_memory() if memory is None else memory)
    rows = plan.steps[0].assignment
    return {int(i): (int(j), int(g)) for i, j, g in zip(rows.jobs, rows.pool, rows.gpus, strict=True)}


def test_sia_takes_the_type_on_which_a_job_gains_most() -> None:
    """Both are faster on the first type, the second job by more."""
    ways = Configurations([0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1], [2.0, 1.0, 9.0, 1.0], pools=["a", "b"])
    state = state_of(ways, {"a": 1, "b": 1})
    assert chosen(allocator.get_policy("sia"), state) == {0: (1, 1), 1: (0, 1)}
    allocation = allocator.get_policy("sia").allocate(state)
    assert (allocation.status, allocation.objective_unit) == ("optimal", "cost")
    assert allocation.objective == pytest.approx(1.0 + 9.0**-0.5)
    assert allocation.bound == pytest.approx(allocation.objective)


def test_sia_counts_a_gang_by_its_fewest_gpus() -> None:
    """A job that needs four GPUs has a goodput of four on its slower type, and so is not set aside."""
    ways = Configurations(
        [0, 0, 1, 1, 1], [0, 1, 0, 0, 0], [4, 4, 1, 2, 4], [1.0, 2.0, 1.0, 1.5, 1.6], pools=["a", "b"]
    )
    assert chosen(allocator.get_policy("sia"), state_of(ways, {"a": 4, "b": 0})) == {0: (0, 4)}
    # one that is alone gets what it gains from, and no more
    assert chosen(allocator.get_policy("sia"), state_of(ways, {"a": 7, "b": 0})) == {0: (0, 4), 1: (0, 2)}


def test_a_seed_decides_between_choices_of_equal_cost_and_no_others() -> None:
    """Both types are worth the same to the first job, the second one is better on the first type."""
    ways = Configurations([0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1], [1.0, 1.0, 9.0, 1.0], pools=["a", "b"])
    state = state_of(ways, {"a": 2, "b": 2})
    policies = [allocator.get_policy("sia", rounded=True, tie_seed=seed) for seed in range(12)]
    plans = [chosen(policy, state) for policy in policies]
    assert {plan[0] for plan in plans} == {(0, 1), (1, 1)}
    assert {plan[1] for plan in plans} == {(0, 1)}
    assert plans == [chosen(policy, state) for policy in policies]
    assert {policy.allocate(state).objective for policy in policies} == {1.0 + 0.33}
    with pytest.raises(InputError, match="field 'tie_seed': found 3, expected none unless costs are rounded"):
        allocator.get_policy("sia", tie_seed=3)
    with pytest.raises(InputError, match="field 'tie_seed': found -1, expected a whole number of at least 0"):
        allocator.get_policy("sia", tie_seed=-1)


def test_types_that_are_named_are_taken_first_at_equal_cost_and_at_no_other() -> None:
    """Three types are worth the same to the first job; the second is better on the last, the third held to one."""
    ways = Configurations(
        [0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2], [1] * 6, [1.0, 1.0, 1.0, 1.0, 1.0, 9.0], pools=["a", "b", "c"]
    )
    for capacity, order, expected in (
        ((2, 2, 2), ("b", "c"), 1),
        ((2, 2, 2), ("c", "b"), 2),
        ((2, 2, 1), ("c", "b"), 1),
        ((2, 0, 1), ("c", "b"), 0),
    ):
        policy = allocator.get_policy("sia", rounded=True, tie_types=order)
        state = state_of(ways, dict(zip("abc", capacity, strict=True)))
        assert chosen(policy, state) == {0: (expected, 1), 1: (2, 1)}
        assert policy.allocate(state).objective == 1.0 + 0.33
    with pytest.raises(InputError, match=r"policy sia: field 'tie_types': found 'x', expected one of"):
        chosen(
            allocator.get_policy("sia", rounded=True, tie_types=("a", "x")), state_of(ways, {"a": 1, "b": 1, "c": 1})
        )
    for settings, expected_text in (
        ({"tie_types": ("a",)}, "none unless costs are rounded"),
        ({"tie_types": ("a",), "rounded": True, "tie_seed": 1}, "none beside a tie_seed"),
        ({"tie_types": ("a", "a"), "rounded": True}, "each type once"),
    ):
        with pytest.raises(InputError, match=f"field 'tie_types'.*{expected_text}"):
            allocator.get_policy("sia", **settings)


def test_a_seed_leaves_a_choice_that_is_better_by_one_step_of_the_costs() -> None:
    ways = Configurations([0, 0], [0, 1], [1, 1], [1.0, 1.03], pools=["a", "b"])
    state = state_of(ways, {"a": 1, "b": 1})
    for seed in range(8):
        assert chosen(allocator.get_policy("sia", rounded=True, tie_seed=seed), state) == {0: (1, 1)}


def test_a_seed_decides_anew_at_every_time() -> None:
    ways = Configurations([0, 0], [0, 1], [1, 1], [1.0, 1.0], pools=["a", "b"])
    policy, types = allocator.get_policy("sia", rounded=True, tie_seed=0), set()
    for clock in range(0, 720, 60):
        state = state_of(ways, {"a": 1, "b": 1})
        state.clock = float(clock)
        types.add(chosen(policy, state)[0][0])
    assert types == {0, 1}


def test_pollux_may_take_types_for_equal() -> None:
    """Two jobs on six GPUs: a fair share is three of all, of which columns reach two; each has GPUs of one type."""
    gpus = [1, 2, 4, 1, 2]
    ways = Configurations(
        [0] * 5 + [1] * 5, [0, 0, 0, 1, 1] * 2, gpus * 2, [1.0, 1.8, 3.0, 1.0, 1.8] * 2, pools=["a", "b"]
    )
    state = state_of(ways, {"a": 4, "b": 2})
    policy = allocator.get_policy("pollux", types="alike", restart_seconds=30.0)
    found = chosen(policy, state)
    # a fair share of a job that is alone is all GPUs, whichever type has most of them
    for columns_of_a, columns_of_b in (([4, 8], [1, 2]), ([1, 2], [4, 8])):
        gpus = [*columns_of_a, *columns_of_b]
        one = Configurations([0] * 4, [0, 0, 1, 1], gpus, np.sqrt(gpus), pools=["a", "b"])
        wide = policy.allocate(state_of(one, {"a": columns_of_a[1], "b": columns_of_b[1]}))
        assert wide.objective == pytest.approx(1.001)
    assert {(pool, gpus) for pool, gpus in found.values()} == {(0, 4), (1, 2)}
    # harmonic mean of speedups of 3.0 / 1.8 and 1
    mean = policy.allocate(state).objective
    assert 1 / mean == pytest.approx((1 / (3.0 / 1.8 + 0.001) + 1 / 1.001) / 2)
    with pytest.raises(InputError, match=r"GPUs of one type.*types=alike"):
        chosen(allocator.get_policy("pollux"), state)
    for settings, text in (({"types": "all"}, "one or alike"), ({"types": "alike", "search": "genetic"}, "program")):
        with pytest.raises(InputError, match=f"field 'types'.*{text}"):
            allocator.get_policy("pollux", **settings)


def test_who_has_just_started_is_not_restarted_for_little() -> None:
    ways = Configurations([0, 0], [0, 0], [1, 2], [1.0, 1.2])
    running = Assignment.of([0], [0], [1])
    for name in ("sia", "pollux"):
        policy = allocator.get_policy(name, restart_seconds=60.0)
        assert chosen(policy, state_of(ways, {"pool 0": 2}, running, elapsed_seconds=[100.0])) == {0: (0, 1)}
        assert chosen(policy, state_of(ways, {"pool 0": 2}, running, elapsed_seconds=[1e5])) == {0: (0, 2)}
        # many restarts weigh as much as little time
        memory = Restarts()
        memory.times[0] = 1000
        assert chosen(policy, state_of(ways, {"pool 0": 2}, running, elapsed_seconds=[1e5]), memory) == {0: (0, 1)}


@dataclass(frozen=True)
class Told(SelectionPolicy):
    """Chooses given columns, and keeps what it was told."""

    name: ClassVar[str] = "told"

    x: tuple[float, ...] = ()
    told: list[Any] = field(default_factory=list)

    def choose(self, state: ClusterState, ways: Configurations, held: Any, kept: Any, memory: Any) -> Selected:
        del memory
        self.told.append((state.clock, held.tolist(), kept.tolist()))
        return Selected(np.array(self.x[: ways.n_columns]))


@pytest.mark.parametrize(
    ("stated", "of_world", "expected"), [(60.0, 10.0, 60.0), (None, 10.0, 10.0), (None, 0.0, 30.0)]
)
def test_what_a_restart_leaves_of_goodput(stated: float | None, of_world: float, expected: float) -> None:
    """(a - n S) / (a + S); all of it as long as a job is younger than a start takes."""
    ways = Configurations([0, 1, 2, 3], [0] * 4, [1] * 4, np.ones(4))
    ages = np.array([expected - 1.0, expected, 1000.0, 1000.0])
    memory = Restarts()
    memory.times = {0: -1, 1: -1, 2: 0, 3: 2}
    policy = Told(stated, x=(1.0,) * 4)
    policy.plan(state_of(ways, {"pool 0": 4}, elapsed_seconds=ages, restart_seconds=of_world), memory)
    ((_, _, kept),) = policy.told
    whole, some = 1000.0 / (1000.0 + expected), (1000.0 - 2 * expected) / (1000.0 + expected)
    assert kept == pytest.approx([1.0, 0.5, whole, some])


def test_what_a_restart_costs_may_differ_by_type() -> None:
    ways = Configurations([0, 1, 2], [0] * 3, [1] * 3, np.ones(3))
    for stated, other in ((60.0, 60.0), (None, 10.0)):
        policy = Told(stated, (("slow", 250.0), ("quick", 0.0)), (1.0,) * 3)
        types = np.array(["slow", "net", "quick"], dtype=object)
        policy.plan(
            state_of(ways, {"pool 0": 3}, elapsed_seconds=[1000.0] * 3, restart_seconds=10.0, job_types=types),
            Restarts(),
        )
        ((_, _, kept),) = policy.told
        assert kept == pytest.approx([1000 / 1250, 1000 / (1000 + other), 1.0])


def test_who_still_starts_is_kept_where_it_is_unless_told_otherwise() -> None:
    ways = Configurations([0, 0], [0, 0], [1, 2], [1.0, 2.0])
    running = Assignment.of([0], [0], [1])
    for starting, keeps, gpus in ((9.0, True, 1), (9.0, False, 2), (0.0, True, 2)):
        state = state_of(ways, {"pool 0": 2}, running, elapsed_seconds=[1e5], starting_seconds=[starting])
        assert chosen(allocator.get_policy("sia", keeps_starting=keeps), state) == {0: (0, gpus)}


def test_a_start_is_one_of_who_did_not_run_so_before() -> None:
    """The first keeps its column, the second moves, the third had none."""
    ways = Configurations([0, 0, 1, 1, 2], [0] * 5, [1, 2, 1, 2, 1], np.ones(5))
    memory, running = Restarts(), Assignment.of([0, 1], [0, 0], [2, 1])
    memory.times = {0: 0, 1: 0}
    policy = Told(None, (), (0.0, 1.0, 0.0, 1.0, 1.0))
    assert chosen(policy, state_of(ways, {"pool 0": 5}, running), memory) == {0: (0, 2), 1: (0, 2), 2: (0, 1)}
    assert policy.told[0][1] == [1, 2, -1]
    assert memory.times == {0: 0, 1: 1, 2: 0}


@pytest.mark.parametrize("name", POLICIES)
def test_who_is_through_gets_nothing(name: str) -> None:
    ways = Configurations([0, 1], [0, 0], [1, 1], [1.0, 1.0])
    assert chosen(allocator.get_policy(name), state_of(ways, {"pool 0": 1}, steps_remaining=[0.0, 9.0])) == {1: (0, 1)}


def test_restarts_are_counted_and_forgotten() -> None:
    memory = Restarts()
    assert memory.of(["a", "b"]).tolist() == [0, 0]
    memory.note(["a", "b"], np.array([1]))
    assert memory.of(["a", "b"]).tolist() == [0, 0]
    memory.note(["a", "b"], np.array([1]))
    other = Restarts()
    other.restore(memory.state())
    assert other.of(["b"]).tolist() == [1]
    assert other.of(["a", "b"]).tolist() == [0, 1]


def test_columns_that_run_are_found() -> None:
    ways = Configurations([0, 0, 1, 2], [0, 1, 0, 1], [1, 2, 4, 1], np.ones(4), pools=["a", "b"])
    running = Assignment.of([0, 1, 2], [1, 0, 1], [2, 2, 1])
    # the second runs on a number of GPUs that nobody has figures for
    assert held_columns(ways, running).tolist() == [1, -1, 3]
    assert held_columns(ways, Assignment.none()).tolist() == [-1, -1, -1]
    # as many GPUs of one type as of the other
    two = Configurations([0, 0], [0, 1], [1, 1], np.ones(2), pools=["a", "b"])
    assert [held_columns(two, Assignment.of([0], [m], [1])).tolist() for m in (0, 1)] == [[0], [1]]


def test_pollux_shares_by_the_harmonic_mean() -> None:
    """One job gains from all GPUs, the other hardly: each has one of two, since nobody is to be left without."""
    ways = Configurations([0, 0, 1, 1], [0, 0, 0, 0], [1, 2, 1, 2], [1.0, 2.0, 1.0, 1.1])
    assert chosen(allocator.get_policy("pollux"), state_of(ways, {"pool 0": 2})) == {0: (0, 1), 1: (0, 1)}
    assert chosen(allocator.get_policy("pollux"), state_of(ways, {"pool 0": 3})) == {0: (0, 2), 1: (0, 1)}
    allocation = allocator.get_policy("pollux").allocate(state_of(ways, {"pool 0": 2}))
    assert allocation.objective == pytest.approx(1.001)


def test_speedups_are_against_a_fair_share() -> None:
    """Of three GPUs two jobs have a share of two, rounded up; who needs more counts by its fewest."""
    pollux = allocator.get_policy("pollux")
    ways = Configurations([0, 0, 1, 1], [0] * 4, [1, 2, 1, 2], [1.0, 1.5, 1.0, 1.8])
    state = state_of(ways, {"pool 0": 3})
    assert chosen(pollux, state) == {0: (0, 1), 1: (0, 2)}
    assert pollux.allocate(state).objective == pytest.approx(2 / (1 / (1 / 1.5 + 1e-3) + 1 / 1.001))
    ways = Configurations([0, 0, 1], [0] * 3, [3, 4, 1], [2.0, 2.2, 1.0])
    assert pollux.allocate(state_of(ways, {"pool 0": 4})).objective == pytest.approx(1.001)
    # the start of a job that waits costs as much as a restart
    alone = state_of(Configurations([0], [0], [1], [1.0]), {"pool 0": 1}, elapsed_seconds=[100.0])
    assert pollux.allocate(alone).objective == pytest.approx(0.001 + 100 / 130)


def test_sia_weighs_jobs_and_rounds_costs() -> None:
    ways = Configurations([0, 0, 1, 1], [0] * 4, [1, 2, 1, 2], [1.0, 3.0, 1.0, 3.0])
    weighted = state_of(ways, {"pool 0": 1}, priority_weights=[1.0, 2.0])
    assert chosen(allocator.get_policy("sia"), weighted) == {1: (0, 1)}
    state = state_of(ways, {"pool 0": 4})
    assert allocator.get_policy("sia").allocate(state).objective == pytest.approx(2 * 3.0**-0.5)
    assert allocator.get_policy("sia", rounded=True).allocate(state).objective == pytest.approx(2 * 0.58)


def test_a_rounded_cost_is_3000_at_most() -> None:
    """A job without any goodput left moves all the same where one that waits costs more than that."""
    ways = Configurations([0, 0, 1], [0, 1, 0], [1, 1, 1], np.ones(3), pools=["a", "b"])
    state = state_of(ways, {"a": 1, "b": 1}, Assignment.of([0], [0], [1]), elapsed_seconds=[100.0, 0.0])
    memory = Restarts()
    for rounded in (True, False):
        memory.times = {0: 1000}
        found = chosen(allocator.get_policy("sia", rounded=rounded, penalty=5000.0), state, memory)
        assert (found == {0: (1, 1), 1: (0, 1)}) is rounded


def test_optimus_passes_over_numbers_of_gpus_without_figures() -> None:
    """One job runs on 1 or 4 GPUs, the other on 4 alone, as tables with powers of two say it."""
    optimus = allocator.get_policy("optimus", search="marginal_gains")
    ways = Configurations([0, 0, 1], [0] * 3, [1, 4, 4], [1.0, 3.0, 2.0])
    for gpus, expected in ((4, {0: (0, 4)}), (5, {0: (0, 1), 1: (0, 4)}), (8, {0: (0, 4), 1: (0, 4)})):
        assert chosen(optimus, state_of(ways, {"pool 0": gpus}, steps_remaining=[100.0, 100.0])) == expected


def test_optimus_gives_gpus_to_whom_they_save_most() -> None:
    ways = Configurations([0, 0, 1, 1], [0, 0, 0, 0], [1, 2, 1, 2], [1.0, 2.0, 1.0, 2.0])
    state = state_of(ways, {"pool 0": 3}, steps_remaining=[100.0, 50.0])
    for search in ("program", "marginal_gains"):
        policy = allocator.get_policy("optimus", search=search)
        assert chosen(policy, state) == {0: (0, 2), 1: (0, 1)}
        assert policy.allocate(state).objective == pytest.approx(50.0 + 50.0)
    two = Configurations([0, 0], [0, 1], [1, 1], [1.0, 2.0], pools=["a", "b"])
    with pytest.raises(InputError, match="GPUs of one type: marginal gains"):
        allocator.get_policy("optimus", search="marginal_gains").allocate(state_of(two, {"a": 1, "b": 1}))
    with pytest.raises(InputError, match="GPUs of one type: its speedups"):
        allocator.get_policy("pollux").allocate(state_of(two, {"a": 1, "b": 1}))


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("sia", "power", 0.0),
        ("sia", "power", 1e300),
        ("pollux", "power", -200.0),
        ("sia", "penalty", 0.0),
        ("sia", "restart_seconds", -1.0),
        ("pollux", "power", np.inf),
        ("pollux", "restart_seconds", np.inf),
        ("pollux", "search", "greedy"),
        ("pollux", "second", "gpus"),
        ("pollux", "seed", -1),
        ("pollux", "seconds", 0.0),
        ("pollux", "restart_keeps", 1.5),
        ("sia_fixed", "change_penalty", -1.0),
        ("optimus", "search", "greedy"),
    ],
)
def test_settings_are_checked(name: str, setting: str, value: Any) -> None:
    with pytest.raises(InputError, match=setting):
        allocator.get_policy(name, **{setting: value})


SEARCHES: dict[str, dict[str, Any]] = {
    "genetic": {"search": "genetic", "generations": 20},
    "of AdaptDL": {"search": "genetic", "generations": 20, "power": 1.0, "restart_keeps": 0.9, "second": "nodes"},
    "nodes": {"search": "nodes", "generations": 5},
}


@pytest.mark.parametrize("settings", SEARCHES.values(), ids=SEARCHES)
def test_searches_on_nodes_conform(settings: dict[str, Any]) -> None:
    check_policy(allocator.get_policy("pollux", **settings))


def on_nodes(seed: int = 0, n_jobs: int = 6, **columns: Any) -> ClusterState:
    """Jobs on 1 to 8 GPUs of two nodes of four."""
    rng = np.random.default_rng(seed)
    job, gpus = np.divmod(np.arange(n_jobs * 8), 8)
    rate = rng.uniform(1.0, 2.0, n_jobs)[job] * (gpus + 1.0) ** rng.uniform(0.3, 0.95, n_jobs)[job]
    ways = Configurations(job, 0 * job, gpus + 1, rate, pools=["t4"])
    matrix = ThroughputMatrix(rate[::8, None], ways.jobs, ["t4"], np.ones(n_jobs, dtype=np.int64))
    return ClusterState(allocator.Cluster({"t4": 8}, {"t4": 4}), matrix, configurations=ways, **columns)


def test_nodes_cost_and_the_genetic_search_leaves_something() -> None:
    """Without nodes there is the most to gain; on them branch and bound is not below the search that it begins with."""
    for seed in range(4):
        state = on_nodes(seed)
        found = {
            search: allocator.get_policy("pollux", search=search, generations=30).allocate(state)
            for search in ("program", "nodes", "genetic")
        }
        assert found["program"].objective >= found["nodes"].objective * (1 - 1e-9)
        assert found["nodes"].objective >= found["genetic"].objective
        assert found["genetic"].bound == pytest.approx(found["program"].bound)
        assert [found[search].status for search in found] == ["optimal", "optimal", found["genetic"].status]
        assert 0 <= found["genetic"].gap < 0.2


def test_a_search_goes_on_from_its_last_population() -> None:
    """Also when a job has left and another has come; of the jobs that stay, what they hold is among the answers."""
    policy = allocator.get_policy("pollux", search="genetic", generations=3)
    state, memory = on_nodes(1), policy.new_memory()
    plan = policy.plan(state, memory)
    assert memory.searches == 1
    assert memory.gpus.sum() == plan.steps[0].assignment.busy_gpus
    objectives = [plan.allocation.objective]
    for _ in range(15):
        plan = policy.plan(on_nodes(1, running=plan.steps[0].assignment), memory)
        objectives.append(plan.allocation.objective)
    # nobody loses by staying, so no later answer is worse
    assert (np.diff(objectives) >= -1e-12).all()
    assert objectives[-1] > objectives[0]
    fewer = on_nodes(1).subset(np.array([0, 2, 3, 4, 5]))
    policy.plan(fewer, memory)
    assert set(memory.jobs) == {0, 2, 3, 4, 5}
    assert memory.population.max() <= 5
    other = ClusterState(
        allocator.Cluster({"t4": 4}, {"t4": 2}), fewer.throughputs, configurations=fewer.configurations
    )
    policy.plan(other, memory)
    assert memory.population.shape[1:] == (2, 2)


def test_a_fixed_part_is_what_a_restart_keeps() -> None:
    """AdaptDL's form: a tenth is lost, however young a job is."""
    ways = Configurations([0, 0], [0, 0], [1, 2], [1.0, 1.05])
    running = Assignment.of([0], [0], [1])
    state = state_of(ways, {"pool 0": 2}, running, elapsed_seconds=[1.0])
    assert chosen(allocator.get_policy("pollux"), state) == {0: (0, 2)}
    assert chosen(allocator.get_policy("pollux", restart_keeps=0.9), state) == {0: (0, 1)}
    assert chosen(allocator.get_policy("pollux", restart_keeps=0.99), state) == {0: (0, 2)}


def test_pollux_counts_the_start_of_a_waiting_job_as_a_restart() -> None:
    """Alone on both GPUs the job that waits gains 1 % over both, of which its start takes more."""
    ways = Configurations([0, 1, 1], [0, 0, 0], [1, 1, 2], [1.0, 1.0, 2.02])
    running = Assignment.of([0], [0], [1])
    state = state_of(ways, {"pool 0": 2}, running, elapsed_seconds=[1000.0, 1000.0])
    assert chosen(allocator.get_policy("pollux", power=1.0), state) == {0: (0, 1), 1: (0, 1)}
    assert chosen(allocator.get_policy("pollux", power=1.0, restart_keeps=1.0), state) == {1: (0, 2)}


def with_gangs(ways: Configurations, cluster: dict[str, int], gpus: list[int], **columns: Any) -> ClusterState:
    """Jobs that ask for these gangs."""
    of, rates = allocator.Cluster(cluster), np.zeros((ways.n_jobs, len(cluster)))
    for i, count in enumerate(gpus):
        for row in range(ways.offsets[i], ways.offsets[i + 1]):
            if ways.gpus[row] == count:
                rates[i, ways.pool[row]] = ways.rate[row]
    return ClusterState(of, ThroughputMatrix(rates, ways.jobs, of.accelerators, gpus), configurations=ways, **columns)


def test_fixed_gangs_are_not_changed() -> None:
    """Both policies would give the first job more than the one GPU that it asks for."""
    ways = Configurations([0, 0, 1, 1], [0] * 4, [1, 2, 1, 2], [1.0, 2.0, 1.0, 2.0])
    state = with_gangs(ways, {"pool 0": 4}, [1, 2])
    for name in ("sia", "pollux"):
        assert chosen(allocator.get_policy(name), state) == {0: (0, 2), 1: (0, 2)}
        assert chosen(allocator.get_policy(f"{name}_fixed"), state) == {0: (0, 1), 1: (0, 2)}
    # speedups are over a fair share of two GPUs all the same
    assert allocator.get_policy("pollux_fixed").allocate(state).objective == pytest.approx(2 / (1 / 0.501 + 1 / 1.001))


def test_the_published_form_of_fixed_gangs_maximises_costs() -> None:
    """Two jobs that are faster on the first type, by 9 and by 2: as published the one that gains least has it."""
    ways = Configurations([0, 0, 1, 1], [0, 1] * 2, [1] * 4, [9.0, 1.0, 2.0, 1.0], pools=["a", "b"])
    state = with_gangs(ways, {"a": 1, "b": 1}, [1, 1])
    assert chosen(allocator.get_policy("sia_fixed"), state) == {0: (0, 1), 1: (1, 1)}
    published = allocator.get_policy("sia_fixed", published=True)
    assert chosen(published, state) == {0: (1, 1), 1: (0, 1)}
    allocation = published.allocate(state)
    assert allocation.objective == pytest.approx(1.0 + 2.0**-0.5 - 2 * 0.01)
    assert allocation.bound == pytest.approx(allocation.objective)
    # with a price on changes who runs stays
    running = Assignment.of([0, 1], [0, 1], [1, 1])
    moves = with_gangs(ways, {"a": 1, "b": 1}, [1, 1], running=running)
    dear = allocator.get_policy("sia_fixed", published=True, change_penalty=0.5)
    assert chosen(dear, moves) == {0: (0, 1), 1: (1, 1)}
    assert dear.allocate(moves).objective == pytest.approx(9.0**-0.5 + 1.0)


def test_sia_without_types_weighs_those_who_wait() -> None:
    """One GPU for two jobs: who had none weighs one more each time; its advantage of two is made up for."""
    ways = Configurations([0, 1], [0, 0], [1, 1], [1.0, 1.0])
    policy = allocator.get_policy("sia_unaware", restart_seconds=0.0)
    memory, served, running = policy.new_memory(), [], None
    for _ in range(6):
        state = state_of(ways, {"pool 0": 1}, running, priority_weights=[2.5, 1.0])
        plan = policy.plan(state, memory)
        running = plan.steps[0].assignment
        served += running.jobs.tolist()
    assert served == [0, 0, 1, 0, 1, 0]
    assert memory.left_out == {0: 2, 1: 4}


def test_sia_without_types_knows_nodes_of_four() -> None:
    counts = [1, 2, 3, 4, 6, 8, 12]
    ways = Configurations([0] * 7, [0] * 7, counts, np.array(counts, dtype=float))
    policy = allocator.get_policy("sia_unaware")
    for gpus, expected in ((3, 2), (7, 4), (12, 12)):
        assert chosen(policy, state_of(ways, {"pool 0": gpus})) == {0: (0, expected)}
    # as published a job never has all nodes
    assert chosen(allocator.get_policy("sia_unaware", published=True), state_of(ways, {"pool 0": 12})) == {0: (0, 8)}
    two = Configurations([0, 0], [0, 1], [1, 1], [1.0, 2.0], pools=["a", "b"])
    with pytest.raises(InputError, match="GPUs of one type: its weights"):
        policy.allocate(state_of(two, {"a": 1, "b": 1}))


@pytest.mark.parametrize("name", POLICIES)
def test_a_whole_run(name: str) -> None:
    """Everybody completes; those who may choose their GPUs are through sooner than in gangs of a fixed size."""
    trace = TraceGenerator(n_jobs=12, mean_interarrival=600, seed=3).generate()
    table = allocator.default_table()
    run = allocator.simulate(trace, "v100:8", allocator.get_policy(name), table)
    fixed = allocator.simulate(trace, "v100:8", allocator.get_policy("fifo"), table)
    assert (run.jobs["status"] == "completed").all()
    if "fixed" not in name:
        assert run.jobs["jct"].mean() < fixed.jobs["jct"].mean()
