"""Settings of the round mechanism: every constant of it, by name.

The defaults are what a user of today wants. The values that reproduce Gavel's scheduler are in the preset "gavel"
(`allocator.presets`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from allocator.conversion import NotNegative, Range, check_fields
from allocator.mechanism.placement.rules import OURS, rule_names
from throughputs import InputError
from throughputs.errors import one_of

# Beyond these a run would not end, or lose its last digit.
_Interval = Annotated[float, Range(1e-3)]
_Credit = Annotated[float, Range(0.0, 1e9, above=True)]
_Digits = Annotated[int, Range(1, 17)]

_SOURCE = "mechanism settings"


@dataclass(frozen=True)
class MechanismSettings:
    """How shares of time become rounds (Gavel, OSDI'20, sec. 5).

    Attributes
    ----------
    round_seconds : length of a round.
    recompute_interval_seconds : least time between two decisions of the policy; 0: decide at every change.
    free_decision_at_start : a decision at clock 0 does not start the interval, so the next change is decided at once.
    decide_early_when_idle : waive the interval when no job could run although some wait for a decision.
    decide_every_seconds : the policy is asked at the latest after so many seconds, whatever happens; None: as it wants
        to be.
    decide_at_rate_changes : a job whose throughput changed, as with its batch size, is a reason for a decision too.
    initial_credit_rounds : time that every job counts as having received on every type when the count starts, in
        rounds; above 0, it bounds the priority of jobs that have not run yet.
    max_overdraft_rounds : time beyond its share that is held against a job at the next decision, in rounds, at most;
        None: all of it. Without a bound, a job that had an idle cluster to itself would starve when others come.
    late_jobs_add_type_time : whether the credit of jobs that arrive between decisions counts into the time of the type.
    time_counted : from when on the time counts that jobs and types have received. "since_decision": from the last
        decision of the policy; "since_arrival": from the arrival of the job, and of a type from the start of the run,
        with that of jobs that have left, as in Sia's simulator. For priority "time_fraction" only.
    share_decimals : decimals to which shares are rounded before they count; None: not at all. Sia's simulator has 5.
    priority : who comes first in a queue, see `allocator.mechanism.queues`. "deficit": the GPU time that a job is
        owed; "time_fraction": its share divided by its fraction of the type's time since the last decision.
    queue : "per_type": the types choose one after the other, each from its own queue; "global": one queue of all
        (job, type) rows.
    accelerator_order : the order in which types choose; types not named follow in the cluster's own order. None: the
        cluster's own order.
    shuffle_accelerators : draw the order at random in every round for policies that do not distinguish types.
    shuffle_seed_offset : added to the seed of the run for that draw.
    tie_breaks : what decides between rows of equal priority, most important first, larger first; then the lower job id.
    hysteresis_rounds : a job that waits takes the place of one that runs only if it is owed so much more GPU time, in
        rounds of one GPU, times one less its share; see `allocator.mechanism.queues`. Saves restarts; for priority
        "deficit". 0: whoever is owed more runs.
    idle_fill : who runs on GPUs that would idle. "queue_order": rows without share stand at the end of each queue,
        wherever they come up first. "best_type": once all rows with a share had their turn, each waiting job takes the
        fastest type that has room (the first in order, for policies that do not distinguish types). "off": nobody has
        more than its share, not even a job that has one; what a job is owed is then counted in rounds, see
        `TimeLedger.due`. None: "best_type", and "off" for policies with `fills_idle_gpus` false. Under these the two
        others fill nothing either, but a job with a share may have more than it.
    undecided_jobs_block_gpus : jobs that the policy has not seen yet take GPUs in the queue but do not run. Otherwise
        they are jobs without share.
    placement : "off": no GPU ids; "in_order": gangs take GPUs in the order of their ids, and a larger new gang may
        displace a smaller one; "consolidated": jobs that stay keep their GPUs, and each new gang gets as few servers
        as possible; "buddy": gangs get blocks of powers of two, which merge when they are released;
        "best_fit", "first_fit": under policies that decide at events, a gang waits until it finds room on as few
        servers as its size allows, on the fullest ones that have room or on the first ones; in rounds as
        "consolidated". Or a rule of another package (`allocator.mechanism.placement.rules`).
    pair_rows : which pairs of jobs queue, under policies that pack. "shared": those that the policy gave a share; time
        that a pair is owed is owed to its jobs, whoever they share with later. "all": every pair of active jobs with
        gangs of one size, as rows in their own right; their number grows with the square of the jobs.
    priority_digits : significant digits to which priorities are rounded before they are compared; None: not at all.

    Raises
    ------
    InputError
        A setting outside its range.
    """

    round_seconds: _Interval = 360.0
    recompute_interval_seconds: NotNegative = 0.0
    free_decision_at_start: bool = False
    decide_early_when_idle: bool = True
    decide_every_seconds: _Interval | None = None
    decide_at_rate_changes: bool = True
    initial_credit_rounds: _Credit = 0.5
    max_overdraft_rounds: NotNegative | None = 3.0
    late_jobs_add_type_time: bool = True
    time_counted: Literal["since_decision", "since_arrival"] = "since_decision"
    share_decimals: _Digits | None = None
    priority: Literal["time_fraction", "deficit"] = "deficit"
    queue: Literal["per_type", "global"] = "global"
    accelerator_order: tuple[str, ...] | None = None
    shuffle_accelerators: bool = True
    shuffle_seed_offset: int = 5
    tie_breaks: tuple[Literal["deficit", "share"], ...] = ("deficit", "share")
    hysteresis_rounds: NotNegative = 0.0
    idle_fill: Literal["off", "queue_order", "best_type"] | None = None
    undecided_jobs_block_gpus: bool = False
    placement: str = "consolidated"
    pair_rows: Literal["shared", "all"] = "shared"
    priority_digits: _Digits | None = None

    def __post_init__(self) -> None:
        check_fields(self, _SOURCE)
        # entry points are looked for only where the name is none of ours
        if self.placement not in ("off", *OURS) and self.placement not in rule_names():
            expected = one_of(self.placement, rule_names())
            raise InputError(_SOURCE, field="placement", found=self.placement, expected=expected)
        for name, wrong, expected in (
            ("hysteresis_rounds", self.hysteresis_rounds and self.priority != "deficit", 'priority "deficit", or 0'),
            (
                "time_counted",
                self.time_counted == "since_arrival" and self.priority != "time_fraction",
                'since_decision, or priority "time_fraction"',
            ),
            (
                "idle_fill",
                self.time_counted == "since_arrival" and self.idle_fill == "off",
                "queue_order or best_type where time_counted is since_arrival: what jobs are owed is not kept",
            ),
        ):
            if wrong:
                raise InputError(_SOURCE, field=name, found=getattr(self, name), expected=expected)

    def visit_order(self, accelerators: tuple[str, ...]) -> list[int]:
        """Positions of the types in the order in which they choose."""
        first = [name for name in self.accelerator_order or () if name in accelerators]
        return [accelerators.index(name) for name in (*first, *(a for a in accelerators if a not in first))]
