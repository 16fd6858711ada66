"""The lease program: which deadlines are met, and in which leases each job runs. Source: Chronus, SoCC'21.

Time is cut into leases of one length, slot 0 first. A job that is promised a deadline needs so many of the leases
before it; all its GPUs work in each of them, and the leases need not follow each other.

    max  sum_r v_r S_r  +  sigma w sum_j g_j x_j0
    s.t. x_jt <= sum_{r of j, D_r > t} S_r     every job j and slot t
         sum_t x_jt = n_j sum_{r of j} S_r     every job
         sum_{r of j} S_r = 1                  every job
         sum_j g_j x_jt <= C_t                 every slot
         x, S binary

A job may have several deadlines with values, its options r. The published statement has one row of slots for each
option; with the options of a job merged into one row, as here, the same schedules and choices are feasible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from formulations.arguments import figures
from throughputs import InputError
from throughputs.arrays import Flags, Floats, Ints

SIGNS: Final = {"minimize": -1.0, "maximize": 1.0, "random": 0.0}
"""sigma: what the first lease's GPUs count, by name of the objective."""


@dataclass(frozen=True, eq=False)
class LeaseProgram:
    """J jobs, R options and T slots.

    Attributes
    ----------
    gpus : (J,) GPUs g of each job, at least 1.
    needed : (J,) leases n that each job needs, at least 1.
    job : (R,) whose option each is; the options of a job follow each other, and jobs ascend.
    deadline : (R,) slots D of each option: the job's leases are among the first D.
    value : (R,) v of each option.
    capacity : (T,) GPUs of each slot.
    objective : "minimize" or "maximize": value first, then few or many GPUs in slot 0; "random": the value of the first
        option alone, which leaves all other choices open (so in the published code).

    The weight w of a GPU of slot 0 is 1 / max_t C_t, as published. All GPUs of slot 0 together then weigh at most 1:
    value comes first where sums of values that differ do so by more than that.

    Raises
    ------
    InputError
        A column of the wrong length, or an impossible number.
    """

    gpus: Ints
    needed: Ints
    job: Ints
    deadline: Ints
    value: Floats
    capacity: Ints
    objective: str = "minimize"

    def __post_init__(self) -> None:
        J, R = len(self.gpus), len(self.job)
        for name, length, numbers in (
            ("gpus", J, "numbers above 0"),
            ("needed", J, "numbers above 0"),
            ("deadline", R, "numbers"),
            ("value", R, "numbers of at least 0"),
            ("capacity", None, "numbers of at least 0"),
        ):
            figures("lease program", name, getattr(self, name), (length,), numbers)
        if self.objective not in SIGNS:
            raise InputError("lease program", field="objective", found=self.objective, expected=", ".join(SIGNS))
        if not np.array_equal(np.unique(self.job), np.arange(J)) or (np.diff(self.job) < 0).any():
            found = self.job.tolist()
            raise InputError("lease program", field="job", found=found, expected="jobs in order, all of them")

    @property
    def n_jobs(self) -> int:
        """J."""
        return len(self.gpus)

    @property
    def n_slots(self) -> int:
        """T."""
        return len(self.capacity)

    @property
    def weight(self) -> float:
        """sigma w: what one GPU of slot 0 counts."""
        return SIGNS[self.objective] / max(float(self.capacity.max(initial=1)), 1.0)

    @property
    def option_values(self) -> Floats:
        """(R,) what each option counts in the objective."""
        if self.objective != "random":
            return self.value
        return np.where(np.arange(len(self.value)) == 0, self.value, 0.0)

    @property
    def keep_bonus(self) -> float:
        """What keeping a job counts where jobs may be dropped, so that the most are kept."""
        return float(self.option_values.max(initial=0.0)) * self.n_jobs + 2.0

    @property
    def possible(self) -> Flags:
        """(R,) options whose deadline leaves as many slots as the job needs, with room for its GPUs alone."""
        room = self.capacity >= self.gpus[self.job][:, None]
        before = np.arange(self.n_slots) < self.deadline[:, None]
        return np.asarray((room & before).sum(axis=1) >= self.needed[self.job])

    def worth(self, option: Ints, schedule: Flags) -> tuple[float, int]:
        """Value of the options (J,) (-1: none) and GPUs of slot 0 of a schedule (J, T)."""
        chosen = option[option >= 0]
        return float(self.option_values[chosen].sum()), int(self.gpus[schedule[:, :1].any(axis=1)].sum())

    def by_urgency(self, option: Ints) -> Ints:
        """(J,) jobs with options (J,), the most urgent first.

        By least slack (deadline minus leases needed), then more GPUs, then more leases needed, then the order of jobs.
        """
        slack = np.where(option >= 0, self.deadline[np.maximum(option, 0)], self.n_slots) - self.needed
        return np.lexsort((-self.needed, -self.gpus, slack))

    def check(self, option: Ints, schedule: Flags) -> str:
        """What is wrong with a choice and a schedule; empty for nothing."""
        taken = option >= 0
        if (self.job[option[taken]] != np.flatnonzero(taken)).any():
            return "an option of another job"
        if (schedule.sum(axis=1) != np.where(taken, self.needed, 0)).any():
            return "a job without as many leases as it needs"
        last = np.where(taken, self.deadline[np.maximum(option, 0)], 0)
        if (schedule & (np.arange(self.n_slots) >= last[:, None])).any():
            return "a lease after the deadline"
        if ((schedule * self.gpus[:, None]).sum(axis=0) > self.capacity).any():
            return "more GPUs than a slot has"
        return ""
