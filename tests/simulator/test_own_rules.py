"""Rules from a file of one's own."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from allocator import Allocation, SharePolicy, explain
from allocator.cluster import Cluster
from allocator.experiments.run import Run as RunOfAPolicy
from allocator.plugins import rule_of_text
from allocator.presets import Preset, preset
from allocator.registry import get_policy
from allocator.results.output import save_result
from allocator.simulator import Rule, RunningRule, simulate
from throughputs import InputError, Trace

FILE = """
from dataclasses import dataclass
from allocator.simulator import Rule, RunningRule


@dataclass(frozen=True)
class Slower(Rule):
    factor: float
    after_seconds: float = 0.0

    def start(self, world):
        return [Run(self)]


class Run(RunningRule):
    says_ends = False
    keeps = ("count",)

    def __init__(self, rule):
        self.rule, self.count = rule, 0

    def begin(self, stretch):
        self.count += 1
        stretch.rates = stretch.rates * self.rule.factor

    def in_round(self, r):
        r.finish = r.finish + self.rule.after_seconds
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("rules") / "rules_of_a_test.py"
    path.write_text(FILE)
    yield path
    sys.modules.pop(path.stem, None)
    sys.path.remove(str(path.parent))


@pytest.mark.parametrize(
    ("policy", "fields", "end"), [("srtf", "factor=0.5", 200.0), ("fifo", "factor=1, after_seconds=5", 105.0)]
)
def test_jobs_go_as_the_rule_says_between_events_and_in_rounds(file, policy, fields, end):
    chosen = Preset().with_rules(rule_of_text(f"{file}:Slower({fields})"))
    trace = Trace(["a"], [1], [100.0], [0.0])
    result = simulate(trace, Cluster({"v100": 1}), get_policy(policy), [[1.0]], preset=chosen)
    assert result.jobs["completion_time"].tolist() == [end]
    assert len(result.settings["world"]) == 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Slower(speed=1)", "speed"),
        ("Slower(factor='a')", "factor"),
        ("Slower", "factor"),
        ("Slower(0.5)", "NAME=VALUE"),
        ("Slower(factor=", "NAME=VALUE"),
        ("Sloer(factor=1)", "did you mean 'Slower'"),
    ],
)
def test_what_is_wrong_with_a_rule_is_named(file, text, named):
    with pytest.raises(InputError, match="--world") as refused:
        rule_of_text(f"{file}:{text}")
    assert named in str(refused.value)


@dataclass(frozen=True)
class Away(Rule):
    """GPUs are away from one time to another, and who has them is stopped."""

    gpus: tuple[int, ...] = ()
    since: float = 0.0
    until: float = 0.0

    def start(self, world):
        return [_Away(self.gpus, self.since, self.until, world)]


class _Away(RunningRule):
    keeps = ("next",)

    def __init__(self, gpus, since, until, world):
        self.gpus, self.since, self.until, self.world, self.next = gpus, since, until, world, since

    def next_event(self):
        return self.next

    def happen(self):
        while self.next <= self.world.clock:
            gone = self.gpus if self.next == self.since else ()
            core = self.world.core
            hit = [job for job in core.running.jobs.tolist() if {*core.gpus_of(job)} & {*gone}]
            self.next = self.until if self.next == self.since else np.inf
            self.world.withhold(self, gone, hit)


@dataclass(frozen=True)
class AwayToo(Rule):
    """The same, beside it."""

    gpus_too: tuple[int, ...] = ()
    since_too: float = 0.0
    until_too: float = 0.0

    def start(self, world):
        return [_Away(self.gpus_too, self.since_too, self.until_too, world)]


@pytest.mark.parametrize("policy", ["srtf", "isolated"])
def test_two_rules_take_gpus_away_beside_each_other(policy):
    """A GPU is there again only when nobody withholds it."""
    world = preset("default").replace(restart_penalty_seconds=0.0, round_seconds=10.0)
    world = world.with_rules(Away((0,), 100.0, 300.0), AwayToo((0, 1), 200.0, 400.0))
    trace = Trace(["a"], [1], [1000.0], [0.0])
    result = simulate(trace, Cluster({"v100": 2}), get_policy(policy), [[1.0]], preset=world)
    # nothing is there from 200 to 400
    assert result.jobs["completion_time"].tolist() == [1200.0]


