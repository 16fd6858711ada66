"""The objectives: what a policy wants from the polytope (see `formulations.core.objective`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from formulations.core.certificate import Certificate, certify_log, certify_sum, relative_gap
from formulations.core.objective import Method, Objective, Threshold, check_figures
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer
from throughputs.arrays import Floats
from throughputs.numerics import dot, log

if TYPE_CHECKING:
    from formulations.solving.choice import Among, Choice

__all__ = ["Method", "Objective", "Threshold", "relative_gap"]


T = TypeVar("T")

_RESOLUTION = float(np.finfo(np.float64).eps)
"""Part of the time since a job's arrival that a level of finish-time fairness resolves: rounding."""


@dataclass(frozen=True, eq=False)
class MaxMin(Threshold):
    """Maximise the least throughput relative to a weight::

        max_x  min_i  u_i / d_i

    Parameters
    ----------
    weights : (N,) d_i, positive: the throughput of job i that counts as 1.

    Source: Narayanan et al., OSDI 2020, section 4.1 (least attained service).
    """

    weights: Floats
    maximise = True
    higher_level_is_better = True
    linear = True
    unit = "normalised throughput"

    def accept(self, method: Method[T]) -> T:
        """The best level, by one linear program."""
        return method.linear_level(self)

    def __post_init__(self) -> None:
        check_figures(self, weights="numbers above 0")

    def demand(self, level: float) -> Floats:
        """``d_i t``."""
        return self.weights * level

    def slope(self, level: float) -> Floats:  # noqa: ARG002
        """``d``."""
        return self.weights

    def levels(self, u: Floats) -> Floats:
        """``u_i / d_i``."""
        return u / self.weights

    def bound(self, multipliers: Floats, supply: float) -> float:
        """``supply / (multipliers . d)``."""
        total = dot(multipliers, self.weights)
        return supply / total if total > 0 else np.inf


@dataclass(frozen=True, eq=False)
class Makespan(MaxMin):
    """Minimise the time at which the last job ends if shares stayed as they are::

        min_x  max_i  n_i / u_i        solved exactly as   1 / max_x min_i u_i / n_i

    Parameters
    ----------
    weights : (N,) n_i, training steps left.

    Source: Narayanan et al., OSDI 2020, section 4.2 (where it is a bisection stopped at 5 %).
    """

    maximise = False
    unit = "s"

    def report(self, level: float) -> float:
        """Seconds."""
        return 1.0 / level if level > 0 else np.inf

    def level_of(self, value: float) -> float:
        """Part of the steps left per second."""
        return self.report(value)

    def report_price(self, price: Floats, level: float) -> Floats:
        """Seconds saved per GPU."""
        return price / level**2 if level > 0 else np.zeros_like(price)


@dataclass(frozen=True, eq=False)
class FinishTimeFairness(Threshold):
    """Minimise the worst finish-time fairness::

        min_x  max_i  rho_i,      rho_i = (e_i + n_i / u_i) / D_i

    At level rho job i needs ``u_i >= n_i / (rho D_i - e_i)``, convex and decreasing.

    Parameters
    ----------
    elapsed : (N,) e_i, seconds since arrival.
    remaining : (N,) n_i, steps left, positive.
    isolated : (N,) D_i, seconds from arrival to completion on an isolated share, positive.

    Source: Mahajan et al., NSDI 2020, section 3 (rho); Narayanan et al., OSDI 2020, section 4.3.
    """

    elapsed: Floats
    remaining: Floats
    isolated: Floats
    maximise = False
    higher_level_is_better = False
    unit = "rho"

    def __post_init__(self) -> None:
        check_figures(self, remaining="numbers above 0", isolated="numbers above 0", elapsed="numbers of at least 0")

    def demand(self, level: float) -> Floats:
        """``n_i / (rho D_i - e_i)``."""
        return self.remaining / self._left(level)

    def slope(self, level: float) -> Floats:
        """``n_i D_i / (rho D_i - e_i)^2``."""
        return self.remaining * self.isolated / self._left(level) ** 2

    def _left(self, level: float) -> Floats:
        """(N,) seconds from now until each job has to be done, no less than what a level can tell apart from none."""
        return np.maximum(level * self.isolated - self.elapsed, _RESOLUTION * self.elapsed)

    def levels(self, u: Floats) -> Floats:
        """``rho_i``."""
        with np.errstate(divide="ignore"):
            return np.asarray((self.elapsed + self.remaining / u) / self.isolated)

    def bound(self, multipliers: Floats, supply: float) -> float:
        """Root of ``multipliers . demand(rho) = supply``, from below (the left side is convex and decreasing)."""
        if not supply > 0 or not multipliers.any():
            # the level that would need infinite throughput
            return float((self.elapsed / self.isolated).max())
        share = multipliers * self.remaining
        # one job alone must not need more than the whole supply
        level = float(((self.elapsed + share / supply) / self.isolated)[multipliers > 0].max())
        for _ in range(60):
            left = self._left(level)
            used = multipliers > 0
            terms = share[used] / left[used]
            excess = float(terms.sum()) - supply
            step = excess / float((terms * self.isolated[used] / left[used]).sum())
            if not step > 1e-16 * level:
                break
            level += step
        return level


