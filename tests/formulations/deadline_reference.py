"""ElasticFlow's planner word for word from its description, slow and plain: what the fast one is compared with.

A profile is a list of (time, free GPUs); a plan is a list of (start, GPUs, end) with the instant at which its GPUs come
back. Times are whole seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

FAR = 2**63 - 1

Profile = list[tuple[float, int]]
Spans = list[tuple[float, int, float]]


@dataclass
class Job:
    rates: dict[int, float]
    work: float
    deadline: float
    most: int


@dataclass
class Planned:
    met: bool
    spans: Spans
    end: float
    real_end: float
    charged: float

    @property
    def steps(self) -> list[tuple[float, int]]:
        """(start, GPUs), equal neighbours as one."""
        found: list[tuple[float, int]] = []
        for start, gpus, _ in self.spans:
            if not found or found[-1][1] != gpus:
                found.append((start, gpus))
        return found

    @property
    def gpu_seconds(self) -> float:
        total = sum(gpus * (end - start) for start, gpus, end in self.spans[:-1])
        start, gpus, _ = self.spans[-1]
        return total + gpus * (self.charged - start)


def align(start: float, time: float, slot: float) -> float:
    return start + math.ceil((time - start) / slot) * slot


def floor(job: Job, free: float) -> int:
    return max((g for g in job.rates if g <= min(free, job.most)), default=0)


def next_level(job: Job, gpus: int) -> int:
    return min((g for g in job.rates if gpus < g <= job.most), default=gpus)


def subtract(profile: Profile, plan: Planned, sign: int = 1) -> Profile:
    """The profile without the GPUs of a plan, equal neighbours as one."""
    inner = {time for time, _ in profile} | {start for start, _, _ in plan.spans} | {plan.end}
    result: Profile = []
    for time in sorted(inner):
        free = [count for start, count in profile if start <= time][-1]
        used = 0
        if time < plan.end:
            used = next((gpus for start, gpus, end in plan.spans if start <= time < end), plan.spans[-1][1])
        if not result or result[-1][1] != free - sign * used:
            result.append((time, free - sign * used))
    return result


class Reference:
    def __init__(self, gpus: int, slot: float) -> None:
        self.gpus, self.slot = gpus, slot

    def plan(self, job: Job, profile: Profile, now: float, first: int | None = None) -> Planned:
        """The minimum satisfactory share."""
        due = job.deadline
        border = FAR if due >= FAR else align(now, due, self.slot)
        broken = dict(profile)
        if border >= now and border not in broken:
            broken[border] = [free for time, free in profile if time <= border][-1]
        steps = sorted(broken.items())
        before = [(time, free) for time, free in steps if time < border]
        breaks = [time for time, _ in before]
        spans = []
        for k, (time, free) in enumerate(before):
            end = steps[k + 1][0]
            spans.append((time, end, free, (due if end == border else end) - time))
        work, done = job.work, []
        if first is not None and spans:
            time, end, free, length = spans[0]
            needed = math.ceil(work / job.rates[first])
            finish = time + math.ceil(needed / self.slot) * self.slot
            if finish <= end and time + needed <= due:
                return Planned(True, [(time, first, finish)], finish, time + needed, finish)
            work -= length * job.rates[first]
            done, spans = [(time, first, end)], spans[1:]
        levels = [g for g in sorted(job.rates) if g <= min(job.most, self.gpus)]
        lower = 0
        for quota in levels:
            total, start = 0.0, None
            for time, _, free, length in reversed(spans):
                gpus = quota if free >= quota else floor(job, free)
                if gpus:
                    total += length * job.rates[gpus]
                if total >= work:
                    start = time
                    break
            if start is not None:
                return self._walk(job, done, spans, work, (lower, quota, start), breaks)
            lower = quota
        return self._late(job, done, spans, [step for step in steps if step[0] >= border], work, levels[-1], breaks)

    def _walk(self, job, done, spans, work, found, breaks) -> Planned:
        lower, quota, start = found
        out = list(done)
        for k, (time, end, free, length) in enumerate(spans):
            gpus = floor(job, min(free, quota if time >= start else lower))
            out.append((time, gpus, end))
            if gpus:
                needed = math.ceil(work / job.rates[gpus])
                if needed <= length or k + 1 == len(spans):
                    return self._ended(job, out, time, needed, breaks)
                work -= length * job.rates[gpus]
        raise AssertionError

    def _late(self, job, done, spans, later, work, most, breaks) -> Planned:
        out = list(done)
        rest = list(spans)
        for k, (time, free) in enumerate(later):
            end = later[k + 1][0] if k + 1 < len(later) else math.inf
            rest.append((time, end, free, end - time))
        for time, end, free, length in rest:
            gpus = most if end == math.inf else floor(job, min(free, most))
            out.append((time, gpus, end))
            if gpus:
                needed = math.ceil(work / job.rates[gpus])
                if needed <= length:
                    return self._ended(job, out, time, needed, breaks)
                work -= length * job.rates[gpus]
        raise AssertionError

    def _ended(self, job: Job, out: Spans, time: float, needed: int, breaks: list[float]) -> Planned:
        end = time + math.ceil(needed / self.slot) * self.slot
        last = out[-1][2]
        charged = last if any(last <= brk for brk in breaks) else end
        return Planned(time + needed <= job.deadline, out, end, time + needed, charged)

    def earliest(self, job: Job, profile: Profile, now: float) -> Planned:
        """EDF's plan."""
        most, work = floor(job, self.gpus), job.work
        out: Spans = []
        for k, (time, free) in enumerate(profile):
            end = profile[k + 1][0] if k + 1 < len(profile) else math.inf
            gpus = floor(job, min(most, free))
            out.append((time, gpus, end))
            if gpus:
                needed = work / job.rates[gpus]
                if time + needed <= end:
                    real = math.ceil(time + needed)
                    aligned = align(now, real, self.slot)
                    return Planned(real <= job.deadline, out, aligned, real, aligned)
                work -= (end - time) * job.rates[gpus]
        raise AssertionError

    def in_order(self, jobs: Sequence[Job], now: float) -> tuple[list[Planned], Profile]:
        """Plans of jobs that are in the order of their deadlines."""
        profile: Profile = [(now, self.gpus)]
        plans = []
        for job in jobs:
            plans.append(self.plan(job, profile, now))
            profile = subtract(profile, plans[-1])
        return plans, profile

    def use_left_over(self, jobs: Sequence[Job], plans: list[Planned], profile: Profile, now: float) -> None:
        """Scale, as published: every score anew after every step."""
        queue = list(range(len(jobs)))
        while queue and profile[0][1] > 0:
            scores: dict[int, float] = {}
            scaled: dict[int, tuple[Planned, Profile]] = {}
            for j in queue:
                held = plans[j].spans[0][1]
                step = next_level(jobs[j], held)
                if step == held or step - held > profile[0][1]:
                    scores[j] = -math.inf
                    continue
                without = subtract(profile, plans[j], -1)
                plan = self.plan(jobs[j], without, now, step)
                scaled[j] = plan, without
                increase = (plan.gpu_seconds - plans[j].gpu_seconds) / (step - held)
                scores[j] = increase if held else math.inf
            queue.sort(key=lambda j: -scores[j])
            best = queue[0]
            if scores[best] == -math.inf:
                return
            plans[best], without = scaled[best]
            profile = subtract(without, plans[best])
