"""Settings of the round mechanism: every constant of it, by name.

The defaults are what a user of today wants. The values that reproduce Gavel's scheduler are in the preset "gavel"
(`allocator.presets`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from allocator.cluster import Cluster
from allocator.conversion import Range, Seconds, check_fields
from allocator.mechanism.deficit import DeficitQueue
from allocator.mechanism.placement.gangs import OURS, rule_names
from allocator.mechanism.rounds import Discipline, RoundMechanism, Rounds
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import SharePolicy
from throughputs import InputError
from throughputs.errors import one_of
from throughputs.limits import LATEST_TIME

# Below this a run would not end.
_Interval = Annotated[float, Range(1e-3, LATEST_TIME)]

_SOURCE = "mechanism settings"


@dataclass(frozen=True)
class MechanismSettings:
    """How shares of time become rounds (Gavel, OSDI'20, sec. 5).

    Attributes
    ----------
    round_seconds : length of a round.
    recompute_interval_seconds : least time between two decisions of the policy; 0: decide at every change.
    decide_every_seconds : the policy is asked at the latest after so many seconds, whatever happens; None: as it wants
        to be.
    placement : "off": no GPU ids; "in_order": gangs take GPUs in the order of their ids, and a larger new gang may
        displace a smaller one; "consolidated": jobs that stay keep their GPUs, and each new gang gets as few servers
        as possible; "buddy": gangs get blocks of powers of two, which merge when they are released;
        "best_fit", "first_fit": under policies that decide at events, a gang waits until it finds room on as few
        servers as its size allows, on the fullest ones that have room or on the first ones; in rounds as
        "consolidated". Or a rule of another package (`allocator.mechanism.placement.gangs`).
    discipline : who comes first in a round, what time is counted, who fills idle GPUs. Its fields are settings too.

    Raises
    ------
    InputError
        A setting outside its range.
    """

    round_seconds: _Interval = 360.0
    recompute_interval_seconds: Seconds = 0.0
    decide_every_seconds: _Interval | None = None
    placement: str = "consolidated"
    discipline: Discipline = field(default_factory=DeficitQueue)

    def __post_init__(self) -> None:
        check_fields(self, _SOURCE)
        # entry points are looked for only where the name is none of ours
        if self.placement not in ("off", *OURS) and self.placement not in rule_names():
            expected = one_of(self.placement, rule_names())
            raise InputError(_SOURCE, field="placement", found=self.placement, expected=expected)

    def start(self, policy: SharePolicy, cluster: Cluster, jobs: JobTable, seed: int) -> RoundMechanism:
        """The round mechanism in a run of these jobs; `seed` as in `Rounds`."""
        run = Rounds(policy, cluster, jobs, self.round_seconds, self.recompute_interval_seconds, seed)
        return self.discipline.start(run)
