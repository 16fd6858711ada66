"""What an objective is, and the family of those that are a level.

Max-min fairness, makespan and finish-time fairness are one family (`Threshold`). For a target level t every job needs a
throughput ``u_i >= demand_i(t)``, demand monotone in t; the best level that is feasible is the optimum. Given
multipliers ``lambda >= 0`` and prices ``p >= 0``, no level is feasible at which the weighted demand exceeds what the
cluster can earn, ``sum_i lambda_i demand_i(t) > supply(lambda, p)``: this proves a bound for any of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np

from formulations.arguments import Described, described, figures
from formulations.core.certificate import Certificate, certify_level, relative_gap
from formulations.core.polytope import ROUNDED_UP, Polytope
from formulations.core.solution import Answer, NotAcceptedError
from throughputs import InputError
from throughputs.arrays import Floats, Positions
from throughputs.errors import nearest_names

if TYPE_CHECKING:
    from formulations.core.objectives import MaxMin, MaxSum, NashWelfare
    from formulations.solving.choice import Among, Choice


T = TypeVar("T")


class Method(Generic[T]):
    """One way to go about a program, by what is optimised in it: a backend, or a part of one.

    An objective calls the operation that fits it (`Objective.accept`). What a method does not implement it does not
    take: `NotAcceptedError`, and the next one is asked.
    """

    def weighted_sum(self, objective: MaxSum) -> T:
        """A weighted sum of throughputs."""
        raise self.refusal(objective)

    def level(self, objective: Threshold) -> T:
        """The best level at which every job has the throughput that it demands."""
        raise self.refusal(objective)

    def linear_level(self, objective: MaxMin) -> T:
        """The same where demands are proportional to the level: one linear program."""
        return self.level(objective)

    def log_sum(self, objective: NashWelfare) -> T:
        """A weighted sum of logarithms."""
        raise self.refusal(objective)

    def refusal(self, objective: Objective) -> Exception:
        """Why an objective is not taken."""
        return NotAcceptedError(f"{type(objective).__name__} is not piecewise linear")


class Objective(ABC):
    """What is optimised over the polytope, as a function of the jobs' throughputs u (N,).

    An objective brings along what is needed to solve for it: which operation of a method it calls (`accept`), what
    proves an answer (`certify`), what is chosen among optima (`choose`), and what makes jobs interchangeable (`key`). A
    new one that is a threshold or a sum inherits most of that, and a dataclass of figures (N,) of its jobs `take` and
    `key` as well. How it reads in cvxpy: `formulations.statements`.

    Attributes
    ----------
    maximise : which way the reported value improves.
    unit : what it is measured in.
    has_demands : whether jobs have a throughput to reach; otherwise one that gets nothing counts as nothing.
    """

    maximise: bool
    unit: str
    has_demands: bool = True

    @abstractmethod
    def accept(self, method: Method[T]) -> T:
        """Call the operation of `method` that this objective is solved by."""

    @abstractmethod
    def certify(self, polytope: Polytope, answer: Answer) -> Certificate:
        """A backend's answer made feasible, with its value, a bound and the gap (see `certificate`)."""

    @abstractmethod
    def choose(self, among: Among) -> Choice:
        """The balanced choice among optima (see `formulations.solving.choice`)."""

    def attained(self, u: Floats, proof: Certificate) -> tuple[float, float]:
        """Value at throughputs `u` of a choice, and its gap to the bound of `proof`."""
        value = self.value(u)
        return value, proof.gap if value == proof.objective else self.gap(value, proof.bound)

    def proving(self, polytope: Polytope, proof: Certificate) -> Certificate:  # noqa: ARG002
        """The proof with the multipliers and prices that prove its bound, where it has others for the choice."""
        return proof

    def worth(self, multipliers: Floats) -> Floats:
        """(N,) what a unit of throughput is worth at the `multipliers` (N,) of a proof."""
        return multipliers

    def level_of(self, value: float) -> float:
        """The level at which the objective has this value, where it is one."""
        return value

    def report_price(self, price: Floats, level: float) -> Floats:  # noqa: ARG002
        """Improvement of the reported value per GPU, from that of the level that is proven, where there is one."""
        return price

    @abstractmethod
    def value(self, u: Floats) -> float:
        """Value of the objective at throughputs `u`, in `unit`."""

    def gap(self, value: float, bound: float) -> float:
        """Distance of a value from its bound, relative to the larger."""
        return relative_gap(value, bound)

    def take(self, jobs: Positions) -> Self:
        """The same objective over some jobs only."""
        return type(self)(**{name: each[jobs] for name, each in vars(self).items()})

    def key(self) -> Floats:
        """(N, k) figures that two jobs must share to be interchangeable."""
        return np.column_stack([each for name, each in vars(self).items() if name != "counts"])

    def of_classes(self, first: Positions, counts: Floats) -> Self:
        """The same objective over classes of `counts` (K,) interchangeable jobs, `first` (K,) one of each."""
        some = self.take(first)
        return type(self)(**{**vars(some), "counts": counts}) if "counts" in vars(some) else some


