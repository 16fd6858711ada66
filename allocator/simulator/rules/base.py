"""What a rule of a simulated world is, and what it may do to a run, a round or a stretch.

A world is a tuple of rules. Each is a frozen value; what it keeps during a run is an object that `Rule.start` makes for
that run. Both executions (whole rounds, stretches from event to event) go through these objects in the order of the
world and know none of them by name: a hook that a rule does not have is not called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import numpy as np

from allocator.checkpoint.kept import Kept
from allocator.conversion import check_fields
from allocator.protocol.assignment import Assignment
from allocator.protocol.decision import Decision
from allocator.protocol.policy import Need, Policy, check_names, is_ours
from allocator.protocol.views import Needs
from throughputs import InputError
from throughputs.arrays import Flags, Floats, Ints

if TYPE_CHECKING:
    from allocator.cluster import Cluster
    from allocator.simulator.truth import Truth
    from allocator.simulator.world import World
    from throughputs import Trace


_NOBODY: Flags = np.empty(0, dtype=np.bool_)


@dataclass(slots=True, eq=False)
class Round:
    """One round as it takes shape; arrays are over its K rows.

    Attributes
    ----------
    index, clock, seconds : its number, its start and its full length.
    decision : who runs.
    whole_steps : whether only whole steps count; a job slower than one a round then never progresses.
    jobs, pairs : ids; positions of the first of each two rows that share GPUs, None under policies that do not pack.
    rates : steps/s.
    left : steps left before the round.
    steps, finish : steps done, and when they were done, seconds.
    end, previous_end : of the round, and of the one before it.
    begin : when each row began to train, seconds, as in a stretch.
    counted_from : since when the time counts as received.
    done : who is through.
    idle : who did no step; empty where everybody did.
    cut_off : who is taken off before the last step; part of `done`.
    """

    index: int
    clock: float
    seconds: float
    decision: Decision
    whole_steps: bool
    jobs: Ints
    pairs: Ints | None
    rates: Floats
    left: Floats
    steps: Floats
    finish: Floats
    end: float
    previous_end: float
    counted_from: float
    begin: Floats | float
    done: Flags = field(default_factory=lambda: _NOBODY)
    idle: Flags = field(default_factory=lambda: _NOBODY)
    cut_off: Flags | None = None

    def counted(self, steps: Floats) -> Floats:
        """What counts of so many steps."""
        return np.floor(steps) if self.whole_steps else steps


@dataclass(slots=True, eq=False)
class Stretch:
    """One stretch as it takes shape; arrays are over its K rows.

    Attributes
    ----------
    clock : its start, seconds.
    decision : who runs.
    at : where the jobs are in the job table.
    begin : when each row begins to train, seconds; later than `clock` where a start takes time.
    rates : steps/s of each row.
    done : steps that each job has done before, known from `shape` on, as what follows.
    finish : when each row is through if nothing happens before; inf: never.
    until : when rows cease to train, be they through or not, seconds.
    trained : when rows have done their last step, where they are through only later, seconds.
    judged : what the deadlines of those who are through are compared with, seconds.
    served : since when the time counts as received, seconds; None: since `begin`.
    starts : which rows start anew; None where starts take no time.
    """

    clock: float
    decision: Decision
    at: Ints
    begin: Floats | float
    rates: Floats
    done: Floats = field(init=False)
    finish: Floats = field(init=False)
    judged: Floats = field(init=False)
    until: Floats | float = np.inf
    trained: Floats | None = None
    served: Floats | float | None = None
    starts: Flags | None = None


def seconds_between(begin: Floats | float, end: Floats | float) -> Floats | float:
    """From `begin` to `end`, 0 where that comes before; for all rows where the two are the same for all."""
    if isinstance(begin, float) and isinstance(end, float):
        return max(end - begin, 0.0)
    return np.maximum(end - begin, 0.0)


class RunningRule(Kept):
    """A rule in a run: does nothing, at any of its hooks.

    Attributes
    ----------
    keeps : names of the attributes that a checkpoint keeps.
    says_ends : whether a stretch ends for its jobs when the rule says, to the digit, and not when next to nothing is
        left.
    whole_steps : whether jobs do whole steps in a round.
    ends_round : whether the rule says when a round is over; otherwise it has its full length.
    lets_idle : whether a job may do no step in a round although it has a rate and GPUs.
    in_stretches : whether a round is a stretch that nothing cuts short.
    """

    says_ends: ClassVar[bool] = True
    whole_steps: bool = False
    ends_round: ClassVar[bool] = False
    lets_idle: ClassVar[bool] = False
    in_stretches: ClassVar[bool] = False

    # of every world

    def arrive(self, jobs: Ints) -> None:
        """Jobs (ids) come."""

    def lengthen(self) -> None:
        """The world has more jobs, behind those that it had."""

    def rates(self, decision: Decision, at: Ints, rates: Floats) -> Floats:  # noqa: ARG002
        """(K,) steps/s of the rows of a decision, which would be `rates`; their jobs are `at` (K,) in the table."""
        return rates

    def cut_short(self, waiting: int) -> str:  # noqa: ARG002
        """Why the run is given up now that so many jobs are `waiting`; "": it is not."""
        return ""

    def stalls(self, rounds: int) -> bool:  # noqa: ARG002
        """Whether the run fails after so many rounds in which nobody did a step."""
        return False

    def next_event(self) -> float:
        """When something happens by itself next, seconds; a stretch ends there, and the policy is asked."""
        return np.inf

    def happen(self) -> None:
        """Let happen what was to happen up to the clock of the world."""

    def did(self, decision: Decision, at: Ints, steps: Floats, seconds: Floats | float) -> None:
        """The (K,) rows of a decision did so many steps in so many seconds of training, without starts; their jobs are
        `at` (K,) in the table."""

    def set_back(self, at: Ints, steps: Floats) -> None:
        """The (K,) jobs `at` these rows of the table have lost so many steps."""

    # of stretches

    def seen_at(self, time: float) -> float:
        """When the world sees what happens between decisions at `time` (seconds)."""
        return time

    def seen_at_once(self, first: float, finish: Floats, jobs: Ints) -> bool:  # noqa: ARG002
        """Whether the world sees at once that some of the `jobs`, which are through at `finish`, are at `first`."""
        return False

    def follow(self, rows: Assignment, at: Ints) -> None:
        """Jobs run as these (K,) rows from now on; they are `at` (K,) in the table."""

    def stop(self, rows: Assignment, at: Ints, rates: Floats) -> None:
        """The (K,) rows ran at these `rates` (K,), steps/s, and are stopped; their jobs are `at` (K,) in the table."""

    def begin(self, s: Stretch) -> None:
        """Change when rows of a stretch begin to train, or how fast; `finish` is not known yet."""

    def shape(self, s: Stretch) -> None:
        """Change when rows of a stretch are through."""

    def next_change(self, s: Stretch) -> float:  # noqa: ARG002
        """When a stretch ends for a reason that rows have by themselves, seconds."""
        return np.inf

    def train(self, s: Stretch, end: float) -> Floats | None:  # noqa: ARG002
        """(K,) steps that rows do up to `end` (seconds), where these are not `rates` times seconds; else None.

        `finish` becomes when they were through, inf for those who are not.
        """
        return None

    # of rounds

    def in_round(self, r: Round) -> None:
        """Change what the rows of a round did, and when they were done."""

    def settle(self, r: Round) -> None:
        """Change who is through with a round."""

    def after(self, r: Round) -> None:
        """Look back when a round is over."""

    def rounds_left(self, jobs: Ints, seconds: float) -> float:  # noqa: ARG002
        """So many rounds of full length of these jobs the rule will let pass without doing anything."""
        return np.inf

    def sums(self) -> list[Floats]:
        """What the rule adds to in every round, changed in place."""
        return []


def started(rule: Rule, world: World) -> list[RunningRule]:
    """What a rule is in this run.

    Raises
    ------
    InputError
        It made something that is no `RunningRule`, or has a method whose name is nearly that of a hook.
    """
    given: Any = rule.start(world)
    source = f"rule {type(rule).__name__}"
    made = list(given) if isinstance(given, Iterable) else [given]
    wrong = [one for one in made if one is given or not isinstance(one, RunningRule)]
    if wrong:
        expected = "a list of objects of subclasses of RunningRule"
        raise InputError(source, field="start", found=type(wrong[0]).__name__, expected=expected)
    for kind in (type(rule), *map(type, made)):
        check_names(kind, source)
    return made


_CALLED = {
    "in rounds": {"in_round", "settle", "after"},
    "between events": {"seen_at", "seen_at_once", "follow", "stop", "begin", "shape", "next_change", "train"},
    "as ideal shares": {"seen_at", "seen_at_once", "shape", "next_change", "train"},
}
"""Hooks that are called as jobs run so, beside those of every world."""


def check_called(rule: Rule, made: Iterable[RunningRule], run: str) -> None:
    """Raise InputError where somebody else's rule is of another kind of run alone, and would do nothing in this one."""
    others = [one for one in made if not is_ours(type(one))]
    own = {name for names in _CALLED.values() for name in names if hooks(others, name)}
    called = _CALLED[run]
    if (lost := sorted(own - called)) and not own & called:
        expected = f"one of {', '.join(sorted(called))} as well, or rates instead, which is called in every run"
        found = f"jobs that run {run}, where it is not called"
        raise InputError(f"rule {type(rule).__name__}", field=lost[0], found=found, expected=expected)


