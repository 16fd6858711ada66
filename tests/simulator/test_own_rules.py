"""Rules from a file of one's own."""

from __future__ import annotations

import sys

import pytest

from allocator.cluster import Cluster
from allocator.plugins import rule_of_text
from allocator.presets import Preset
from allocator.registry import get_policy
from allocator.simulator import simulate
from throughputs import InputError, Trace

FILE = """
from dataclasses import dataclass
from allocator.simulator import Rule, Running


@dataclass(frozen=True)
class Slower(Rule):
    factor: float
    after_seconds: float = 0.0

    def start(self, world):
        return [Run(self)]


class Run(Running):
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
