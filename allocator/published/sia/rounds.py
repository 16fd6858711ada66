"""The discipline of the round-based policies in Sia's simulator (Jayaram Subramanya et al., SOSP 2023, artifact)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from allocator.conversion import Range
from allocator.mechanism.gang_packing import Vacancies, pack
from allocator.mechanism.queues import Queues
from allocator.mechanism.rounds import Discipline, RoundMechanism, Rounds
from allocator.protocol.jobs import JobTable
from allocator.published.gavel.rounds import FractionLedger, FractionRounds
from formulations import Pairs

_Floats = NDArray[np.float64]
_Ids = NDArray[np.int64]


@dataclass(frozen=True)
class FractionsSinceArrival(Discipline):
    """One queue of all (row, type), by share over fraction of time received since the job arrived.

    A decision forgets nothing, and the time of a type counts from the start of the run, with that of jobs that have
    left. Of equal priorities the larger share comes first.

    Attributes
    ----------
    share_decimals : decimals to which shares are rounded before they count; None: not at all.
    """

    name: ClassVar[str] = "time_fraction_since_arrival"

    share_decimals: Annotated[int, Range(1, 17)] | None = 5

    def start(self, run: Rounds) -> RoundMechanism:
        """See Discipline."""
        types = len(run.cluster.accelerators)
        return SiaRounds(run, SinceArrival(run.jobs, types, run.seconds, self.share_decimals))


class SinceArrival(FractionLedger):
    """Forgets nothing when a count starts."""

    def __init__(self, jobs: JobTable, n_types: int, round_seconds: float, share_decimals: int | None) -> None:
        super().__init__(jobs, n_types, round_seconds)
        self._decimals = share_decimals

    def add(self, jobs: _Ids) -> None:
        """The credit of new jobs counts into the time of the types."""
        super().add(jobs)
        self.type_time = self.type_time + len(jobs) * self.credit_seconds

    def start_count(self, clock: float) -> None:
        """What counts since arrival goes on."""
        self.counted_since = clock

    def set_shares(self, shares: _Floats, pairs: Pairs | None = None) -> None:
        """As in Ledger, rounded."""
        if self._decimals is not None:
            shares = np.clip(np.round(shares, self._decimals), 0.0, 1.0)
        super().set_shares(shares, pairs)


class SiaRounds(FractionRounds):
    """Sia's discipline in a run."""

    def __init__(self, run: Rounds, ledger: FractionLedger) -> None:
        super().__init__(run, ledger)
        self.draws_types = False

    def ties(self) -> tuple[_Floats, ...]:
        """The larger share."""
        return (-self.ledger.shares,)

    def choose(self, clock: float, queues: Queues, negated: _Floats, types: list[int]) -> list[list[int]]:  # noqa: ARG002
        """See RoundMechanism."""
        ledger = self.ledger
        queue = zip(*queues.merged(negated, types), strict=True)
        return pack(queue, ledger.packing, Vacancies(self._capacity, len(ledger.jobs)), self._strict)
