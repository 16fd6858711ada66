"""All that is used of Ray's own coordinator of elastic jobs and of the inside of Ray Train: no release promises it.

Ray Train asks an actor by name, which it makes where there is none, how many workers an elastic trainer may have. Ours
is there first: Ray's own, but that those trainers hear what a policy decided.
"""

from __future__ import annotations

import importlib
import inspect
import threading
import time
from collections.abc import Mapping
from typing import Any

from allocator.mechanism.settings import MechanismSettings
from allocator.ray.trainers import Trainers
from allocator.registry import get_policy
from allocator.runtime.adapters.ray.bridge import groups_of, held
from allocator.runtime.adapters.ray.supervisor import SERVICES
from throughputs import InputError

NAME = "AutoscalingCoordinator"
"""Of the actor, and of its namespace."""

_MODULE = "ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator"
_ACTOR = "_AutoscalingCoordinatorActor"
_ANSWERS = ("get_reserved_resources", "get_allocated_resources")
"""By id of the node what is reserved there, since some release; before, a list of bundles."""

_TICK_SECONDS = 1.0
_TYPE = "ray.io/accelerator-type"


def _own_actor() -> tuple[Any, str]:
    """Ray's own actor, and which of its methods answers.

    Raises
    ------
    InputError
        This release has none that we know.
    """
    import ray

    try:
        own = getattr(importlib.import_module(_MODULE), _ACTOR)
        known = {"requester_id", "resources", "expire_after_s"} <= inspect.signature(
            own.request_resources
        ).parameters.keys()
        answer = next(name for name in _ANSWERS if hasattr(own, name)) if known else ""
    except (ImportError, AttributeError, StopIteration):
        answer = ""
    if not answer:
        expected = (
            "a release that is known, 2.55 to 2.60: pip install 'ray[train]>=2.55,<=2.60', or tell us of this one"
        )
        raise InputError("Coordinator", field="ray", found=ray.__version__, expected=expected)
    return own, answer


def _ours() -> type[Any]:
    """The class of our actor."""
    ray: Any = importlib.import_module("ray")
    own, answer = _own_actor()

    class AllocatorCoordinator(own):  # type: ignore[misc, valid-type]
        """Ray's own, but for elastic trainers."""

        def __init__(self, policy: str, settings: Mapping[str, Any], round_seconds: float) -> None:
            self._guard = threading.RLock()
            self._trainers = Trainers(get_policy(policy, **settings), round_seconds, time.time)
            self._trainers.see(ray.nodes(), held(groups_of(SERVICES).values()))
            super().__init__()
            threading.Thread(target=self._watch, daemon=True).start()

        def _watch(self) -> None:
            while True:
                time.sleep(_TICK_SECONDS)
                told = ray.nodes(), held(groups_of(SERVICES).values())
                with self._guard:
                    self._trainers.see(*told)
                    self._trainers.decide()

        def request_resources(self, requester_id: str, resources: list[Any], **more: Any) -> None:
            super().request_resources(requester_id=requester_id, resources=resources, **more)
            if requester_id.startswith("train-"):
                with self._guard:
                    until = time.time() + float(more.get("expire_after_s", 180.0))
                    self._trainers.ask(requester_id, resources, more.get("label_selectors") or (), until)

        def cancel_request(self, requester_id: str) -> None:
            super().cancel_request(requester_id)
            with self._guard:
                self._trainers.leave(requester_id)

        def _answer(self, requester_id: str, *others: Any, **more: Any) -> Any:
            with self._guard:
                share = self._trainers.share(requester_id)
            if share is None:
                return getattr(super(), answer)(requester_id, *others, **more)
            return share if answer == _ANSWERS[0] else list(share.values())

        def ask(self, what: str, *told: Any, **more: Any) -> Any:
            """A question to the trainers, or news of one."""
            with self._guard:
                return getattr(self._trainers, what)(*told, **more)

        def policy(self) -> str:
            return self._trainers.policy.name

    setattr(AllocatorCoordinator, answer, AllocatorCoordinator._answer)
    return AllocatorCoordinator