def saved(running: RunningRule) -> dict[str, Any]:
    """What a checkpoint keeps of a rule; InputError where it names an attribute that it does not have."""
    missing = [name for name in running.keeps if not hasattr(running, name)]
    if missing:
        source = f"rule {type(running).__name__}"
        raise InputError(source, field="keeps", found=missing[0], expected="names of attributes of the object")
    return running.state()


def hooks(rules: Iterable[RunningRule], name: str) -> list[Callable[..., Any]]:
    """The hook of that name of the rules that have it."""
    return [getattr(rule, name) for rule in rules if getattr(type(rule), name) is not getattr(RunningRule, name)]


def all_hooks(rules: list[RunningRule]) -> SimpleNamespace:
    """By name, the hooks of the rules that have them."""
    found = {name: hooks(rules, name) for name, one in vars(RunningRule).items() if callable(one)}
    return SimpleNamespace(**{name: [_checked(name, hook) for hook in some] for name, some in found.items()})


_SAID: dict[str, Callable[..., Iterable[tuple[Any, Any]]]] = {
    "rates": lambda said, decision, at, rates: [(said, at)],  # noqa: ARG005
    "train": lambda said, s, end: [] if said is None else [(said, s.at)],  # noqa: ARG005
    "begin": lambda _, s: [(s.rates, s.at), (s.begin + np.zeros(len(s.at)), s.at)],
    "shape": lambda _, s: [(s.finish, s.at)],
    "in_round": lambda _, r: [(r.steps, r.jobs), (r.finish, r.jobs)],
    **dict.fromkeys(("seen_at", "next_event", "next_change", "rounds_left"), lambda said, *_: [(said, 0.0)]),
}
"""By hook, the numbers that it says or changes, each with something that is as long."""


