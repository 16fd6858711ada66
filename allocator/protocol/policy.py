"""What a policy is: what it needs to know, when it wants to be asked, and what it answers.

    state -> SharePolicy.allocate -> Allocation -> round mechanism -> Assignment for each round
    state -> PlanPolicy.plan      -> Plan       -> book of plans   -> Assignment for each step

Settings live in the policy object, data comes with the state, and nothing is kept between two calls: what a planner
must remember is a memory that the decision core holds. Needs and triggers are data of the class.

Errors in policies of other packages are shown as their authors need them: where it is in their file, and why.
"""

from __future__ import annotations

import dataclasses
import re
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Set
from difflib import get_close_matches
from enum import Flag, auto
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np

from allocator.conversion import check_fields
from allocator.protocol.allocation import Allocation
from allocator.protocol.assignment import Assignment
from allocator.protocol.plan import Plan
from allocator.protocol.views import Need as Need
from allocator.protocol.views import Needs
from formulations import Pairs
from throughputs import InputError
from throughputs.arrays import Floats, Texts
from throughputs.errors import expect

if TYPE_CHECKING:
    from allocator.protocol.state import ClusterState


class Trigger(Flag):
    """What may happen that a policy wants to be asked about. What it did not choose costs nothing.

    ARRIVAL, COMPLETION : of a job (one that was given up or rejected counts as completed).
    RATES : the throughput of a job changed, or what is believed of it.
    PRICES : the price of a GPU changed.
    CAPACITY : GPUs were lost or came back.
    TROUBLE : nothing moved, such as a round without a single step.

    >>> Trigger.PRICES in Trigger.USUAL, Trigger.ARRIVAL in Trigger.USUAL
    (False, True)
    """

    ARRIVAL = auto()
    COMPLETION = auto()
    RATES = auto()
    PRICES = auto()
    CAPACITY = auto()
    TROUBLE = auto()

    USUAL = ARRIVAL | COMPLETION | RATES | CAPACITY | TROUBLE


@dataclasses.dataclass(frozen=True)
class Hindrance:
    """What a policy has against running a job that waits.

    Attributes
    ----------
    reason : "ranked_behind" others, "queue_blocked" by a gang that lets nobody pass, or beyond a "quota".
    text : that in words, with figures.
    """

    reason: Literal["ranked_behind", "queue_blocked", "quota"]
    text: str


@dataclasses.dataclass(frozen=True, eq=False)
class Past:
    """What ran before an instant, the `clock` (seconds): L rows with the account of their job (its entity, else who
    submitted it), GPUs, and start and end (seconds, of those that run still beyond the clock).
    """

    clock: float
    account: Texts
    gpus: Floats
    start: Floats
    end: Floats


_OURS = (__name__.partition(".")[0], "formulations", "throughputs")


def is_ours(kind: type | str) -> bool:
    """Whether a class, or a module by its name, is of this package."""
    module = kind if isinstance(kind, str) else kind.__module__
    return module.partition(".")[0] in _OURS


class Policy(ABC):
    """Decides who runs; a subclass answers with shares of time (`SharePolicy`) or with plans (`PlanPolicy`).

    Attributes
    ----------
    name : the registered name; until then that which the class gives itself, else its own in lower case: ``EqualSteps``
        is ``equal_steps``.
    answers : "shares" or "plan"; set by the two subclasses.
    needs : the views that must be made ready for it (`Need`). triggers : see `Trigger`.
    period_seconds : asked at the latest after so many seconds, whatever happens; inf: not for the time alone.
    heterogeneity_aware : whether the policy distinguishes accelerator types.
    in_rounds : whether jobs come and go at the ends of rounds only. Always so under a policy that answers with shares.
    in_order_of_rows : whether jobs that stand earlier in the state go first. Ids ascend there with arrival.

    >>> import allocator
    >>> policy = allocator.get_policy("max_min_fairness_perf")
    >>> policy.answers, policy.heterogeneity_aware
    ('shares', True)
    """

    name: ClassVar[str] = ""
    answers: ClassVar[Literal["shares", "plan"]]
    needs: ClassVar[Needs] = Need.NOTHING
    triggers: ClassVar[Trigger] = Trigger.USUAL
    period_seconds: ClassVar[float] = np.inf
    heterogeneity_aware: ClassVar[bool] = True
    in_order_of_rows: ClassVar[bool] = False
    in_rounds: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not is_ours(cls) and not vars(cls).get("name"):
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    def __post_init__(self) -> None:
        # The settings of a policy that is a dataclass are of the types and in the ranges that are declared there.
        check_fields(self, f"policy {self.name}")

    def prepare(self) -> None:  # noqa: B027 - most policies have nothing to load
        """Load what the first decision would otherwise have to; called once before a run."""

    def settings(self) -> dict[str, Any]:
        """The settings by name: the fields of a policy that is a dataclass, nothing of any other."""
        own: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(self) if dataclasses.is_dataclass(self) else ()
        return {field.name: getattr(self, field.name) for field in own if field.init}

    def hindrance(self, state: ClusterState, job: int) -> Hindrance | None:  # noqa: ARG002
        """What keeps a job (its position in `state`) from running, beyond a lack of GPUs; None: nothing of its own.

        For people who ask why it waited (`allocator.explain`); decisions do not read it.
        """
        return None

    @abstractmethod
    def allocate(self, state: ClusterState) -> Allocation:
        """Shares of time for every job of `state` on every accelerator type."""


