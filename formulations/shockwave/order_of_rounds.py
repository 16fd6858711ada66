"""Stage 3: which rounds of the window a job gets, once their number is settled."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from formulations.reference.mixed_integer import MixedProgram, RowBuilder, solve_linear, solve_mixed
from formulations.reference.stopping import StopRule
from formulations.shockwave.moves import Ordering, fill, improve, place_missing
from formulations.shockwave.rounds import relative_gap_of
from formulations.shockwave.written import Places, columns_of, schedule_of
from throughputs.arrays import Flags, Floats, Positions

_MOST_NODES = 200
"""Nodes of HiGHS for a better order or a better proof, where neither is asked for."""

_TIER_RATIO = 1e7
"""Weights further apart than this are ordered one after the other, the heavier first."""


@dataclass(frozen=True, eq=False)
class Placement:
    """A schedule (N, R), its cost, and a cost that no schedule with the same numbers of rounds is below.

    `missing` counts the rounds that found no place; cost and bound are stated where there are none.
    """

    schedule: Flags
    cost: float
    bound: float
    solver: str
    missing: int = 0

    @property
    def gap(self) -> float:
        """Relative distance of cost and bound."""
        return relative_gap_of(self.cost - self.bound, self.cost)


def order_rounds(ordering: Ordering, method: str, stop: StopRule, known: Flags | None = None) -> Placement:
    """Place every job's rounds, urgent ones first::

        min  sum_j weight_j sum_r r s_jr     s.t.  sum_r s_jr = n_j,  sum_j w_j s_jr <= G,  s binary

    "greedy": where jobs do not all fit at once, the linear relaxation is solved, the schedule follows its course round
    by round (`follow`), rounds left over are found places (`place_missing`), and exchanges between rounds improve it
    (`improve`). The bound follows from the relaxation's prices of the rounds, pi_r::

        sum_j [ the n_j least of  weight_j r + w_j pi_r ]  -  G sum_r pi_r

    "exact", and "auto" where that leaves it outside the gap: once it is settled how many jobs of each width run in each
    round, the rest is a transportation problem, whose vertices are whole. So only those numbers u_wr have to be::

        min  sum_j weight_j sum_r r s_jr
        s.t. sum_r s_jr = n_j,   sum_{j of width w} s_jr <= u_wr,   sum_w w u_wr <= G,   0 <= s <= 1,   u whole

    which HiGHS solves to the gap given: a few dozen whole variables in place of N R binaries.

    Parameters
    ----------
    known : (N, R) a schedule of these numbers of rounds, which is improved where no other is found.
    """
    jobs = np.flatnonzero(ordering.rounds_per_job > 0)
    some = ordering.take(jobs)
    schedule = np.arange(some.rounds) < some.rounds_per_job[:, None]
    if (some.idle(schedule) >= 0).all():
        placed = Placement(schedule, some.cost(schedule), some.cost(schedule), "at once")
    else:
        placed = _by_relaxation(some, stop.relative_gap, None if known is None else known[jobs])
        if method != "greedy" and placed.gap > stop.relative_gap:
            placed = _by_counts(some, placed, stop, _MOST_NODES if method == "auto" else None)
    schedule = np.zeros((len(ordering.widths), ordering.rounds), dtype=np.bool_)
    schedule[jobs] = placed.schedule
    return replace(placed, schedule=schedule)


def _by_relaxation(ordering: Ordering, relative_gap: float, known: Flags | None) -> Placement:
    """A schedule along the relaxation, or the one that is known where this leaves rounds without a place."""
    shares, bound = _relaxation(ordering)
    schedule = place_missing(follow(shares, ordering), ordering)
    missing = int(ordering.missing(schedule).sum())
    if missing:
        if known is None:
            return Placement(schedule, math.nan, bound, "relaxation", missing)
        schedule = known
    return _improved(ordering, schedule, bound, relative_gap, "relaxation")


def _improved(ordering: Ordering, schedule: Flags, bound: float, relative_gap: float, solver: str) -> Placement:
    """A complete schedule after exchanges between its rounds, to a tenth of the gap if they lead there."""
    schedule = improve(schedule, ordering, bound + 0.1 * relative_gap * abs(bound))
    return Placement(schedule, ordering.cost(schedule), bound, solver)


def _by_counts(ordering: Ordering, placed: Placement, stop: StopRule, most_nodes: int | None) -> Placement:
    """The program in numbers of jobs per width and round; what stands already where it finds nothing better."""
    program, known = _program(ordering, ordering.weights, 0.0, 1.0, counted=True), placed.schedule
    running = [known[jobs].sum(axis=0) for width, jobs in ordering.light_first if width > 1]
    start = np.concatenate([known.ravel(), *running]).astype(np.float64)
    answer = solve_mixed(program, "highs", stop, start=start, most_nodes=most_nodes)
    if answer.columns is None:
        return placed
    # in double precision, the heaviest tier of weights hides what is proven of the others
    bound = max(placed.bound, answer.bound) if len(_tiers(ordering.weights)) == 1 else placed.bound
    schedule = schedule_of(program, answer.columns, known.shape)
    if not ordering.missing(schedule).any() and (ordering.idle(schedule) >= 0).all():
        found = _improved(ordering, schedule, bound, stop.relative_gap, "highs")
        if found.cost < placed.cost:
            return found
    return replace(placed, bound=bound)


def _tiers(weights: Floats) -> list[Positions]:
    """Jobs in groups of weights of comparable size, the heaviest first."""
    order = np.argsort(-weights, kind="stable")
    tiers: list[Positions] = []
    while len(order):
        inside = int(np.searchsorted(-weights[order], -weights[order[0]] / _TIER_RATIO, side="right"))
        tiers.append(order[:inside])
        order = order[inside:]
    return tiers


def _relaxation(ordering: Ordering) -> tuple[Floats, float]:
    """Shares of the rounds (N, R) by the linear relaxation, and the bound that its prices of the rounds prove.

    One tier of weights is settled at a time: in double precision the heaviest would hide all others. Rows of early
    rounds are left out of the bound, which only lowers it.
    """
    at, chosen = np.arange(ordering.rounds), np.arange(ordering.rounds) < ordering.rounds_per_job[:, None]
    lower, upper, prices = np.zeros(chosen.shape), np.ones(chosen.shape), np.zeros(len(at))
    shares = lower
    for tier in _tiers(ordering.weights):
        weights = np.zeros(len(ordering.widths))
        weights[tier] = ordering.weights[tier]
        scale = float(weights.max())
        answer = solve_linear(_program(ordering, weights / scale if scale > 0 else weights, lower, upper))
        if answer.columns is None or answer.row_duals is None:
            return shares, -math.inf
        shares = np.clip(answer.columns.reshape(shares.shape), 0.0, 1.0)
        prices += np.maximum(-answer.row_duals[: len(at)], 0.0) * scale
        lower[tier] = upper[tier] = shares[tier]
    costs = ordering.weights[:, None] * at + ordering.widths[:, None] * prices
    costs.sort(axis=1)
    return shares, max(0.0, math.fsum((costs * chosen).sum(axis=1)) - ordering.gpus * math.fsum(prices))


def _program(
    ordering: Ordering, weights: Floats, lower: Floats | float, upper: Floats | float, *, counted: bool = False
) -> MixedProgram:
    """The rows of the program: rounds, numbers of rounds, early rounds; with numbers of jobs per width if `counted`.

    The numbers of jobs of width 1 follow from the others, and have no columns.
    """
    widths, N, R = ordering.widths, len(ordering.widths), ordering.rounds
    wider = np.unique(widths[widths > 1]) if counted else widths[:0]
    s, u = columns_of((N, R), (len(wider), R))
    rows, places = RowBuilder(s.size + u.size), Places(widths, ordering.gpus, s, wider, u)
    places.add_room(rows)
    rows.add(N, [(np.arange(N)[:, None], s, 1.0)], ordering.rounds_per_job, ordering.rounds_per_job)
    places.add_early(rows, ordering.needed, ordering.until)
    places.add_counts(rows)
    cost, least, most = np.zeros(rows.n_columns), np.zeros(rows.n_columns), np.zeros(rows.n_columns)
    cost[s], least[s], most[s] = weights[:, None] * np.arange(R), lower, upper
    most[u] = (ordering.gpus // wider)[:, None]
    return rows.program(cost, least, most, np.arange(rows.n_columns) >= s.size)


def follow(shares: Floats, ordering: Ordering) -> Flags:
    """(N, R) schedule: in each round those furthest behind their shares (N, R) run, the denser first.

    Jobs that need every round that is left run in any case, and so many GPUs of wide jobs that the rounds that remain
    can take the others. Some rounds of some jobs may yet find no place.
    """
    widths, gpus, rounds = ordering.widths, ordering.gpus, ordering.rounds
    schedule = np.zeros(shares.shape, dtype=np.bool_)
    left, early = ordering.rounds_per_job.copy(), ordering.needed.copy()
    courses = np.round(np.cumsum(shares, axis=1), 6)
    for now in range(rounds):
        after, running = rounds - now - 1, schedule[:, now]
        behind = courses[:, now] - (ordering.rounds_per_job - left)
        pressed = (left > after) | ((early > 0) & (early > ordering.until - now - 1))
        order = np.lexsort((-ordering.weights / widths, -behind, ~pressed))
        order = order[left[order] > 0]
        fill(order[: np.count_nonzero(pressed)], running, widths, gpus)
        for width in np.unique(widths)[::-1]:
            wide = widths >= width
            short = (widths * (left - running))[wide].sum() - after * width * (gpus // width)
            fill(order[wide[order]], running, widths, gpus, short)
        fill(order, running, widths, gpus)
        left -= running
        early -= running
    return schedule
