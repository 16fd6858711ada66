"""Optimal efficiency with fairness: the most throughput that envy, or equality, allows."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from allocator.conversion import Positive
from allocator.policies.base.programs import Prepared, fallbacks_of, priced_rates
from allocator.protocol import ClusterState, SharePolicy
from allocator.protocol.allocation import Allocation
from allocator.registry import register
from formulations import MaxMin, Polytope, solve
from formulations.columns import ColumnProgram, InfeasibleError, Rows, Total, solve_columns
from formulations.core.reductions import classes_of
from formulations.reference.stopping import TIME_LIMIT_SECONDS
from formulations.solving.reduction import prices_of_none
from throughputs import Configurations, PlainColumns, ThroughputMatrix
from throughputs.arrays import Floats, Ints, Positions

if TYPE_CHECKING:
    from formulations.columns import ColumnSolution

_ENVY = 1e-9
"""Part of a job's throughput by which another's GPU time may be worth more to it."""

_RESOLVED = 1e-10
"""What of a row of envy, its largest coefficient a rate in units of the slowest, a solver's tolerance leaves open."""

_MOST_ENVIED, _MOST_ENVIOUS = 2, 1
"""Rows added at once for each job that envies others, and for each that is envied."""

_MOST_LACKING = 16
"""Jobs that lack a type whose rows come first, those that are owed most."""

_ROUNDING = 1e-12
"""Relative distance from all of a job's time that is taken for none."""

_DENSE = 4
"""Types up to which neighbours are those of a Delaunay triangulation; it has too many beyond."""