class Coordinator:
    """Decides by a policy how many workers the elastic trainers of a Ray cluster have, until it is stopped.

    It stays when the program ends that has made it. Make it before the first trainer, or pipeline of Ray Data, asks for
    resources. Where there is one already, that is taken.

    Parameters
    ----------
    policy : its name; one that chooses numbers of GPUs, as sia, pollux, optimus and elasticflow, shrinks and grows
        trainers; under others each has as many workers as it may have.
    round_seconds : between two decisions in which nothing has happened, and the rounds of policies that have them.
    settings : of the policy.

    Raises
    ------
    InputError
        Another coordinator is there, or this release of Ray is not known.
    """

    def __init__(self, policy: str = "sia", *, round_seconds: float = 60.0, **settings: Any) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        get_policy(policy, **settings)
        MechanismSettings(round_seconds=round_seconds)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        remote: Any = ray.remote  # its overloads do not know this strategy
        made = remote(num_cpus=0, max_restarts=-1, scheduling_strategy=here)(_ours()).options(
            name=NAME, namespace=NAME, lifetime="detached", get_if_exists=True
        )
        self._actor = made.remote(policy, settings, round_seconds)
        try:
            there = ray.get(self._actor.policy.remote())
        except AttributeError:
            ends = f"ray.kill(ray.get_actor({NAME!r}, {NAME!r})) ends it"
            expected = f"none: a trainer, or a pipeline of Ray Data, came before it; {ends}"
            raise InputError("Coordinator", found="Ray's own coordinator", expected=expected) from None
        if there != policy:
            expected = f"none, or one under {policy!r}: Coordinator({there!r}) is the one there, and its stop() ends it"
            raise InputError("Coordinator", found=f"a coordinator under {there!r}", expected=expected)

    def status(self) -> list[dict[str, Any]]:
        """The elastic trainers: id, workers, fewest and most, work done, and speed by type and workers."""
        import ray

        told: list[dict[str, Any]] = ray.get(self._actor.ask.remote("status"))
        return told

    def stop(self) -> None:
        """End it; trainers that run keep their workers, later ones make Ray's own."""
        import ray

        ray.kill(self._actor)


def callbacks(
    *, total: float | None = None, within: float | None = None, work: str | None = None, per_worker: bool = False
) -> list[Any]:
    """What tells the coordinator of a trainer, for ``RunConfig(callbacks=...)``: its limits, its reports, its speed.

    Parameters
    ----------
    total : work in all; None: not known. within : seconds in which it is to be done, for policies with deadlines.
    work : key of the metric that says how much work was done so far; None: each report is one.
    per_worker : each report is one of each worker, as of a batch whose size each worker keeps.
    """
    import ray
    from ray.train import UserCallback
    from ray.train.v2._internal.execution.callback import ControllerCallback

    def actor() -> Any:
        return ray.get_actor(NAME, namespace=NAME)

    class Begins(ControllerCallback):
        """Before it asks for workers, and as each group of them is started."""

        def after_controller_start(self, train_run_context: Any) -> None:
            scaling = train_run_context.scaling_config
            number = scaling.num_workers
            fewest, most = number if isinstance(number, tuple) else (number, number)
            self._name = f"train-{train_run_context.run_id}"
            label = train_run_context.run_config.name or ""
            told = {"fewest": fewest, "most": most, "total": total, "within": within, "label": label}
            ray.get(actor().ask.remote("expect", self._name, **told))

        def on_controller_start_worker_group(self, *, scaling_config: Any, **_: Any) -> dict[str, str] | None:
            kind = "" if scaling_config.label_selector else ray.get(actor().ask.remote("kind", self._name))
            return {_TYPE: kind} if kind else None

    class Reports(UserCallback):
        """As all workers have reported."""

        done = 0.0

        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            del checkpoint
            self.done = float(metrics[0][work]) if work else self.done + (len(metrics) if per_worker else 1)
            actor().ask.remote("report", f"train-{run_context.run_id}", len(metrics), self.done)

    return [Begins(), Reports()]