def checked_policy(policy: Policy) -> Policy:
    """The policy; InputError where it is none that the decision core can ask, or its class data are not what they are
    asked to be.
    """
    if getattr(type(policy), "answers", None) not in ("shares", "plan"):
        expected = "an object of a subclass of allocator.SharePolicy or allocator.PlanPolicy"
        if isinstance(policy, str):
            raise InputError("policy", found=policy, expected=f"{expected}, as get_policy({policy!r}) makes it")
        raise InputError("policy", found=type(policy).__name__, expected=expected)
    source, data = f"policy {policy.name}", cast(Any, policy)
    check_names(type(policy), source)
    period = data.period_seconds
    for name, good, expected in (
        ("needs", isinstance(data.needs, Set), "views joined by |, as in Need.SERVICE | MY_VIEW"),
        ("triggers", isinstance(data.triggers, Trigger), "events joined by |, as in Trigger.ARRIVAL | Trigger.PRICES"),
        ("period_seconds", isinstance(period, int | float) and period > 0, "seconds above 0"),
    ):
        expect(good, source, name, getattr(data, name), expected)
    return policy


class SharePolicy(Policy):
    """Decides on shares of time; the round mechanism turns them into rounds.

    Attributes
    ----------
    fills_idle_gpus : whether jobs may run beyond their shares on GPUs that would otherwise idle. Not so where idle GPUs
        are meant: rows of the policy's own (quotas, caps, no envy), and theorems that hold for the shares alone. Then
        nobody is ahead of his shares by more than a round (`MechanismSettings.idle_fill`).
    preemptive : whether a job may be moved once it has been given an accelerator type.
    strict_queue : whether a gang that does not fit lets nobody behind it pass.
    relative_shares : whether shares are priorities only, and may exceed the capacity together; they promise no time.

    A policy that is not `heterogeneity_aware` leaves the choice of type to the mechanism, which may draw it at random,
    as Gavel does for its baselines.

    >>> class FirstTypeOnly(SharePolicy):
    ...     name = "first_type_only"
    ...     def allocate(self, state):
    ...         shares = np.zeros(state.rates.shape)
    ...         shares[:, 0] = min(1.0, state.capacity[0] / state.scale_factors.sum())
    ...         return Allocation(self.name, state.throughputs, shares, "closed form")
    >>> import allocator
    >>> allocator.solve(FirstTypeOnly(), {"v100": [3.0, 1.0]}, "v100:1").shares.tolist()
    [[0.5], [0.5]]
    """

    answers: ClassVar[Literal["shares", "plan"]] = "shares"
    needs: ClassVar[Needs] = Need.ISOLATED_TIME
    fills_idle_gpus: ClassVar[bool] = True
    preemptive: ClassVar[bool] = True
    strict_queue: ClassVar[bool] = False
    relative_shares: ClassVar[bool] = False