def check_figures(objective: Objective, **numbers: str) -> None:
    """Fields of an objective as arrays (N,); InputError where one is not of its `numbers`, as `figures` knows them.

    Counts that are omitted are 1.
    """
    n_jobs = None
    for name, kind in numbers.items():
        given = getattr(objective, name)
        if name == "counts" and given is None:
            given = np.ones(n_jobs or 0)
        checked = figures("objective", name, given, (n_jobs,), kind)
        object.__setattr__(objective, name, checked)
        n_jobs = len(checked)


class Threshold(Objective):
    """The family above: the best level t such that ``u_i >= demand_i(t)`` for all jobs.

    `higher_level_is_better` is the direction of the level, which the reported value need not share; `linear` says that
    demands are proportional to it.
    """

    higher_level_is_better: bool
    linear: bool = False

    def accept(self, method: Method[T]) -> T:
        """The best level."""
        return method.level(self)

    def certify(self, polytope: Polytope, answer: Answer) -> Certificate:
        """By `bound`."""
        return certify_level(polytope, self, answer)

    def choose(self, among: Among) -> Choice:
        """The most total worth at the level."""
        return among.of_level(self)

    def proving(self, polytope: Polytope, proof: Certificate) -> Certificate:  # noqa: ARG002
        """With prices some last bits up: where next to no GPUs are worth much, they prove to the last or not at all."""
        return replace(proof, prices=proof.prices * ROUNDED_UP)

    @abstractmethod
    def demand(self, level: float) -> Floats:
        """(N,) throughput that each job needs at this level."""

    @abstractmethod
    def slope(self, level: float) -> Floats:
        """(N,) how fast each demand grows when the level improves."""

    @abstractmethod
    def levels(self, u: Floats) -> Floats:
        """(N,) best level that throughputs `u` attain for each job alone."""

    def level(self, u: Floats) -> float:
        """Best level that throughputs `u` attain for all jobs."""
        levels = self.levels(u)
        return float(levels.min() if self.higher_level_is_better else levels.max())

    @abstractmethod
    def bound(self, multipliers: Floats, supply: float) -> float:
        """Level at which ``multipliers . demand`` equals `supply`: no better level is feasible."""

    def easiest_level(self, fastest: Floats) -> float:
        """A level that no allocation can beat, from each job's throughput alone on its fastest type."""
        return self.level(fastest)

    def held_alone(self, fastest: Floats) -> Floats:
        """(N,) multipliers that prove the easiest level: all on the job that can do no better alone."""
        levels = self.levels(fastest)
        hardest = int(levels.argmin() if self.higher_level_is_better else levels.argmax())
        slope = float(self.slope(float(levels[hardest]))[hardest])
        held = np.zeros(len(levels))
        held[hardest] = 1.0 / slope if slope > 0 else 1.0
        return held

    def first_guess(self, fastest: Floats) -> float:
        """A level to start a search from; the answer does not depend on it."""
        return self.easiest_level(fastest)

    def worse(self, one: float, other: float) -> float:
        """The worse of two levels."""
        return min(one, other) if self.higher_level_is_better else max(one, other)

    def value(self, u: Floats) -> float:
        """Value at throughputs `u`."""
        return self.report(self.level(u))

    def report(self, level: float) -> float:
        """The objective's value at a level."""
        return level

    def relaxed(self, level: float, fraction: float) -> float:
        """A level worse by `fraction`."""
        return level * (1.0 - fraction) if self.higher_level_is_better else level * (1.0 + fraction)


def objective_over(source: str, objective: Any, n_jobs: int) -> None:
    """InputError unless `objective` is one, and over so many jobs."""
    if not isinstance(objective, Objective):
        known = ("FinishTimeFairness", "Makespan", "MaxMin", "MaxSum", "NashWelfare", "WaterFilling")
        named = objective.__name__ if isinstance(objective, type) else objective
        near = nearest_names(named, known, most=1) if isinstance(named, str) else []
        expected = f"an objective{f', such as {near[0]}(...)' if near else ''}: one of {', '.join(known)}, or your own"
        raise InputError(source, field="objective", found=described(objective), expected=expected)
    n = len(objective.key())
    if n != n_jobs:
        found = Described(f"{type(objective).__name__} over {n} jobs")
        raise InputError(
            source, field="objective", found=found, expected=f"figures of {n_jobs} jobs, as the polytope has"
        )