@register(
    "oef",
    paper="Mo, Xu and Lau, Middleware 2024, sec. 4 (arXiv 2403.18545)",
    program="max_x sum_i s_i a_i.x_i with a_i.x_i >= r_ik a_i.x_k for all i, k; or all s_i/e_i a_i.x_i equal",
)
@dataclass(frozen=True)
class OptimalEfficiencyWithFairness(Prepared, SharePolicy):
    """Raise the total normalised throughput as far as no job envies another (OEF).

        max_x  sum_i s_i a_i.x_i                               x in the allocation polytope
        form="cooperative"        a_i.x_i >= r_ik a_i.x_k      for all i, k: nobody prefers another's GPU time
        form="non_cooperative"    s_i/e_i a_i.x_i equal        for all i: nobody gains by overstating its speed-ups

    a_ij = T_ij / min_l T_il: throughput in units of the slowest type that the job's gang can run on; s: scale factors;
    w: priority weights; e: GPUs that a job is entitled to, in proportion to its weight but no more than its gang
    (`entitled_gpus`). The paper divides GPUs among tenants who can use any number of them. Job k has s_k x_k GPUs,
    which a gang of s_i could have for s_k/s_i x_k of its time, in proportion to the weights:

        r_ik = min( (s_k/w_k) / (s_i/w_i),  s_k/e_k )          sum_j x_kj >= e_k/s_k  where the second is less

    is at most all of i's time, if k has the time that it is entitled to. So the rows are the paper's where all are
    entitled to equal GPUs per weight, and imply the envy-freeness of the audit always. Jobs that cannot run on every
    type may leave no shares that keep the second kind of row; then r_ik is the first of the two for all.

    The cooperative program has N^2 rows. Identical jobs are one class; rows begin with those between neighbours in the
    space of relative rates, where envy is to be expected, and others are added where they are violated, until none is.
    The non-cooperative one is max-min fairness in these units, cut down to equality. As in the paper, sharing
    incentive follows where all GPUs can be given out, and efficiency is the most under the rows.

    Parameters
    ----------
    form : "cooperative" or "non_cooperative".
    solver : of the cooperative form "auto", "highs" or "cbc"; of the other as `ProgramPolicy.solver`.
    time_limit_seconds : of the cooperative form, after which no answer is an error.
    """

    form: Literal["cooperative", "non_cooperative"] = "cooperative"
    solver: str = "auto"
    time_limit_seconds: Positive = TIME_LIMIT_SECONDS

    # on GPUs beyond the shares somebody would have what others envy
    fills_idle_gpus: ClassVar[bool] = False

    def allocate(self, state: ClusterState) -> Allocation:
        """Solve the program for `state`."""
        started = perf_counter()
        rates = np.where(state.capacity > 0, state.runnable_rates, 0.0)
        able = np.flatnonzero((rates > 0).any(axis=1) & (state.steps_remaining > 0))
        shares = np.zeros(state.rates.shape)
        found: dict[str, Any] = {"status": "empty", "objective": np.nan, "bound": np.nan, "gap": 0.0}
        if len(able):
            solved = self._cooperative if self.form == "cooperative" else self._equal
            shares[able], solution, total, each = solved(state, able, rates[able])
            # the first GPU of a type would change what is entitled, and units: nobody knows what it brings
            waiting = priced_rates(state)[state.steps_remaining > 0]
            unknown = np.where(state.capacity > 0, 0.0, prices_of_none(waiting))
            found = {
                "status": solution.status,
                "objective": total * each,
                "bound": total * solution.bound,
                "gap": solution.gap,
                "prices": total * solution.prices + unknown,
                "solver": solution.solver,
                "fallbacks": fallbacks_of(solution),
            }
        left_out = np.setdiff1d(np.arange(state.n_jobs), able)
        return Allocation(
            policy=self.name,
            throughputs=state.throughputs,
            shares=np.clip(shares, 0.0, 1.0),
            objective_unit="normalised throughput x GPUs",
            unserved=tuple(state.throughputs.jobs[i] for i in left_out),
            seconds=perf_counter() - started,
            certified=True,
            **found,
        )

    def _cooperative(self, state: ClusterState, jobs: Positions, rates: Floats) -> tuple[Floats, Any, float, float]:
        """Shares of `jobs` under the rows of envy, the solution, its unit, and the objective in that."""
        relative, sizes, weights = _normalised(rates), state.scale_factors[jobs], state.priority_weights[jobs]
        classes = classes_of([*relative.T, sizes.astype(np.float64), weights])
        first, counts = classes.first, classes.counts
        entitled = entitled_gpus(sizes, weights, float(state.capacity.sum()))
        gpus, time = (sizes / weights)[first], (entitled / sizes)[first]
        until = perf_counter() + self.time_limit_seconds
        try:
            envy = _Envy.within_time(relative[first], gpus, time)
            solution = self._solve(envy, state, sizes[first], counts, until)
        except InfeasibleError:
            # a job that cannot use every type may not be able to use what it is entitled to
            envy = _Envy.of_gpus(relative[first], gpus)
            solution = self._solve(envy, state, sizes[first], counts, until)
        return envy.table(solution.x)[classes.of], solution, 1.0, solution.objective

    def _solve(self, envy: _Envy, state: ClusterState, sizes: Ints, counts: Floats, until: float) -> ColumnSolution:
        """The program over K classes of jobs with scale factors `sizes` (K,), `counts` (K,) jobs each."""
        columns = envy.columns(sizes, state.cluster.accelerators)
        first, *waiting = envy.first_rows()
        program = ColumnProgram(columns, state.capacity, counts=counts, rows=first)
        value = (counts * sizes)[columns.job] * columns.rate

        def further(x: Floats) -> Rows | None:
            return waiting.pop() if waiting else envy.violated(x)

        seconds = until - perf_counter()
        return solve_columns(program, Total(value), solver=self.solver, seconds=seconds, generate=further)

    def _equal(self, state: ClusterState, jobs: Positions, rates: Floats) -> tuple[Floats, Any, float, float]:
        """Shares of `jobs` with equal normalised throughput; the rest as in `_cooperative`."""
        relative, sizes = _normalised(rates), state.scale_factors[jobs]
        entitled = entitled_gpus(sizes, state.priority_weights[jobs], float(state.capacity.sum()))
        part = ThroughputMatrix(relative, range(len(jobs)), state.cluster.accelerators, sizes)
        gangs = sizes / entitled
        solution = solve(Polytope(PlainColumns(part), state.capacity), MaxMin(1.0 / gangs), solver=self.solver)
        u = gangs * np.einsum("ij,ij->i", relative, solution.shares)
        total = float(np.add.reduce(entitled))
        return solution.shares * (u.min() / u)[:, None], solution, total, float(u.min())


