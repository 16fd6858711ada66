"""Elastic trainers under policies: what each may have, as nodes, requests and reports are told."""

from __future__ import annotations

import inspect
from importlib.metadata import version
from itertools import count

import pytest

from allocator.ray import internal
from allocator.ray.trainers import Trainers
from allocator.registry import get_policy
from throughputs import InputError

TYPE = "ray.io/accelerator-type"


class Told:
    def __init__(self, policy="sia", *nodes):
        self.now = 0.0
        self.trainers = Trainers(get_policy(policy), 60.0, lambda: self.now)
        numbers = count()
        self.trainers.see([node(next(numbers), **one) for one in nodes or ({}, {})])

    def ask(self, name, most=4, worker=None, selectors=None, **expected):
        self.trainers.expect(name, most=most, **{"fewest": 1, "total": 1000.0} | expected)
        self.trainers.ask(name, [worker or {"CPU": 1, "GPU": 1}] * most, selectors, self.now + 180.0)

    def workers(self):
        return {row["id"]: row["workers"] for row in self.trainers.status()}

    def train(self, seconds, speed):
        """All of them report once a second."""
        for _ in range(seconds):
            self.now += 1.0
            for row in self.trainers.status():
                self.trainers.ask(row["id"], [], None, self.now + 180.0)
                self.trainers.report(row["id"], row["workers"], row["work"] + speed[row["id"]](row["workers"]))
            self.trainers.decide()


def node(number, gpus=2, kind="", **resources):
    labels = {TYPE: kind} if kind else {}
    return {"NodeID": f"n{number}", "Alive": True, "Resources": {"GPU": gpus, "CPU": 8, **resources}, "Labels": labels}


def test_a_trainer_shrinks_for_another_and_grows_when_that_is_through():
    told = Told()
    told.ask("train-a")
    assert told.trainers.share("train-a") == {name: {"CPU": 2, "GPU": 2} for name in ("n0", "n1")}
    told.ask("train-b", most=2)
    assert told.workers() == {"train-a": 2, "train-b": 2}
    told.trainers.leave("train-b")
    assert told.workers() == {"train-a": 4}
    told.now = 200.0
    told.trainers.decide()
    assert told.trainers.share("train-a") is None, "its request was not renewed"


def test_gpus_that_jobs_of_a_service_hold_are_not_divided():
    told = Told()
    nodes = [node(0), node(1)]
    told.ask("train-a")
    for held, workers in (({"n1": 1.0}, 3), ({"n0": 2.0, "n1": 2.0}, 3), ({}, 4)):
        told.trainers.see(nodes, held)
        told.trainers.decide()
        assert told.workers() == {"train-a": workers}
    cpus = Told("sia", {"gpus": 0}, {"gpus": 0})
    cpus.trainers.see([node(0, gpus=0)], {"n0": 1.0})
    cpus.ask("train-b", most=9, worker={"CPU": 1})
    assert cpus.workers() == {"train-b": 8}


def test_workers_go_where_they_are_found_to_be_worth_most():
    told = Told("optimus")
    speed = {"train-flat": lambda n: 2.0 + 0.0 * n, "train-scales": lambda n: n, "train-first": lambda n: n}
    told.ask("train-first", most=3, fewest=3)
    told.ask("train-flat")
    told.train(10, speed)
    told.trainers.leave("train-first")
    assert told.workers() == {"train-flat": 4}, "as fast as its workers are many, as far as is known"
    told.train(10, speed)
    told.ask("train-scales")
    told.train(70, speed)
    assert told.workers() == {"train-flat": 1, "train-scales": 3}
    assert told.trainers.status()[0]["speeds"] == pytest.approx({"4 any": 2.0, "1 any": 2.0}, rel=0.06)


def test_types_are_those_that_a_request_names_and_limits_hold():
    told = Told("sia", {"kind": "A100"}, {"kind": "V100", "gpus": 4})
    told.ask("train-a", most=2, selectors=[{TYPE: "A100"}])
    told.ask("train-b", fewest=2, most=4, worker={"GPU": 1, "accelerator_type:V100": 0.001})
    assert told.workers() == {"train-a": 2, "train-b": 4}
    assert (told.trainers.kind("train-a"), told.trainers.kind("train-b")) == ("A100", "V100")


@pytest.mark.parametrize(("policy", "workers"), [("fifo", [3, 0]), ("elasticflow", [3, 1]), ("pollux", [2, 2])])
def test_policies_of_either_kind(policy, workers):
    told = Told(policy)
    for name in ("train-a", "train-b"):
        told.ask(name, most=3, within=3000.0)
    assert list(told.workers().values()) == workers


def test_parts_of_gpus_are_left_to_ray_and_cpus_are_divided_where_nobody_has_more():
    told = Told("sia", {"gpus": 0}, {"gpus": 0})
    told.ask("train-a", worker={"CPU": 2})
    told.ask("train-b", worker={"CPU": 0.5})
    assert told.trainers.share("train-b") is None
    assert sum(bundle["CPU"] for bundle in told.trainers.share("train-a").values()) == 8


@pytest.mark.exhaustive
def test_the_release_of_ray_is_one_of_which_the_inside_is_known(monkeypatch):
    asked = inspect.signature(internal._ours().request_resources).parameters
    assert {"requester_id", "resources"} <= asked.keys()
    own, answer = internal._own_actor()
    assert hasattr(own, "cancel_request")
    assert answer in internal._ANSWERS
    monkeypatch.setattr(internal, "_ACTOR", "_Another")
    with pytest.raises(InputError, match=f"'ray'.*{version('ray')}.*2.55"):
        internal._ours()