def _checked(name: str, hook: Any) -> Callable[..., Any]:
    """The hook; of somebody else's rule one that raises InputError where that says what is no number, or misshapen."""
    if is_ours(type(hook.__self__)) or name not in _SAID:
        return cast(Callable[..., Any], hook)

    def checked(*given: Any) -> Any:
        answer = hook(*given)
        for said, like in _SAID[name](answer, *given):
            value, shape = np.asarray(said), np.shape(like)
            least = 0.0 if shape else -np.inf
            if value.shape != shape or value.dtype.kind not in "fiu" or not (value >= least).all():
                expected = f"numbers of shape {shape}, at least {least:g}"
                raise InputError(f"rule {type(hook.__self__).__name__}", field=name, found=said, expected=expected)
        return answer

    return checked


@dataclass(frozen=True)
class Rule:
    """How something goes in a world; subclasses are frozen dataclasses, whose fields are its settings by name."""

    def __post_init__(self) -> None:
        check_fields(self, "simulator settings")

    @property
    def needs(self) -> Needs:
        """What the world has to know of jobs for it, whatever the policy needs."""
        return Need.NOTHING

    @property
    def about_jobs(self) -> Mapping[str, Any]:
        """Options of `JobTable.from_trace`: how what is known of jobs is found."""
        return {}

    def check(self, world: Rules) -> None:
        """Raise InputError where the rule does not go together with the others."""

    def in_run(self, trace: Trace, throughputs: Any, policy: Policy, world: Rules) -> Rule:  # noqa: ARG002
        """The rule as it is in a run of these jobs; raises InputError where they cannot be run under it."""
        return self

    def make_true(self, truth: Truth, trace: Trace, throughputs: Any, cluster: Cluster, world: Rules) -> None:
        """Change what is true of the jobs of a trace."""

    def start(self, world: World) -> Iterable[RunningRule]:  # noqa: ARG002
        """What the rule does in a run, as objects that keep what it remembers; those without hooks have none."""
        return ()


RuleT = TypeVar("RuleT", bound=Rule)

Rules = tuple[Rule, ...]
"""A world: what goes otherwise in it than in one where everything happens at once and costs nothing."""


def rule_of(world: Rules, kind: type[RuleT]) -> RuleT:
    """The rule of that kind in a world; one with its usual fields where there is none."""
    found = next((rule for rule in world if isinstance(rule, kind)), None)
    return kind() if found is None else found