@dataclass(frozen=True)
class Cut(Rule):
    """Jobs lose all they have done at one time; a second rule counts it."""

    at: float = 0.0

    def start(self, world):
        return [_Cut(self, world), _Counts()]


class _Counts(RunningRule):
    lost: ClassVar[list[float]] = []

    def set_back(self, at, steps):  # noqa: ARG002
        self.lost.extend(steps.tolist())


class _Cut(RunningRule):
    keeps = ("next",)

    def __init__(self, rule, world):
        self.world, self.next = world, rule.at

    def next_event(self):
        return self.next

    def happen(self):
        if self.next <= self.world.clock:
            self.next = np.inf
            at = self.world.jobs.rows(self.world.core.active)
            self.world.set_back(at, self.world.jobs.steps_done[at].copy())


def test_jobs_are_set_back_by_one_door_and_other_rules_hear_of_it():
    _Counts.lost.clear()
    chosen = preset("default").replace(restart_penalty_seconds=0.0).with_rules(Cut(40.0))
    jobs = simulate(Trace(["a"], [1], [100.0], [0.0]), "v100:1", "srtf", [[1.0]], preset=chosen).jobs
    assert jobs["completion_time"].tolist() == [140.0]
    assert _Counts.lost == [40.0]


@dataclass(frozen=True)
class Wrong(Rule):
    """Whatever is made by that name."""

    kind: str = ""

    def start(self, world):  # noqa: ARG002
        return WRONG[self.kind]()


class _Misspelt(RunningRule):
    def next_events(self):
        return 5.0


class _Stuck(RunningRule):
    def next_event(self):
        return 0.0

    def happen(self):
        pass


class _Forgets(RunningRule):
    keeps = ("nothing_of_that_name",)


class _InRoundsOnly(RunningRule):
    def in_round(self, r):
        pass


class _WithoutRates(RunningRule):
    def rates(self, decision, at, rates):  # noqa: ARG002
        return rates * np.nan


class _WithoutTimes(RunningRule):
    def seen_at(self, time):  # noqa: ARG002
        return None


WRONG: dict[str, Any] = {
    "no list": _Misspelt,
    "no rule": lambda: [object()],
    "misspelt": lambda: [_Misspelt()],
    "stuck": lambda: [_Stuck()],
    "forgets": lambda: [_Forgets()],
    "in rounds": lambda: [_InRoundsOnly()],
    "rates": lambda: [_WithoutRates()],
    "times": lambda: [_WithoutTimes()],
}


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("no list", ("Wrong", "start", "_Misspelt")),
        ("no rule", ("Wrong", "start", "object")),
        ("misspelt", ("Wrong", "next_events", "next_event")),
        ("stuck", ("_Stuck", "next_event", "0")),
        ("forgets", ("_Forgets", "keeps", "nothing_of_that_name")),
        ("in rounds", ("Wrong", "in_round", "between events", "begin", "rates")),
        ("rates", ("_WithoutRates", "rates", "nan", "(1,)")),
        ("times", ("_WithoutTimes", "seen_at", "nothing")),
    ],
)
def test_a_rule_that_cannot_be_followed_is_named(kind, named, tmp_path):
    trace, chosen = Trace(["a"] * 3, [1] * 3, [1e3] * 3, [0.0] * 3), preset("default").with_rules(Wrong(kind))
    with pytest.raises(InputError) as refused:
        simulate(trace, "v100:1", "srtf", [[1.0]] * 3, preset=chosen, checkpoint=tmp_path / "c", checkpoint_every=1)
    assert all(word in str(refused.value) for word in named)


@dataclass(frozen=True)
class Later(SharePolicy):
    """Nobody runs before an hour is over; asked every half hour."""

    name = "later"
    period_seconds = 1800.0

    def allocate(self, state):
        return Allocation(
            "later", state.throughputs, np.full((state.n_jobs, 1), float(state.clock >= 3600.0)), "made up"
        )