class PlanPolicy(Policy):
    """Says who runs as what: planners of rounds, selections by a program, orders.

    Attributes
    ----------
    in_rounds : whether the steps of a plan are the rounds of the world. Otherwise a step ends early when something
        happens that the policy chose as a trigger.
    replan_steps : a plan is replaced after so many steps even when nothing happened; None: it is played to its end.

    >>> class OneAfterTheOther(PlanPolicy):
    ...     name = "one_after_the_other"
    ...     def plan(self, state, memory):
    ...         return Plan.until_next_event(Assignment.of([0], pool=[0], gpus=[state.scale_factors[0]]))
    >>> import allocator
    >>> allocator.solve(OneAfterTheOther(), {"v100": [3.0, 1.0]}, "v100:8").shares.tolist()
    [[1.0], [0.0]]
    """

    answers: ClassVar[Literal["shares", "plan"]] = "plan"
    in_rounds: ClassVar[bool] = False
    replan_steps: int | None = None

    def new_memory(self) -> Any:
        """An empty memory for a new run; None for a policy that remembers nothing.

        A memory has `state()`, plain data (lists, dicts, numbers, arrays), and `restore(data)`, for checkpoints; a
        dataclass that is an `allocator.protocol.plan.Memory` has both.
        """
        return None

    def memory_at(self, started: Mapping[int, float], past: Past | None = None) -> Any:  # noqa: ARG002
        """The memory of a run at an instant, as far as decisions hang on it: jobs that run `started` then (s, by id),
        and who has had what before; an empty run where nothing is given.

        None for a policy that remembers nothing, or more than can be told afterwards.
        """
        return None

    @abstractmethod
    def plan(self, state: ClusterState, memory: Any) -> Plan:
        """Who runs as what in the coming steps; `memory` is brought up to date."""

    def allocate(self, state: ClusterState) -> Allocation:
        """The plan that begins now, without a memory of earlier ones, as shares of time.

        A job of the first step has share 1, or that of the planner's own `Plan.allocation`.
        """
        plan = self.plan(state, self.new_memory())
        if plan.allocation is not None:
            return plan.allocation
        first: Assignment = plan.steps[0].assignment
        first.check(state.capacity, f"policy {self.name}")
        return self.as_shares(
            state,
            first,
            status="plan",
            pairs=_pairs_of(first) if first.shares_gpus else None,
            rejected=tuple(state.throughputs.jobs[i] for i in plan.rejected.tolist()),
        )

    def as_shares(self, state: ClusterState, rows: Assignment, **more: Any) -> Allocation:
        """The allocation that gives all their time to those who have GPUs of their own; `more`: its other fields."""
        alone = rows.take(rows.partner < 0)
        shares = np.zeros((state.n_jobs, len(state.capacity)))
        shares[alone.jobs, alone.pool] = 1.0
        return Allocation(policy=self.name, throughputs=state.throughputs, shares=shares, assignment=rows, **more)


def _pairs_of(assignment: Assignment) -> Pairs:
    """The jobs that share GPUs, all the time."""
    pair = assignment.take(assignment.firsts & (assignment.partner >= 0))
    return Pairs(pair.jobs, pair.partner, pair.pool, np.ones(len(pair)))


def fault_of(error: BaseException, *policies: type[Policy]) -> BaseException | None:
    """The error with those lines alone that lie outside this package, from the code of the policies on, or None."""
    modules = {each.__module__ for policy in policies for each in policy.__mro__ if not is_ours(each)}
    own = _without_ours(error.__traceback__, modules - {"abc", "builtins"})
    return None if own is None else error.with_traceback(own)


def told(error: BaseException, policies: Iterable[type[Policy]]) -> str:
    """The traceback as text; of an error in the code of a policy without the lines of this package."""
    return "".join(traceback.format_exception(fault_of(error, *policies) or error))


@cache
def check_names(kind: type, source: str) -> None:
    """Raise InputError where somebody else's class has a public name that is nearly one of those of our base classes,
    which it does not have: what is misspelt would do nothing. Names of fields are settings, and free.
    """
    known = {name for each in kind.__mro__ if is_ours(each) for name in vars(each) if not name.startswith("_")}
    own = {name for each in kind.__mro__ if not is_ours(each) for name in vars(each) if not name.startswith("_")}
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    for name in sorted(own - known - fields):
        swapped = [other for other in known - own if sorted(other) == sorted(name)]
        if near := swapped or get_close_matches(name, known - own, n=1, cutoff=_NEARLY):
            expected = f"{near[0]}, or a name that is not so near to it"
            raise InputError(source, field=name, found="a name that nothing asks for", expected=expected)


_NEARLY = 0.85
"""Similarity to a known name from which another one is taken for a misspelling of it."""


def _without_ours(found: TracebackType | None, modules: set[str]) -> TracebackType | None:
    """The entries that are none of ours, from the first in one of the modules on; None where there is no such entry."""
    entries: list[TracebackType] = []
    while found is not None:
        name = str(found.tb_frame.f_globals.get("__name__"))
        if name in modules or (entries and not is_ours(name)):
            entries.append(found)
        found = found.tb_next
    kept = None
    for entry in reversed(entries):
        kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept
