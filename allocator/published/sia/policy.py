"""Sia as its public code has it: costs are rounded, so that many choices are equally good."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from allocator.conversion import NotNegativeWhole
from allocator.policies.goodput.selection import Array, Whole
from allocator.policies.goodput.sia import Sia
from allocator.protocol import ClusterState
from formulations.goodput import SiaProgram
from throughputs import Configurations, InputError
from throughputs.errors import one_of


@dataclass(frozen=True)
class PublishedSia(Sia):
    """Costs are in steps of 0.01, and 3,000 at most.

    Parameters
    ----------
    tie_seed : of types with the same least cost of all jobs those that a generator with this seed draws, anew for every
        second; None: those that the solver finds, typically the first.
    tie_types : in place of a draw: types in the order in which they are taken at the same cost; those that are not
        named come last, in the order of the cluster.
    """

    tie_seed: NotNegativeWhole | None = None
    tie_types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, good, expected in (
            ("tie_types", not self.tie_types or self.tie_seed is None, "none beside a tie_seed"),
            ("tie_types", len(set(self.tie_types)) == len(self.tie_types), "each type once"),
        ):
            if not good:
                raise InputError("policy sia", field=name, found=getattr(self, name), expected=expected)

    def program_of(self, state: ClusterState, ways: Configurations, held: Whole, kept: Array) -> SiaProgram:
        """The program of a state."""
        program = super().program_of(state, ways, held, kept)
        return replace(program, decimals=2, most_cost=3000.0, ties=self._ties(state, ways))

    def _ties(self, state: ClusterState, ways: Configurations) -> Array | float:
        """(C,) parts of a step, equal for columns of one job and type, of which the fewest GPUs are taken then."""
        most = 0.5 / max(ways.n_jobs, 1)
        if self.tie_types:
            for name in self.tie_types:
                if name not in ways.pools:
                    expected = one_of(name, ways.pools)
                    raise InputError("policy sia", field="tie_types", found=name, expected=expected)
            order = {name: place for place, name in enumerate(dict.fromkeys((*self.tie_types, *ways.pools)))}
            place = np.array([order[name] for name in ways.pools])
            return np.asarray((1.0 - place / len(order))[ways.pool] * most)
        if self.tie_seed is None:
            return 0.0
        draws = np.random.default_rng([self.tie_seed, int(state.clock)]).random((ways.n_jobs, len(ways.pools)))
        return np.asarray(draws[ways.job, ways.pool] * most)