@pytest.mark.parametrize(("kind", "policy", "ideal"), [("times", "fifo", False), ("in rounds", "isolated", True)])
def test_a_rule_that_would_do_nothing_is_refused(kind, policy, ideal):
    chosen = preset("default").replace(ideal=ideal).with_rules(Wrong(kind))
    with pytest.raises(InputError, match="where it is not called"):
        simulate(Trace(["a"], [1], [1e3], [0.0]), "v100:1", policy, [[1.0]], preset=chosen)


def test_a_policy_is_asked_at_the_latest_after_its_period_though_nobody_runs():
    trace = Trace(["a", "a"], [1, 1], [360.0, 360.0], [0.0, 1e6])
    jobs = simulate(trace, "v100:1", Later(), [[1.0], [1.0]], preset=preset("default").replace(idle_fill="off")).jobs
    assert jobs["start_time"].tolist() == [3600.0, 1e6]


def test_a_run_is_another_one_when_its_rule_is_written_otherwise(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keys = []
    for factor in (1, 2):
        path = tmp_path / "rule_that_changes.py"
        path.write_text(FILE + f"\n# {factor}\n")
        rule = rule_of_text(f"{path}:Slower(factor=1.0)")
        keys.append(RunOfAPolicy("static", "fifo", "v100:8", load=3, world=(rule,)).key)
        sys.modules.pop(path.stem)
    assert keys[0] != keys[1]
    sys.path.remove(str(tmp_path))


@dataclass(frozen=True)
class Named(Rule):
    """A rule whose field is called as a setting of the mechanism."""

    round_seconds: float = 1.0


def test_a_field_that_is_called_as_another_setting_is_refused():
    with pytest.raises(InputError) as refused:
        preset("default").with_rules(Named())
    assert all(word in str(refused.value) for word in ("Named", "round_seconds", "MechanismSettings"))


@dataclass(frozen=True)
class HalfSpeed(Rule):
    """Everybody goes at half the rate; notes the seconds of training."""

    told: ClassVar[list[float]] = []

    def start(self, world):  # noqa: ARG002
        self.told.clear()
        return [_HalfSpeed()]


class _HalfSpeed(RunningRule):
    def rates(self, decision, at, rates):  # noqa: ARG002
        return rates / 2

    def did(self, decision, at, steps, seconds):  # noqa: ARG002
        HalfSpeed.told.append(float(np.sum(seconds)))


@pytest.mark.parametrize(
    ("policy", "settings", "end"),
    [
        ("max_min_fairness_perf", {"ideal": True}, 200.0),
        ("fifo", {"round_seconds": 120.0, "restart_delays": True, "restart_penalty_seconds": 90.0}, 290.0),
        ("srtf", {"restart_penalty_seconds": 90.0}, 290.0),
    ],
)
def test_rates_and_seconds_of_training_are_the_same_in_every_world(policy, settings, end):
    world = Preset().replace(**settings).with_rules(HalfSpeed())
    result = simulate(Trace(["a"], [1], [100.0], [0.0]), "v100:1", get_policy(policy), [[1.0]], preset=world)
    assert result.jobs["completion_time"].tolist() == pytest.approx([end])
    if not settings.get("ideal"):
        assert sum(HalfSpeed.told) == 200.0
        assert result.jobs["restart_gpu_seconds"].tolist() == [90.0]


def test_a_run_tells_which_gpus_were_away(tmp_path):
    """A job that arrives at 50 would have run on the GPU that is away from 20 to 300."""
    world = Preset().replace(restart_penalty_seconds=0.0).with_rules(Away((1,), 20.0, 300.0))
    trace = Trace(["a", "a"], [1, 1], [1000.0, 100.0], [0.0, 50.0])
    result = simulate(trace, "v100:2", get_policy("srtf"), [[1.0], [1.0]], preset=world)
    told = [(0.0, [2]), (20.0, [1]), (300.0, [2])]
    assert result.record.capacity == told
    save_result(result, tmp_path)
    for run in (result, tmp_path):
        (wait,) = explain(run, 0).waits
        assert [(why.reason, why.start, why.end) for why in wait.stretches] == [("capacity_lost", 50.0, 150.0)]
