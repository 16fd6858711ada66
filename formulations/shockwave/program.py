"""The planning program of Shockwave: who runs in each of the coming rounds, stated once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from formulations.arguments import figures
from throughputs import InputError
from throughputs.arrays import Floats, Ints, Positions
from throughputs.numerics import exp, log

DEFAULT_BASES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Shares of a job's epochs between which the logarithm is replaced by straight pieces."""

FAIRNESS_ROWS = ("published", "own_finish", "off")

_LEAST_PROGRESS = 1e-6
"""Whose logarithm stands for that of no progress at all."""

_ALMOST_DONE_EXPONENT = 100.0
"""Exponent of the priority of late jobs with less than a round left."""

_LARGEST_LOG_PRIORITY = 690.0
"""Priorities end at e^690, about 1e299, so that they stay finite."""

_LEAST_RHO = 1e-300
"""Estimates below this have no logarithm worth taking."""

_WHOLE_TOLERANCE = 1e-9
"""A number of rounds this close to a whole one is taken for it."""


@dataclass(frozen=True, eq=False)
class PlanningProgram:
    """Rounds of a window for jobs that train in epochs: finish-time-fair Nash welfare with a makespan regulariser.

    Job ``j`` holds ``w_j`` GPUs whenever it runs; ``s_jr`` says whether it does in round ``r = 1..R`` of the window,
    ``n_j = sum_r s_jr`` in how many. ``p_j`` are the epochs that it gets through in the window::

        sum_j w_j s_jr <= G  in each round,      d_j p_j <= D n_j,      0 <= p_j <= E_j - e_j
        U_j = log of (e_j + p_j) / E_j, in straight pieces between the bases (log 0 is log 1e-6)
        L_j = max(0, Rem_j - d_j p_j)            seconds of running left after the window

    Stage 1 is asked for first, and stage 2 where no schedule fulfils the fairness rows::

        (1)  max  sum_j U_j / (N R)      - k max_j L_j      with the fairness rows
        (2)  max  sum_j pr_j U_j / (N R) - k max_j L_j      without them

    ``pr_j`` is 1 for a job whose estimate ``rho_j = (now - a_j + Rem_j / s_j) / (T_j - a_j)`` is at most ``rhomax``,
    and else ``rho_j^lambda``, or ``rho_j^100`` with less than a round left; at most `priority_cap`. Stage 3 orders
    what stage 2 chose, urgent and short jobs first, with each job's number of rounds ``n_j`` kept::

        (3)  min  sum_{j: n_j > 0}  pr_j / n_j * sum_r (r - 1) s_jr

    Fairness rows. ``end = now + R D`` is the end of the window, and ``tau_j = a_j + rhomax (T_j - a_j)`` the time by
    which job ``j`` is to finish:

    - "published": ``end + L_j / s_j <= tau_j`` for every job. A job whose ``tau_j`` lies inside the window breaks its
      row even when it finishes in time, so the stage is then infeasible whatever is planned. In whole rounds the row
      reads ``L_j <= s_j (tau_j - end)``, a least number of rounds.
    - "own_finish": the published row where ``tau_j >= end``. Elsewhere the job has to finish inside the window, and
      it is held to its own finish: it needs ``q_j = ceil(Rem_j / D)`` rounds, the last of which it uses for
      ``Rem_j - (q_j - 1) D`` seconds. It finishes by ``tau_j`` exactly if round ``q_j`` of its rounds is one of the
      first ``b_j = 1 + floor((tau_j - now - (Rem_j - (q_j - 1) D)) / D)``, which is the linear row
      ``sum_{r <= b_j} s_jr >= q_j``. In whole rounds: ``n_j >= q_j``, and ``q_j`` of them have to find their place
      among the first ``b_j``. With ``b_j < q_j`` the job is truly late, and stage 2 is next.
    - "off": stage 2 at once.

    Parameters
    ----------
    gpus, rounds, round_seconds : G, R and D.
    widths : (N,) scale factors w_j, whole; a job wider than the cluster is given no rounds.
    epochs, epochs_done : (N,) E_j and e_j, whole, with ``e_j <= E_j``.
    epoch_seconds : (N,) d_j, time that one epoch takes, seconds.
    remaining_seconds : (N,) Rem_j, forecast running time left, seconds.
    target_seconds : (N,) T_j, finish time that is fair, seconds on the clock of `now_seconds`.
    now_seconds : time at which the window begins; D times the number of the round as published.
    share : s_j, the share of its running time that a job may count on after the window, in (0, 1]; one figure or (N,).
    start_seconds : a_j, when a job's time begins to count, before its T_j; one figure or (N,). As published it is 0 for
        every job, which makes late arrivals look fairly served whatever happens: both sides of the fraction grow.
    makespan_weight : k, per second.
    fairness_exponent : lambda.
    largest_rho : rhomax.
    bases : shares of the epochs from 0 to 1, increasing.
    priority_cap : most that a priority may be; None: no limit (up to 1e299).
    fairness_rows : one of `FAIRNESS_ROWS`.

    Raises
    ------
    InputError : for shapes that do not fit, figures out of range, or an unknown rule.

    Source: Zheng et al., NSDI 2023, sections 4 and 5 and appendix; the stages, the priorities and the pieces of the
    logarithm as its public implementation has them.
    """

    gpus: int
    rounds: int
    round_seconds: float
    widths: Ints
    epochs: Floats
    epochs_done: Floats
    epoch_seconds: Floats
    remaining_seconds: Floats
    target_seconds: Floats
    now_seconds: float
    share: float | Floats
    makespan_weight: float = 1e-3
    fairness_exponent: float = 12.0
    largest_rho: float = 1.0
    bases: tuple[float, ...] = DEFAULT_BASES
    priority_cap: float | None = 1e5
    fairness_rows: str = "own_finish"
    start_seconds: float | Floats = 0.0

    def __post_init__(self) -> None:
        for name, least in (("gpus", 0), ("rounds", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise _error(name, value, f"a whole number, at least {least}")
        widths = np.asarray(self.widths)
        if widths.ndim != 1 or (widths.size and not np.issubdtype(widths.dtype, np.integer)):
            raise _error("widths", self.widths, "one whole number per job")
        object.__setattr__(self, "widths", widths.astype(np.int64))
        for name, numbers in _PER_JOB.items():
            value = getattr(self, name)
            if name in _ONE_FOR_ALL and np.ndim(value) == 0:
                value = np.full(len(widths), value)
            object.__setattr__(self, name, figures(_SOURCE, name, value, (len(widths),), numbers))
        for name in ("round_seconds", "largest_rho"):
            figures(_SOURCE, name, getattr(self, name), ())
        for name in ("makespan_weight", "fairness_exponent", "now_seconds"):
            figures(_SOURCE, name, getattr(self, name), (), _NOT_NEGATIVE)
        bases = np.asarray(self.bases, dtype=np.float64)
        increasing = bases.ndim == 1 and len(bases) > 1 and bases[0] == 0 and bases[-1] == 1
        limits: tuple[tuple[str, Any, str], ...] = (
            ("widths", self.widths >= 1, "at least 1"),
            ("epochs", self.epochs >= 1, "at least 1"),
            ("epochs_done", self.epochs_done <= self.epochs, "from 0 to the job's epochs"),
            ("target_seconds", self.target_seconds > self.starts, "above 0 and the job's start"),
            ("share", self.shares <= 1, "above 0, at most 1"),
            ("priority_cap", self.priority_cap is None or self.priority_cap >= 1, "at least 1, or None"),
            ("bases", increasing and (np.diff(bases) > 0).all(), "increasing shares from 0 to 1"),
            ("fairness_rows", self.fairness_rows in FAIRNESS_ROWS, f"one of {', '.join(FAIRNESS_ROWS)}"),
        )
        for name, fine, expected in limits:
            wrong = np.flatnonzero(~np.asarray(fine, dtype=np.bool_))
            if len(wrong):
                found, job = getattr(self, name), f"[{wrong[0]}]" if np.ndim(fine) else ""
                raise _error(name + job, found[wrong[0]].item() if job else found, expected)

    @property
    def n_jobs(self) -> int:
        """N."""
        return len(self.widths)

    @property
    def shares(self) -> Floats:
        """(N,) s_j."""
        return np.asarray(self.share, dtype=np.float64)

    @property
    def starts(self) -> Floats:
        """(N,) a_j."""
        return np.asarray(self.start_seconds, dtype=np.float64)

    @property
    def due(self) -> Floats:
        """(N,) ``tau_j = a_j + rhomax (T_j - a_j)``, seconds."""
        return self.starts + self.largest_rho * (self.target_seconds - self.starts)

    @property
    def end_seconds(self) -> float:
        """End of the window."""
        return self.now_seconds + self.rounds * self.round_seconds

    @cached_property
    def priorities(self) -> Floats:
        """(N,) ``pr_j`` of stage 2."""
        estimate = self.now_seconds + self.remaining_seconds / self.shares
        rho = np.maximum(estimate - self.starts, 0.0) / (self.target_seconds - self.starts)
        exponent = np.where(self.remaining_seconds < self.round_seconds, _ALMOST_DONE_EXPONENT, self.fairness_exponent)
        logs = np.where(rho > self.largest_rho, exponent * log(np.maximum(rho, _LEAST_RHO)), 0.0)
        priorities: Floats = exp(np.minimum(logs, _LARGEST_LOG_PRIORITY))
        # an estimate above a rhomax below 1 may yield less than 1
        return priorities if self.priority_cap is None else np.minimum(priorities, self.priority_cap)

    @cached_property
    def log_bases(self) -> Floats:
        """(B,) logarithms of the bases."""
        return log(np.maximum(self.bases, _LEAST_PROGRESS))

    @cached_property
    def epochs_by_rounds(self) -> Floats:
        """(N, R + 1) ``p_j`` for 0..R rounds."""
        seconds = self.round_seconds * np.arange(self.rounds + 1)
        return np.minimum((self.epochs - self.epochs_done)[:, None], seconds / self.epoch_seconds[:, None])

    @cached_property
    def utilities_by_rounds(self) -> Floats:
        """(N, R + 1) ``U_j`` for 0..R rounds: concave, as time spent on epochs is."""
        progress = (self.epochs_done[:, None] + self.epochs_by_rounds) / self.epochs[:, None]
        return np.interp(progress, self.bases, self.log_bases)

    @cached_property
    def remaining_by_rounds(self) -> Floats:
        """(N, R + 1) ``L_j`` for 0..R rounds, seconds."""
        left = self.remaining_seconds[:, None] - self.epoch_seconds[:, None] * self.epochs_by_rounds
        # what is left of a difference of equal times is not worth a round
        left[left < 1e-9 * self.remaining_seconds[:, None]] = 0.0
        return np.maximum(left, 0.0)

    @cached_property
    def longest_remaining(self) -> Floats:
        """(N,) most seconds that the fairness rows leave to a job after the window; infinite where no row asks."""
        if self.fairness_rows == "off":
            return np.full(self.n_jobs, np.inf)
        left: Floats = self.shares * (self.due - self.end_seconds)
        if self.fairness_rows == "published":
            return left
        return np.where(left >= 0, left, np.inf)

    @cached_property
    def deadlines(self) -> tuple[Ints, Ints]:
        """(N,) rounds ``q_j`` that a job needs, and the (N,) number ``b_j`` of first rounds they have to lie in.

        ``q_j = 0`` and ``b_j = R`` where no such row holds.
        """
        due = self.due
        held = np.full(self.n_jobs, self.fairness_rows == "own_finish") & (due < self.end_seconds)
        needed = np.ceil(self.remaining_seconds / self.round_seconds - _WHOLE_TOLERANCE)
        last = self.remaining_seconds - np.maximum(needed - 1, 0) * self.round_seconds
        until = 1 + np.floor((due - self.now_seconds - last) / self.round_seconds + _WHOLE_TOLERANCE)
        # with nothing left to run a job has finished already, and no round helps it
        until = np.where(needed > 0, until, np.where(due >= self.now_seconds - _WHOLE_TOLERANCE, self.rounds, -1))
        q = np.where(held, needed, 0).astype(np.int64)
        b = np.where(held, np.clip(until, -1, self.rounds), self.rounds).astype(np.int64)
        return q, b

    def take(self, jobs: Positions) -> PlanningProgram:
        """The same program with its jobs in another order (positions)."""
        return replace(self, **{name: getattr(self, name)[jobs] for name in ("widths", *_PER_JOB)})

    def order_by_content(self) -> Positions:
        """Positions of the jobs in an order that depends on what they are, not on where they stand.

        Jobs alike in every figure stay in the order in which they are given.
        """
        return np.lexsort([getattr(self, name) for name in (*_PER_JOB, "widths")])


_ABOVE_0, _NOT_NEGATIVE = "numbers above 0", "numbers of at least 0"

_PER_JOB = {
    "share": _ABOVE_0,
    "start_seconds": _NOT_NEGATIVE,
    "epochs": _ABOVE_0,
    "epochs_done": _NOT_NEGATIVE,
    "epoch_seconds": _ABOVE_0,
    "remaining_seconds": _NOT_NEGATIVE,
    "target_seconds": _ABOVE_0,
}

_ONE_FOR_ALL = ("share", "start_seconds")
"""Where one figure may stand for all jobs."""


_SOURCE = "planning program"


def _error(name: str, found: object, expected: str) -> InputError:
    return InputError(_SOURCE, field=name, found=found, expected=expected)
