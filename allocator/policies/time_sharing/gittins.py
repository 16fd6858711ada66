"""Tiresias where the distribution of GPU times is known: the Gittins index."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allocator.conversion import Positive
from allocator.policies.time_sharing.tiresias import Tiresias, TiresiasMemory
from allocator.protocol import ClusterState
from allocator.registry import register
from throughputs import InputError
from throughputs.arrays import Flags, Floats, Ints
from throughputs.numerics import quotient

_SHORTEST = 60.0
_RATIO = 1.1220184543019633  # the 20th root of 10
_SAMPLES = 101


def _log_uniform() -> tuple[float, ...]:
    """(101,) samples, each as many times the one before: 60 to 6,000,000 GPU seconds."""
    sample, samples = _SHORTEST, []
    for _ in range(_SAMPLES):
        samples.append(sample)
        sample *= _RATIO
    return tuple(samples)


@register(
    "tiresias_gittins",
    paper="Gu et al. (Tiresias), NSDI 2019, sec. 3.2.2 (discretised 2D-Gittins)",
    program="in order of queue(a_i), then of -G(a_i), a_i = s_i r_i: a gang on the fastest type with room",
)
@dataclass(frozen=True)
class TiresiasGittins(Tiresias):
    """Tiresias, and in each queue the jobs first that are likeliest to end soon, as GPU times are known to be spread.

        G(a) = P(S <= a + d | S > a) / E[min(S - a, d) | S > a]              in each queue in order of -G(a_i)

    S: GPU time of a job, in GPU seconds, from `samples` of jobs that have ended; a: what the job has attained; d: the
    quantum. Jobs of equal index, and those beyond all samples, go by `line`.

    Parameters
    ----------
    samples : GPU seconds of jobs, each above 0; by default spread evenly over magnitudes, from 60 to 6,000,000.
    quantum : GPU seconds ahead that the index looks.
    """

    samples: tuple[float, ...] = _log_uniform()
    quantum: Positive = 3250.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.samples or not all(0 < sample < np.inf for sample in self.samples):
            found, expected = self.samples, "at least one, in GPU seconds above 0"
            raise InputError("policy tiresias_gittins", field="samples", found=found, expected=expected)

    def index(self, attained: Floats) -> Floats:
        """(N,) the Gittins index, per GPU second, of jobs that have attained so many GPU seconds (N,)."""
        samples, sums = self._sorted
        after, within = (samples.searchsorted(at, side="right") for at in (attained, attained + self.quantum))
        ending, left = within - after, len(samples) - after
        used = sums[within] - sums[after] + self.quantum * (left - ending) - attained * ending
        return quotient(ending.astype(np.float64), used, 0.0)

    @cached_property
    def _sorted(self) -> tuple[Floats, Floats]:
        """(S,) the samples, ascending, and (S + 1,) the sums of the first ones."""
        samples = np.sort(np.array(self.samples, dtype=np.float64))
        return samples, np.concatenate([[0.0], samples.cumsum()])

    def _line(self, state: ClusterState, memory: TiresiasMemory, ran: Flags) -> Ints:  # noqa: ARG002
        """(N,) positions, the first in line first."""
        index = self.index(state.gpu_seconds - memory.spent)
        return np.lexsort((memory.turn, -index, memory.queue))