def _normalised(rates: Floats) -> Floats:
    """(N, M) rates in units of the slowest type that each job runs on."""
    slowest = np.where(rates > 0, rates, np.inf).min(axis=1)
    return np.asarray(rates / slowest[:, None])


def entitled_gpus(scale_factors: Ints, weights: Floats, gpus: float) -> Floats:
    """(N,) GPUs that each job is entitled to: in proportion to the weights, at most its gang::

        e_i = min(s_i, t w_i)  with  sum_i e_i = min(gpus, sum_i s_i)

    Parameters
    ----------
    scale_factors, weights : (N,) s and w.
    gpus : GPUs of the cluster.
    """
    sizes = scale_factors.astype(np.float64)
    if sizes.sum() <= gpus:
        return sizes
    order = np.argsort(sizes / weights, kind="stable")
    before = np.cumsum(sizes[order]) - sizes[order]
    open_ = np.cumsum(weights[order][::-1])[::-1]
    # the first job that is not filled up when those before it are
    level = (gpus - before) / open_
    first = int(np.argmax(level <= (sizes / weights)[order]))
    return np.asarray(np.minimum(sizes, level[first] * weights), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _Envy:
    """Rows of envy between K classes of jobs: ``a_i.x_i >= r_ik a_i.x_k``, and time that jobs are owed for them.

    Attributes
    ----------
    relative : (K, M) a.
    gpus : (K,) GPUs per weight g, which r is made of.
    ratio : (K, K) r.
    owed : (K,) least share of time of a job, 0 for none.
    """

    relative: Floats
    gpus: Floats
    ratio: Floats
    owed: Floats

    @classmethod
    def of_gpus(cls, relative: Floats, gpus: Floats) -> _Envy:
        """``r_ik = g_k / g_i``, g (K,) GPUs per weight: GPU time for GPU time."""
        return cls(relative, gpus, gpus / gpus[:, None], np.zeros(len(gpus)))

    @classmethod
    def within_time(cls, relative: Floats, gpus: Floats, time: Floats) -> _Envy:
        """``r_ik = min(g_k / g_i, 1 / t_k)``, t (K,) the time that jobs are entitled to.

        A job that runs for t_k has more GPU time than i could use, if g_k / g_i t_k > 1: it counts for all of i's time.
        """
        ratio = gpus / gpus[:, None]
        shorter = ratio * time > 1.0 + _ROUNDING
        np.fill_diagonal(shorter, False)
        owed = np.where(shorter.any(axis=0), time, 0.0)
        return cls(relative, gpus, np.where(shorter, 1.0 / time, ratio), owed)

    def columns(self, sizes: Ints, pools: tuple[str, ...]) -> Configurations:
        """Each class on each type that it runs on."""
        job, pool = np.nonzero(self.relative)
        K = len(self.relative)
        return Configurations(job, pool, sizes[job], self.relative[job, pool], jobs=range(K), pools=pools)

    def table(self, x: Floats) -> Floats:
        """(K, M) shares from those of the columns."""
        shares = np.zeros(self.relative.shape)
        shares[self.relative > 0] = x
        return shares

    def first_rows(self) -> list[Rows]:
        """Rows between neighbours; before them, where there is any, of the time that is owed.

        What is owed to a job that cannot use every type is what may leave no shares: it takes the types that others
        envy it for. With its rows alone that is seen in a fraction of the time that all others take.
        """
        from scipy.sparse import csr_array, vstack

        near, owed = self.among(*self.neighbours()), np.flatnonzero(self.owed)
        if not len(owed):
            return [near]
        lacking = owed[(self.relative[owed] == 0).any(axis=1)]
        lacking = lacking[np.argsort(-self.owed[lacking], kind="stable")[:_MOST_LACKING]]
        envious, at = np.nonzero(np.arange(len(self.owed))[:, None] != lacking)
        first, *later = [self.among(envious, lacking[at]), near] if len(lacking) else [near]
        job = np.nonzero(self.relative)[0]
        time = csr_array((np.ones(len(job)), (job, np.arange(len(job)))), shape=(len(self.owed), len(job)))
        return [Rows(vstack([first.matrix, time[owed]]), np.concatenate([first.lower, self.owed[owed]])), *later]

    def among(self, envious: Positions, envied: Positions) -> Rows:
        """The rows of some pairs."""
        from scipy.sparse import csr_array

        K, M = self.relative.shape
        number = np.full((K, M), -1)
        number[self.relative > 0] = np.arange(np.count_nonzero(self.relative))
        row = np.repeat(np.arange(len(envious)), 2 * M)
        column = np.hstack([number[envious], number[envied]]).ravel()
        ratio = self.ratio[envious, envied][:, None]
        # a large ratio divides the row instead
        own, others = self.relative[envious] / np.maximum(ratio, 1.0), self.relative[envious] * np.minimum(ratio, 1.0)
        value = np.hstack([own, -others]).ravel()
        there = (column >= 0) & (value != 0)
        shape = (len(envious), int(number.max()) + 1)
        return Rows(csr_array((value[there], (row[there], column[there])), shape=shape), lower=0.0)

    def violated(self, x: Floats) -> Rows | None:
        """The rows that shares `x` violate most, a few for each class that envies or is envied; None where none is."""
        shares = self.table(x)
        # (K, K) a_i.x_k, in a fixed order of sums: the same rows whatever the processor
        worth = np.zeros(self.ratio.shape)
        for rates, share in zip(self.relative.T, shares.T, strict=True):
            worth += rates[:, None] * share
        own = np.diagonal(worth)[:, None].copy()
        worth *= self.ratio
        excess = (worth - own) / np.maximum(self.ratio, 1.0)
        excess = np.where((worth > (1.0 + _ENVY) * own) & (excess > _RESOLVED), excess, 0.0)
        left, everyone = excess.copy(), np.arange(len(excess))
        for _ in range(_MOST_ENVIED):
            left[everyone, left.argmax(axis=1)] = 0.0
        for _ in range(_MOST_ENVIOUS):
            left[left.argmax(axis=0), everyone] = 0.0
        envious, envied = np.nonzero(excess > left)
        return self.among(envious, envied) if len(envious) else None

    def neighbours(self) -> tuple[Positions, Positions]:
        """Pairs of classes with similar relative rates, both ways: (E,) envious, (E,) envied.

        Without envy, throughput is a convex function of the relative rates with the GPUs of each class as its slopes,
        and a piecewise linear one is convex when it is so from each piece to its neighbours.
        """
        direction = self.relative / self.relative.sum(axis=1, keepdims=True)
        # between gangs with other GPUs rows differ by more than their rates, so that neighbours among equals count too
        gpus, number = np.unique(self.gpus, return_counts=True)
        groups = [np.arange(len(direction)), *(np.flatnonzero(self.gpus == equal) for equal in gpus[number > 1])]
        pairs = [members[_near(direction[members])] for members in groups]
        one, other = np.unique(np.sort(np.hstack(pairs), axis=0), axis=1)
        return np.concatenate([one, other]), np.concatenate([other, one])


def _near(points: Floats) -> Positions:
    """(2, E) pairs of neighbours among `points` (n, M); of several in one place, one has neighbours elsewhere."""
    places, of = np.unique(points, axis=0, return_inverse=True)
    of = of.ravel()
    members = np.argsort(of, kind="stable")
    alike = of[members][1:] == of[members][:-1]
    first = members[np.append(True, ~alike)]
    near, far = _adjacent(places)
    inside = np.vstack([members[:-1][alike], members[1:][alike]])
    return np.hstack([inside, np.vstack([first[near], first[far]])])


def _adjacent(points: Floats) -> tuple[Positions, Positions]:
    """Pairs of neighbours, each once, among distinct `points` (n, M) that sum to 1, in ascending order."""
    n, M = points.shape
    if 2 < M <= _DENSE and n > M:
        from scipy.spatial import Delaunay, QhullError

        try:
            starts, found = Delaunay(points[:, :-1]).vertex_neighbor_vertices
        except QhullError:
            pass  # points on a line or a plane: their order along each type is what there is
        else:
            one = np.repeat(np.arange(n), np.diff(starts))
            return one[one < found], found[one < found].astype(np.intp)
    orders = [np.argsort(points[:, j], kind="stable") for j in range(M)]
    return np.concatenate([o[:-1] for o in orders]), np.concatenate([o[1:] for o in orders])
