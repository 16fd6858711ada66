"""``allocator admit``: would one more job meet its deadline?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from allocator.admission import Admission, AdmissionTest
from allocator.api import load_speeds
from allocator.cli.options.groups import option
from allocator.cli.options.shared import (
    AcceleratorOption,
    JsonOption,
    ServersOption,
    TableOption,
    TimeUnitOption,
    console,
    print_json,
    warn,
)
from allocator.cli.options.values import (
    make_accelerator,
    make_cluster,
    read_jobs,
    told_of_throughputs,
)
from allocator.cli.service.admission import present_jobs
from allocator.cli.service.options import state_folder
from allocator.conversion import AtLeastOne
from allocator.experiments.workloads import only_table
from allocator.policies.deadlines.elasticflow import ElasticFlow
from allocator.policies.deadlines.promises import NO_REPAIR, Repair
from allocator.presets.preset import DEFAULT
from allocator.simulator.rules.base import rule_of
from allocator.simulator.rules.starts import StartsTakeTime
from throughputs import InputError, Trace
from throughputs.limits import LARGEST_WHOLE_NUMBER, Range

HOUR = 3600.0


def admit_command(
    job_type: str,
    steps: Annotated[float, Range(0.0, LARGEST_WHOLE_NUMBER, above=True)],
    cluster: str | None = None,
    state: Annotated[
        Path | None,
        option(
            "State folder of a running service: its GPUs, jobs, throughputs and clock, and the slots of its "
            "policy, where nothing else is said.",
            "DIR",
            parser=state_folder,
        ),
    ] = None,
    deadline: float | None = None,
    within: float | None = None,
    trace: Path | None = None,
    clock: float | None = None,
    most_gpus: AtLeastOne | None = None,
    slot: float | None = None,
    restart: float | None = None,
    admission: str | None = None,
    throughputs: TableOption = None,
    accelerator: AcceleratorOption = None,
    gpus_per_server: ServersOption = None,
    time_unit: TimeUnitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Would one more job meet its deadline, and all others theirs; with what plan?

    If not: the earliest deadline that could be promised, and the GPUs of a cluster that could promise the one asked
    for. Answered as under the policy elasticflow, by minimum satisfactory shares. Ends with exit code 0 either way.

    Parameters
    ----------
    job_type : NAME
        Job type of the newcomer, as in the throughput table.
    steps
        Training steps that it has to do.
    cluster : TYPE:COUNT|FILE
        GPUs of one type, or a CSV file that describes them.
    deadline : SECONDS
        When it should be through, on the clock.
    within : SECONDS
        The same, counted from now.
    trace : FILE
        The jobs there are, with the steps left to them; none if omitted.
    clock : SECONDS
        Now, on the clock of the trace; its last arrival if omitted.
    most_gpus : --max-gpus COUNT
        GPUs that the newcomer is given at most.
    slot : SECONDS
        GPUs come back at the ends of slots of this length.
    restart : SECONDS
        What a start on other GPUs takes; that of simulations, or seen by the service, if omitted.
    admission
        As that setting of the policy elasticflow: each, or repair, which also tries other orders; that of the
        service's policy, or each, if omitted.
    """
    there: dict[str, Any]
    if state is None:
        kind = make_accelerator(accelerator, throughputs, () if cluster is None else (cluster,))
        if cluster is None:
            raise InputError("--cluster, --state", found="neither", expected="one of the two")
        gpus = make_cluster(cluster, gpus_per_server, kind)
        jobs = Trace([], [], [], []) if trace is None else read_jobs(trace, time_unit_seconds=time_unit)
        last = float(jobs.arrival_time.max(initial=0.0))
        now = last if clock is None else clock
        if len(jobs) and now < last:
            expected = f"at least the last arrival, {last:g} s: all jobs of the trace are there"
            raise InputError("--clock", found=now, expected=expected)
        table = only_table(load_speeds(throughputs, accelerator=kind), "--throughputs", str(throughputs))
        if trace is not None:
            warn(told_of_throughputs(trace, jobs, table, gpus, given=throughputs is not None, elastic=True))
        there, policy = {"jobs": jobs, "cluster": gpus, "throughputs": table, "clock": now}, ""
        there["restart_seconds"] = rule_of(DEFAULT.world, StartsTakeTime).dearest(gpus.total_gpus)
    else:
        for name, given in (("--cluster", cluster), ("--trace", trace), ("--clock", clock)):
            if given is not None:
                raise InputError(name, found=given, expected="nothing with --state: the service knows")
        there, policy = present_jobs(state, throughputs)
    repair = None if admission is None else _repair(admission)
    own = {"slot_seconds": slot, "restart_seconds": restart, "repair": repair}
    test = AdmissionTest(**there | {name: value for name, value in own.items() if value is not None})
    now, jobs = test.clock, test.jobs
    newcomer = _newcomer(job_type, steps, _deadline(deadline, within, now), now)
    answer = test.ask(newcomer, most_gpus)
    if as_json:
        print_json(_as_json(answer))
        return
    names = map(str, jobs.job_type if policy else range(len(jobs)))
    lines = _lines(answer, now, jobs, list(names))
    if cost := test.filling.restart_seconds:
        lines.append(f"A start on other GPUs is taken to need {cost:g} s (--restart).")
    if policy:
        lines.append(f"By minimum satisfactory shares, as under elasticflow; the service decides by {policy}.")
    for line in lines:
        console().print(line, soft_wrap=True, highlight=False)


def _repair(admission: str) -> Repair:
    if admission not in ("each", "repair"):
        raise InputError("--admission", found=admission, expected="each or repair")
    return ElasticFlow(admission="repair").repair if admission == "repair" else NO_REPAIR


def _deadline(deadline: float | None, within: float | None, now: float) -> float:
    if (deadline is None) == (within is None):
        found = "neither" if deadline is None else "both"
        raise InputError("--deadline, --within", found=found, expected="one of the two")
    due = deadline if within is None else now + within
    assert due is not None
    if not due > now:
        if within is not None:
            raise InputError("--within", found=within, expected="seconds, above 0")
        raise InputError("--deadline", found=due, expected=f"a time after now, {now:g} s")
    return due


def _newcomer(job_type: str, steps: float, deadline: float, now: float) -> Trace:
    """A trace of the one job."""
    return Trace([job_type], [1], [steps], [max(now, 0.0)], deadline=[deadline], source="newcomer")


def _as_json(answer: Admission) -> dict[str, Any]:
    plan = [{"start": start, "gpus": gpus} for start, gpus in answer.plan]
    return asdict(answer) | {"plan": plan, "late": list(answer.late)}


def _lines(answer: Admission, now: float, jobs: Trace, names: Sequence[str]) -> list[str]:
    """The answer in words; times from now, jobs by `names`."""
    met = "Yes: this deadline can be met" if answer.admitted else "No: this deadline cannot be met"
    lines = [f"{met}: {_span(answer.deadline - now)} from now, beside {len(jobs)} job{'s' * (len(jobs) != 1)}."]
    if answer.earliest_deadline is not None:
        soonest = _span(answer.earliest_deadline - now)
        lines.append(f"A deadline in {soonest} (at {answer.earliest_deadline:.0f} s) could be promised.")
    if not answer.admitted:
        more = "No number of GPUs would do." if answer.fewest_gpus is None else f"{answer.fewest_gpus} GPUs would do."
        lines.append(more)
    ends = [*(start for start, _ in answer.plan[1:]), answer.end]
    lines.append("Plan:" if answer.admitted else "Plan for that deadline:")
    for (start, gpus), end in zip(answer.plan, ends, strict=True):
        lines.append(f"  from {_span(start - now)} to {_span(end - now)}: {gpus} GPU{'s' * (gpus != 1)}")
    lines.append(f"  through after {_span(answer.end - now)}, {answer.gpu_hours:.2f} GPU hours")
    if answer.late:
        labels = ", ".join(names[i] for i in answer.late)
        lines.append(f"Jobs that cannot meet their own deadlines and come behind all others: {labels}.")
    if past := int((jobs.deadline < now).sum()):
        are = f"Deadlines of {past} jobs are" if past > 1 else "The deadline of 1 job is"
        lines.append(f"{are} past; jobs that have ended do not belong in the trace, and of the others only steps left.")
    return lines


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < HOUR else f"{seconds / HOUR:.2f} h"