@dataclass(frozen=True, eq=False)
class MaxSum(Objective):
    """Maximise a weighted sum of throughputs::

        max_x  sum_i g_i u_i

    Parameters
    ----------
    gains : (N,) g_i, at least 0.
    counts : (N,) jobs that each row stands for; 1 when omitted. The sum is then over all of them.

    Source: Narayanan et al., OSDI 2020, section 4.2.
    """

    gains: Floats
    counts: Floats | None = None
    maximise = True
    has_demands = False
    unit = "steps/s"

    def accept(self, method: Method[T]) -> T:
        """A weighted sum."""
        return method.weighted_sum(self)

    def certify(self, polytope: Polytope, answer: Answer) -> Certificate:
        """By what the cluster can earn at the prices."""
        return certify_sum(polytope, self, answer)

    def choose(self, among: Among) -> Choice:
        """Every throughput counts in the objective: its optima are efficient, only evenness is left to choose."""
        return among.of_sum(self.gains)

    def worth(self, multipliers: Floats) -> Floats:  # noqa: ARG002
        """The gains."""
        return self.gains

    def __post_init__(self) -> None:
        check_figures(self, gains="numbers of at least 0", counts="numbers above 0")

    @property
    def totals(self) -> Floats:
        """(N,) gain of each row's jobs together."""
        return self.gains if self.counts is None else self.gains * self.counts

    def value(self, u: Floats) -> float:
        """``g . u``."""
        return dot(self.totals, u)


@dataclass(frozen=True, eq=False)
class NashWelfare(Objective):
    """Maximise Nash welfare, the product of throughputs weighted by budgets (proportional fairness)::

        max_x  sum_i B_i log(sum_j T_ij x_ij)

    At the optimum no other allocation raises the throughputs by more per cent, summed with weights B, than it lowers
    them. It is the equilibrium of a market in which job i spends B_i on time at prices p, and the unit in which a job's
    throughput is counted changes nothing but the value. Gaps of this objective are relative to the total budget,
    ``(bound - value) / sum_i B_i``: a gap g says that the geometric mean is within a factor exp(-g) of the best.

    Parameters
    ----------
    budgets : (N,) B_i, positive.
    counts : (N,) jobs that each row stands for; 1 when omitted. The sum is then over all of them.

    Source: Eisenberg and Gale, Annals of Mathematical Statistics 30(1), 1959 (the program); Kelly, Maulloo and Tan,
    Journal of the Operational Research Society 49, 1998 (proportional fairness); Narayanan et al., OSDI 2020, whose
    strategy-proof policy starts from the maximiser of the geometric mean.
    """

    budgets: Floats
    counts: Floats | None = None
    maximise = True
    unit = "budget x log(steps/s)"

    def accept(self, method: Method[T]) -> T:
        """A sum of logarithms."""
        return method.log_sum(self)

    def certify(self, polytope: Polytope, answer: Answer) -> Certificate:
        """By the dual of the logarithms."""
        return certify_log(polytope, self, answer)

    def choose(self, among: Among) -> Choice:
        """Throughputs are unique; more for one job is always better."""
        return among.of_throughputs(np.ones(len(self.budgets), dtype=bool), raising=True)

    def __post_init__(self) -> None:
        check_figures(self, budgets="numbers above 0", counts="numbers above 0")

    @property
    def totals(self) -> Floats:
        """(N,) budget of each row's jobs together."""
        return self.budgets if self.counts is None else self.budgets * self.counts

    def value(self, u: Floats) -> float:
        """``B . log u``, -inf where a job gets nothing."""
        with np.errstate(divide="ignore"):
            return dot(self.totals, log(u))

    def gap(self, value: float, bound: float) -> float:
        """``(bound - value) / sum B``."""
        difference = bound - value
        return max(difference, 0.0) / float(self.totals.sum()) if np.isfinite(difference) else np.inf
