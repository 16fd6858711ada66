"""Stage 3: which rounds of the window a job gets, once their number is settled."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from formulations.reference.mixed_integer import MixedProgram, RowBuilder, at_vertex, solve_linear, solve_mixed
from formulations.reference.stopping import StopRule
from formulations.shockwave.moves import Workload, improve, place_missing
from formulations.shockwave.rounds import relative_gap_of
from throughputs.arrays import Flags, Floats, Ints, Positions
from throughputs.numerics import matmul

_MOST_NODES = 200
"""Nodes of HiGHS for a better order or a better proof, where neither is asked for."""

_TIER_RATIO = 1e7
"""Weights further apart than this are ordered one after the other, the heavier first."""


@dataclass(frozen=True, eq=False)
class Ordering:
    """What is to be placed: the jobs of a plan in the rounds of its window.

    Attributes
    ----------
    widths : (N,) GPUs per job.
    rounds_per_job : (N,) n_j.
    weights : (N,) cost of each round that each of a job's rounds is later.
    gpus, rounds : G and R.
    needed, until : (N,) so many of a job's rounds have to lie in the first so many of the window.
    """

    widths: Ints
    rounds_per_job: Ints
    weights: Floats
    gpus: int
    rounds: int
    needed: Ints
    until: Ints

    def take(self, jobs: Positions) -> Ordering:
        """The same of some of the jobs."""
        counts = self.rounds_per_job[jobs]
        rows = (self.widths[jobs], counts, self.weights[jobs], self.gpus, self.rounds)
        return Ordering(*rows, self.needed[jobs], self.until[jobs])

    @property
    def load(self) -> Workload:
        """The jobs as they may be moved: early rounds have to stay early."""
        held = np.where(self.needed > 0, self.until, self.rounds)
        return Workload(self.widths, self.weights, self.gpus, held)

    def missing(self, schedule: Flags) -> Ints:
        """(N,) rounds that a schedule (N, R) owes to each job, in all or by its early rounds."""
        early = (schedule & (np.arange(self.rounds) < self.until[:, None])).sum(axis=1)
        missing: Ints = np.maximum(self.rounds_per_job - schedule.sum(axis=1), self.needed - early)
        return np.maximum(missing, 0)

    def cost(self, schedule: Flags) -> float:
        """``sum_j weight_j sum_r r s_jr`` of a schedule (N, R)."""
        return math.fsum(self.weights * (schedule * np.arange(self.rounds)).sum(axis=1))


@dataclass(frozen=True, eq=False)
class Placement:
    """A schedule (N, R), its cost, and a cost that no schedule with the same numbers of rounds is below.

    `missing` (N,) counts the rounds that found no place; cost and bound are stated where there are none.
    """

    schedule: Flags
    missing: Ints
    cost: float
    bound: float
    solver: str

    @property
    def gap(self) -> float:
        """Relative distance of cost and bound."""
        return relative_gap_of(self.cost - self.bound, self.cost)


def order_rounds(
    ordering: Ordering,
    method: str,
    relative_gap: float,
    time_limit_seconds: float,
    known: Flags | None = None,
) -> Placement:
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
    schedule = np.zeros((len(ordering.widths), ordering.rounds), dtype=np.bool_)
    missing = np.zeros(len(ordering.widths), dtype=np.int64)
    if not len(jobs):
        return Placement(schedule, missing, 0.0, 0.0, "none")
    placed = _all_at_once(some)
    if placed is None:
        placed = _by_relaxation(some, relative_gap, None if known is None else known[jobs])
        if method != "greedy" and not placed.missing.any() and placed.gap > relative_gap:
            most_nodes = _MOST_NODES if method == "auto" else None
            placed = _by_counts(some, placed, relative_gap, time_limit_seconds, most_nodes)
    schedule[jobs], missing[jobs] = placed.schedule, placed.missing
    return Placement(schedule, missing, placed.cost, placed.bound, placed.solver)


def _all_at_once(ordering: Ordering) -> Placement | None:
    """Every job from the first round on, if the cluster holds them."""
    schedule = np.arange(ordering.rounds) < ordering.rounds_per_job[:, None]
    if (matmul(ordering.widths, schedule) > ordering.gpus).any() or (ordering.needed > ordering.until).any():
        return None
    cost = ordering.cost(schedule)
    return Placement(schedule, np.zeros_like(ordering.widths), cost, cost, "at once")


def _by_relaxation(ordering: Ordering, relative_gap: float, known: Flags | None) -> Placement:
    shares, bound = _relaxation(ordering)
    rows = (ordering.rounds_per_job, ordering.widths, ordering.weights / ordering.widths, ordering.gpus)
    schedule = follow(shares, *rows, ordering.needed, ordering.until)
    missing = ordering.missing(schedule)
    if missing.any():
        owed = ordering.rounds_per_job - schedule.sum(axis=1)
        schedule = place_missing(schedule, owed, ordering.load)
        missing = ordering.missing(schedule)
    if missing.any() and known is None:
        return Placement(schedule, missing, math.nan, bound, "relaxation")
    if known is not None and missing.any():
        schedule = known
    return _improved(ordering, schedule, bound, relative_gap, "relaxation")


def _improved(ordering: Ordering, schedule: Flags, bound: float, relative_gap: float, solver: str) -> Placement:
    """A complete schedule after exchanges between its rounds, to a tenth of the gap if they lead there."""
    target = bound + 0.1 * relative_gap * abs(bound)
    schedule = improve(schedule, ordering.load, cost_of=ordering.cost, target=target)
    return Placement(schedule, np.zeros_like(ordering.widths), ordering.cost(schedule), bound, solver)


def _by_counts(
    ordering: Ordering, placed: Placement, relative_gap: float, time_limit_seconds: float, most_nodes: int | None
) -> Placement:
    """The program in numbers of jobs per width and round; what stands already where it finds nothing better."""
    n, rounds = placed.schedule.shape
    program = _program(ordering, ordering.weights, np.zeros((n, rounds)), np.ones((n, rounds)), counted=True)
    wider = np.unique(ordering.widths[ordering.widths > 1])
    running = [placed.schedule[ordering.widths == width].sum(axis=0) for width in wider]
    start = np.concatenate([placed.schedule.ravel(), *running]).astype(np.float64)
    answer = solve_mixed(
        program, "highs", StopRule(relative_gap, seconds=time_limit_seconds), start=start, most_nodes=most_nodes
    )
    columns = None if answer.columns is None else at_vertex(program, answer.columns, n * rounds)
    bound = max(placed.bound, answer.bound) if len(_tiers(ordering.weights)) == 1 else placed.bound
    bound = bound if math.isfinite(bound) else placed.bound
    if columns is None:
        return replace(placed, bound=bound)
    schedule = columns[: n * rounds].reshape(n, rounds) > 0.5
    if ordering.missing(schedule).any() or (matmul(ordering.widths, schedule) > ordering.gpus).any():
        return replace(placed, bound=bound)
    found = _improved(ordering, schedule, bound, relative_gap, "highs")
    return found if found.cost < placed.cost else replace(placed, bound=bound)


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
    """Shares of the rounds (N, R) by the linear relaxation, and the bound.

    One tier of weights is settled at a time: in double precision the heaviest would hide all others. What the lighter
    tiers cost at least is then stated for each alone, as if the heavier ones left them all places.
    """
    lower = np.zeros((len(ordering.widths), ordering.rounds))
    upper = np.ones_like(lower)
    bound, all_prices = 0.0, np.zeros(ordering.rounds)
    shares = lower
    for tier in _tiers(ordering.weights):
        weights = np.zeros(len(ordering.widths))
        weights[tier] = ordering.weights[tier]
        scale = float(weights.max())
        answer = solve_linear(_program(ordering, weights / scale if scale > 0 else weights, lower, upper))
        if answer.columns is None or answer.row_duals is None:
            return np.clip(shares, 0.0, 1.0), -math.inf
        shares = np.clip(answer.columns.reshape(shares.shape), 0.0, 1.0)
        prices = np.maximum(-answer.row_duals[: ordering.rounds], 0.0) * scale
        bound += _bound(ordering, weights, prices)
        all_prices += prices
        lower[tier] = upper[tier] = shares[tier]
    return shares, max(bound, _bound(ordering, ordering.weights, all_prices))


def _bound(ordering: Ordering, weights: Floats, prices: Floats) -> float:
    """The bound that prices of the rounds prove; rows of early rounds are left out, which only lowers it."""
    costs = weights[:, None] * np.arange(ordering.rounds) + ordering.widths[:, None] * prices
    costs.sort(axis=1)
    chosen = np.arange(ordering.rounds) < ordering.rounds_per_job[:, None]
    return max(0.0, math.fsum((costs * chosen).sum(axis=1)) - ordering.gpus * math.fsum(prices))


def _program(
    ordering: Ordering, weights: Floats, lower: Floats, upper: Floats, *, counted: bool = False
) -> MixedProgram:
    """The rows of the program: rounds, numbers of rounds, early rounds; with numbers of jobs per width if `counted`.

    The numbers of jobs of width 1 follow from the others, and have no columns.
    """
    n, rounds = len(ordering.widths), ordering.rounds
    jobs, at = np.arange(n)[:, None], np.arange(rounds)
    column = jobs * rounds + at
    wider = np.unique(ordering.widths[ordering.widths > 1]) if counted else ordering.widths[:0]
    count_columns = n * rounds + np.arange(len(wider))[:, None] * rounds + at
    rows = RowBuilder(n * rounds + count_columns.size)
    direct = ~np.isin(ordering.widths, wider)
    holds = [(at, column[direct], ordering.widths[direct, None]), (at, count_columns, wider[:, None])]
    rows.add(rounds, holds, -np.inf, ordering.gpus)
    rows.add(n, [(jobs, column, 1.0)], ordering.rounds_per_job, ordering.rounds_per_job)
    held = np.flatnonzero(ordering.needed > 0)
    if len(held):
        early = (at < ordering.until[held, None]).astype(np.float64)
        rows.add(len(held), [(np.arange(len(held))[:, None], column[held], early)], ordering.needed[held], np.inf)
    for width, columns in zip(wider, count_columns, strict=True):
        rows.add(rounds, [(at, column[ordering.widths == width], 1.0), (at, columns, -1.0)], -np.inf, 0.0)
    cost = np.append((weights[:, None] * at).ravel(), np.zeros(count_columns.size))
    most = np.repeat((ordering.gpus // np.maximum(wider, 1)).astype(np.float64), rounds)
    whole = np.arange(rows.n_columns) >= n * rounds
    return rows.program(cost, np.append(lower, np.zeros(len(most))), np.append(upper, most), whole)


def follow(
    shares: Floats,
    rounds_per_job: Ints,
    widths: Ints,
    density: Floats,
    gpus: int,
    needed: Ints,
    until: Ints,
) -> Flags:
    """(N, R) schedule: in each round those furthest behind their shares (N, R) run, the denser first.

    Jobs that need every round that is left run in any case, and so many GPUs of wide jobs that the rounds that remain
    can take the others. Some rounds of some jobs may yet find no place.
    """
    rounds = shares.shape[1]
    schedule = np.zeros(shares.shape, dtype=np.bool_)
    left, early = rounds_per_job.copy(), needed.copy()
    courses = np.round(np.cumsum(shares, axis=1), 6)
    distinct = [int(width) for width in np.unique(widths)[::-1]]
    for now in range(rounds):
        after = rounds - now - 1
        behind = courses[:, now] - (rounds_per_job - left)
        pressed = (left > after) | ((early > 0) & (early > until - now - 1))
        order = np.lexsort((-density, -behind, ~pressed)).tolist()
        free = _take(order, np.flatnonzero(pressed).size, left, widths, gpus, schedule[:, now])
        for width in distinct:
            wide = widths >= width
            room = after * width * (gpus // width)
            short = int((widths * left)[wide].sum()) - room - int(matmul(widths[wide], schedule[wide, now]))
            if short > 0:
                wider = [job for job in order if wide[job]]
                free = _take(wider, len(wider), left, widths, free, schedule[:, now], at_least=short)
        _take(order, len(order), left, widths, free, schedule[:, now])
        left -= schedule[:, now]
        early -= schedule[:, now]
    return schedule


def _take(
    order: list[int],
    first: int,
    left: Ints,
    widths: Ints,
    free: int,
    running: Flags,
    at_least: int | None = None,
) -> int:
    """Let the first jobs of an order run as far as they fit, or until enough GPUs are theirs; the GPUs still free."""
    start = free
    for job in order[:first]:
        if free <= 0 or (at_least is not None and start - free >= at_least):
            break
        if left[job] > 0 and not running[job] and widths[job] <= free:
            running[job] = True
            free -= int(widths[job])
    return free
