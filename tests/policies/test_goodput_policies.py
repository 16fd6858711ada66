"""Selections by goodput as policies: what they read of a state, and what comes of it.

Jobs are said as text, ``"a1=2 b4=3"``: 2 steps/s on one GPU of type a, 3 on four of type b; so is what is chosen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest

from allocator import Cluster, get_policy
from allocator.policies.goodput.selection import Restarts, Selected, SelectionPolicy
from allocator.presets import preset
from allocator.protocol import Assignment, ClusterState
from throughputs import Configurations, InputError, ThroughputMatrix

POLICIES = ("sia", "sia_fixed", "sia_unaware", "pollux", "pollux_fixed", "optimus")


def running_on(said: str, names: str) -> Assignment:
    rows = [(i, names.index(way[0]), int(way[1:])) for i, way in enumerate(said.split()) if way != "-"]
    return Assignment.of(*map(list, zip(*rows, strict=True))) if rows else Assignment.none()


def state_of(*jobs: str, cluster: str = "a:1", running: str = "", gangs: Any = None, **columns: Any) -> ClusterState:
    """The matrix has the first column of each job, or that of its gang."""
    of = Cluster.parse(cluster)
    names = "".join(of.accelerators)
    rows = [
        (i, names.index(pool), int(gpus), float(rate))
        for i, job in enumerate(jobs)
        for pool, gpus, rate in re.findall(r"(\w)(\d+)=([\d.e]+)", job)
    ]
    ways = Configurations(*map(np.array, zip(*rows, strict=True)), pools=list(names))
    asked = list(gangs or ways.gpus[ways.offsets[:-1]])
    rates = np.zeros((len(jobs), len(names)))
    for i, pool, gpus, rate in rows:
        if gpus == asked[i] and (gangs or not rates[i].any()):
            rates[i, pool] = rate
    matrix = ThroughputMatrix(rates, ways.jobs, of.accelerators, asked)
    return ClusterState(of, matrix, configurations=ways, running=running_on(running, names), **columns)


def chosen(policy: Any, state: ClusterState, memory: Any = None, **settings: Any) -> str:
    policy = get_policy(policy, **settings) if isinstance(policy, str) else policy
    rows = policy.plan(state, memory or policy.new_memory()).steps[0].assignment
    found = ["-"] * state.n_jobs
    for i, j, gpus in zip(rows.jobs, rows.pool, rows.gpus, strict=True):
        found[i] = f"{state.cluster.accelerators[j]}{gpus}"
    return " ".join(found)


def objective(policy: Any, state: ClusterState, **settings: Any) -> float:
    """What is attained, and proven."""
    allocation = (get_policy(policy, **settings) if isinstance(policy, str) else policy).allocate(state)
    assert allocation.status == "optimal"
    assert allocation.bound == pytest.approx(allocation.objective)
    return allocation.objective


def published_sia(**settings):
    usual = {"restart_seconds": None, "restart_seconds_of_type": ()}
    return preset("sia").make_policy("sia", Cluster({"a": 1}), **usual | settings)


def test_sia_takes_the_type_on_which_a_job_gains_most() -> None:
    """Both are faster on the first type, the second job by more."""
    state = state_of("a1=2 b1=1", "a1=9 b1=1", cluster="a:1,b:1")
    assert chosen("sia", state) == "b1 a1"
    assert objective("sia", state) == pytest.approx(1.0 + 9.0**-0.5)


def test_sia_counts_a_gang_by_its_fewest_gpus() -> None:
    """A job that needs four GPUs has a goodput of four on its slower type, and so is not set aside."""
    jobs = "a4=1 b4=2", "a1=1 a2=1.5 a4=1.6"
    assert chosen("sia", state_of(*jobs, cluster="a:4,b:0")) == "a4 -"
    # one that is alone gets what it gains from, and no more
    assert chosen("sia", state_of(*jobs, cluster="a:7,b:0")) == "a4 a2"


def test_a_seed_decides_between_choices_of_equal_cost_and_no_others() -> None:
    """Both types are worth the same to the first job, the second one is better on the first type."""
    rounded = [published_sia(tie_seed=seed) for seed in range(12)]
    state = state_of("a1=1 b1=1", "a1=9 b1=1", cluster="a:2,b:2")
    plans = [chosen(policy, state) for policy in rounded]
    assert set(plans) == {"a1 a1", "b1 a1"}
    assert plans == [chosen(policy, state) for policy in rounded]
    assert {policy.allocate(state).objective for policy in rounded} == {1.0 + 0.33}
    # better by one step of the costs
    state = state_of("a1=1 b1=1.03", cluster="a:1,b:1")
    assert {chosen(policy, state) for policy in rounded} == {"b1"}
    # anew at every time
    clocks = (state_of("a1=1 b1=1", cluster="a:1,b:1", clock=60.0 * k) for k in range(12))
    assert {chosen(rounded[0], state) for state in clocks} == {"a1", "b1"}


def test_types_that_are_named_are_taken_first_at_equal_cost_and_at_no_other() -> None:
    """Three types are worth the same to the first job; the second is better on the last, the third held to one."""
    for cluster, order, expected in (
        ("a:2,b:2,c:2", ("b", "c"), "b1 c1"),
        ("a:2,b:2,c:2", ("c", "b"), "c1 c1"),
        ("a:2,b:2,c:1", ("c", "b"), "b1 c1"),
        ("a:2,b:0,c:1", ("c", "b"), "a1 c1"),
    ):
        state = state_of("a1=1 b1=1 c1=1", "a1=1 b1=1 c1=9", cluster=cluster)
        assert chosen(published_sia(tie_types=order), state) == expected
        assert objective(published_sia(tie_types=order), state) == 1.0 + 0.33
    with pytest.raises(InputError, match=r"sia.*tie_types.*'x'"):
        chosen(published_sia(tie_types=("a", "x")), state)


def test_pollux_may_take_types_for_equal() -> None:
    """Two jobs on six GPUs: a fair share is three of all, of which columns reach two; each has GPUs of one type."""
    state = state_of(*["a1=1 a2=1.8 a4=3 b1=1 b2=1.8"] * 2, cluster="a:4,b:2")
    alike = {"types": "alike", "restart_seconds": 30.0}
    assert set(chosen("pollux", state, **alike).split()) == {"a4", "b2"}
    # harmonic mean of speedups of 3.0 / 1.8 and 1
    assert objective("pollux", state, **alike) == pytest.approx(2 / (1 / (3.0 / 1.8 + 0.001) + 1 / 1.001))
    # a fair share of a job that is alone is all GPUs, whichever type has most of them
    for ways, cluster in (("a4=2 a8=2.8 b1=1 b2=1.4", "a:8,b:2"), ("a1=1 a2=1.4 b4=2 b8=2.8", "a:2,b:8")):
        assert objective("pollux", state_of(ways, cluster=cluster), **alike) == pytest.approx(1.001)


@pytest.mark.parametrize("name", ["sia", "pollux"])
def test_who_has_just_started_is_not_restarted_for_little(name: str) -> None:
    # many restarts weigh as much as little time
    policy, memory = get_policy(name, restart_seconds=60.0), Restarts((0,), np.array([1000]))
    for age, known, expected in ((100.0, None, "a1"), (1e5, None, "a2"), (1e5, memory, "a1")):
        state = state_of("a1=1 a2=1.2", cluster="a:2", running="a1", elapsed_seconds=[age])
        assert chosen(policy, state, known) == expected


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


def kept(policy: Told, state: ClusterState, memory: Restarts) -> list[float]:
    policy.plan(state, memory)
    return policy.told[-1][2]


@pytest.mark.parametrize(("stated", "world", "expected"), [(60.0, 10.0, 60.0), (None, 10.0, 10.0), (None, 0.0, 30.0)])
def test_what_a_restart_leaves_of_goodput(stated: float | None, world: float, expected: float) -> None:
    """(a - n S) / (a + S); all of it as long as a job is younger than a start takes; S may differ by type."""
    memory = Restarts((0, 1, 2, 3), np.array([-1, -1, 0, 2]))
    ages = [expected - 1.0, expected, 1000.0, 1000.0]
    ones = ["a1=1"] * 4
    known = {"cluster": "a:4", "restart_seconds": world}
    whole, some = 1000.0 / (1000.0 + expected), (1000.0 - 2 * expected) / (1000.0 + expected)
    found = kept(Told(stated, x=(1.0,) * 4), state_of(*ones, elapsed_seconds=ages, **known), memory)
    assert found == pytest.approx([1.0, 0.5, whole, some])
    types = np.array(["slow", "net", "quick", "net"], dtype=object)
    state = state_of(*ones, elapsed_seconds=[1000.0] * 4, job_types=types, **known)
    found = kept(Told(stated, (("slow", 250.0), ("quick", 0.0)), (1.0,) * 4), state, Restarts())
    assert found == pytest.approx([1000 / 1250, whole, 1.0, whole])


def test_who_still_starts_is_kept_where_it_is_unless_told_otherwise() -> None:
    for starting, keeps, expected in ((9.0, True, "a1"), (9.0, False, "a2"), (0.0, True, "a2")):
        started = {"elapsed_seconds": [1e5], "starting_seconds": [starting]}
        state = state_of("a1=1 a2=2", cluster="a:2", running="a1", **started)
        assert chosen("sia", state, keeps_starting=keeps) == expected


def test_a_start_is_one_of_who_did_not_run_so_before() -> None:
    """The first keeps its column, the second moves, the third had none; counts are kept, and forgotten with jobs."""
    memory, policy = Restarts((0, 1), np.array([0, 0])), Told(None, (), (0.0, 1.0, 0.0, 1.0, 1.0))
    state = state_of("a1=1 a2=1", "a1=1 a2=1", "a1=1", cluster="a:5", running="a2 a1")
    assert chosen(policy, state, memory) == "a2 a2 a1"
    assert policy.told[0][1] == [1, 2, -1]
    assert memory.times.tolist() == [0, 1, 0]
    other = Restarts()
    other.restore(memory.state())
    for labels, times in (((1,), [1]), ((0, 1), [-1, 1])):
        other.align(labels)
        assert other.times.tolist() == times


@pytest.mark.parametrize("name", POLICIES)
def test_who_is_through_gets_nothing(name: str) -> None:
    assert chosen(name, state_of("a1=1", "a1=1", steps_remaining=[0.0, 9.0])) == "- a1"


def test_pollux_shares_by_the_harmonic_mean() -> None:
    """One job gains from all GPUs, the other hardly: each has one of two, since nobody is to be left without."""
    jobs = "a1=1 a2=2", "a1=1 a2=1.1"
    for gpus, expected in ((2, "a1 a1"), (3, "a2 a1")):
        assert chosen("pollux", state_of(*jobs, cluster=f"a:{gpus}")) == expected
    assert objective("pollux", state_of(*jobs, cluster="a:2")) == pytest.approx(1.001)


def test_speedups_are_against_a_fair_share() -> None:
    """Of three GPUs two jobs have a share of two, rounded up; who needs more counts by its fewest."""
    state = state_of("a1=1 a2=1.5", "a1=1 a2=1.8", cluster="a:3")
    assert chosen("pollux", state) == "a1 a2"
    assert objective("pollux", state) == pytest.approx(2 / (1 / (1 / 1.5 + 1e-3) + 1 / 1.001))
    assert objective("pollux", state_of("a3=2 a4=2.2", "a1=1", cluster="a:4")) == pytest.approx(1.001)
    # the start of a job that waits costs as much as a restart
    assert objective("pollux", state_of("a1=1", elapsed_seconds=[100.0])) == pytest.approx(0.001 + 100 / 130)


def test_sia_weighs_jobs_and_rounds_costs() -> None:
    jobs = ["a1=1 a2=3"] * 2
    assert chosen("sia", state_of(*jobs, priority_weights=[1.0, 2.0])) == "- a1"
    state = state_of(*jobs, cluster="a:4")
    assert objective("sia", state) == pytest.approx(2 * 3.0**-0.5)
    assert objective(published_sia(), state) == pytest.approx(2 * 0.58)


def test_optimus_gives_gpus_to_whom_they_save_most() -> None:
    """By single steps it passes over numbers of GPUs without figures, as tables with powers of two have them."""
    state = state_of("a1=1 a2=2", "a1=1 a2=2", cluster="a:3", steps_remaining=[100.0, 50.0])
    for search in ("program", "marginal_gains"):
        assert chosen("optimus", state, search=search) == "a2 a1"
        assert get_policy("optimus", search=search).allocate(state).objective == pytest.approx(50.0 + 50.0)
    for gpus, expected in ((4, "a4 -"), (5, "a1 a4"), (8, "a4 a4")):
        state = state_of("a1=1 a4=3", "a4=2", cluster=f"a:{gpus}", steps_remaining=[100.0, 100.0])
        assert chosen("optimus", state, search="marginal_gains") == expected


def test_marginal_gains_do_not_tell_types_apart() -> None:
    with pytest.raises(InputError, match="marginal gains"):
        chosen("optimus", state_of("a1=1 b1=2", cluster="a:1,b:1"), search="marginal_gains")


def test_the_published_search_comes_with_the_published_systems(monkeypatch) -> None:
    monkeypatch.setattr("allocator.policies.goodput.pollux.entries_of", lambda _: {})
    with pytest.raises(InputError, match="the published systems are not installed"):
        chosen("pollux", state_of("a1=1"), search="genetic")


def test_a_fixed_part_is_what_a_restart_keeps() -> None:
    """AdaptDL's form: a tenth is lost, however young a job is; and so does one that waits, whose start is a restart."""
    state = state_of("a1=1 a2=1.05", cluster="a:2", running="a1", elapsed_seconds=[1.0])
    for settings, expected in (({}, "a2"), ({"restart_keeps": 0.9}, "a1"), ({"restart_keeps": 0.99}, "a2")):
        assert chosen("pollux", state, **settings) == expected
    # alone on both GPUs the job that waits gains 1 % over both, of which its start takes more
    state = state_of("a1=1", "a1=1 a2=2.02", cluster="a:2", running="a1 -", elapsed_seconds=[1000.0, 1000.0])
    assert chosen("pollux", state, power=1.0) == "a1 a1"
    assert chosen("pollux", state, power=1.0, restart_keeps=1.0) == "- a2"


def test_fixed_gangs_are_not_changed() -> None:
    """Both policies would give the first job more than the one GPU that it asks for."""
    state = state_of("a1=1 a2=2", "a1=1 a2=2", cluster="a:4", gangs=[1, 2])
    for name in ("sia", "pollux"):
        assert (chosen(name, state), chosen(f"{name}_fixed", state)) == ("a2 a2", "a1 a2")
    # speedups are over a fair share of two GPUs all the same
    assert objective("pollux_fixed", state) == pytest.approx(2 / (1 / 0.501 + 1 / 1.001))


def test_sia_without_types_weighs_those_who_wait() -> None:
    """One GPU for two jobs: who had none weighs one more each time; its advantage of two is made up for."""
    policy = get_policy("sia_unaware", restart_seconds=0.0)
    memory, served = policy.new_memory(), [""]
    for _ in range(6):
        state = state_of("a1=1", "a1=1", running=served[-1], priority_weights=[2.5, 1.0])
        served.append(chosen(policy, state, memory))
    assert served[1:] == ["a1 -", "a1 -", "- a1", "a1 -", "- a1", "a1 -"]
    assert memory.left_out.tolist() == [2, 4]


def test_sia_without_types_knows_nodes_of_four() -> None:
    job = " ".join(f"a{count}={count}" for count in (1, 2, 3, 4, 6, 8, 12))
    for gpus, expected in ((3, "a2"), (7, "a4"), (12, "a12")):
        assert chosen("sia_unaware", state_of(job, cluster=f"a:{gpus}")) == expected
