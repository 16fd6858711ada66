"""A finished run as it is written down: what explanations are read from, be it a folder or a result in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from allocator.cluster import Cluster
from allocator.explanations.columns import Decisions, Jobs, Rows
from allocator.presets import Preset, preset, preset_names
from allocator.protocol.policy import Policy
from allocator.registry import made
from allocator.results.tables import decisions_table, rates_table, shares_table
from throughputs import InputError
from throughputs.errors import did_you_mean
from throughputs.files import read_frame, read_json
from throughputs.frames import FrameReader

if TYPE_CHECKING:
    import pandas as pd

    from allocator.results.result import SimulationResult

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]

_COMMANDS = "allocator simulate, compare or record --out"


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """What happened in a run.

    Attributes
    ----------
    source : folder, or label of the run.
    policy_name, settings : as in its summary.
    cluster, jobs, rows : the GPUs, who there was, who ran.
    round_index, round_start, round_end, round_count : (R,) number, start and end in seconds, and how many equal rounds
        each stands for.
    capacity_times, capacity : (K,) and (K, M) from when on how many GPUs of each type were in use, seconds; those of
        nodes that are down or drained are not. The first time is -inf.
    decisions : on shares of time; None where the policy made none.
    given_policy : the policy itself, where it is at hand.
    """

    source: str
    policy_name: str
    settings: Mapping[str, Any]
    cluster: Cluster
    jobs: Jobs
    rows: Rows
    round_index: _Ints
    round_start: _Floats
    round_end: _Floats
    round_count: _Ints
    capacity_times: _Floats
    capacity: _Ints
    decisions: Decisions | None
    given_policy: Policy | None = None

    @classmethod
    def of(cls, run: SimulationResult | str | os.PathLike[str]) -> FinishedRun:
        """From a result, or the folder of one.

        Raises
        ------
        InputError
            A folder that is no run, or is one of an older version, with what is missing; or a result without a record.
        """
        return _read(Path(run)) if isinstance(run, str | os.PathLike) else _of_result(run)

    @cached_property
    def policy(self) -> Policy | None:
        """The policy with its settings; None where it is not known here."""
        if self.given_policy is not None:
            return self.given_policy
        try:
            named = self.settings.get("preset")
            chosen = preset(named) if named in preset_names() else Preset()
            factory = chosen.class_of_policy(self.settings.get("policy_form", self.policy_name))
            return made(factory, self.policy_name, self.settings.get("policy_settings", {}))
        except InputError:
            return None

    @property
    def ideal(self) -> bool:
        """Whether there were no rounds, only shares."""
        return bool(self.settings.get("ideal"))

    @cached_property
    def in_rounds(self) -> bool:
        """Whether jobs came and went at the ends of rounds only."""
        at = self.round_index.searchsorted(self.rows.round)
        if self.settings.get("recorded"):
            return False
        return not self.ideal and bool((self.rows.start == self.round_start[at]).all())

    @property
    def end(self) -> float:
        """When the last row ended, seconds."""
        return float(self.rows.until.max(initial=0.0))

    def job_number(self, job: object) -> int:
        """Its id: a text is what a job is called where it was logged, if jobs have such names, a number the id.

        Raises
        ------
        InputError
            No such job, or several of that name.
        """
        n, names = len(self.jobs), self.jobs.trace_id
        if isinstance(job, str) and (names != "").any():
            found = np.flatnonzero(names == job)
            if len(found) != 1:
                several = f"{job}, which are {len(found)} jobs" if len(found) else job
                expected = "one job by its trace_id, as in jobs.csv"
                raise InputError(self.source, field="job", found=several, expected=expected)
            return int(found[0])
        try:
            number = int(str(job))
        except ValueError:
            number = -1
        if 0 <= number < n:
            return number
        known = f"the id of a job, 0 to {n - 1}" if n else "a run with jobs"
        raise InputError(self.source, field="job", found=job, expected=known)


def _of_result(result: SimulationResult) -> FinishedRun:
    if result.record is None:
        raise InputError("result", found="tables without the record of a run", expected="what `simulate` returned")
    tables = None
    if result.decisions:
        tables = (decisions_table(result.decisions, result.cluster), shares_table(result.decisions, result.cluster))
    return _run(
        result.label,
        result.policy,
        result.settings,
        result.cluster,
        {
            "jobs.csv": FrameReader(result.jobs.astype({"status": object}), "jobs"),
            "rounds.parquet": FrameReader(result.rounds, "rounds"),
            "timeline.parquet": FrameReader(result.timeline, "timeline"),
            "rates.parquet": FrameReader(rates_table(result.record), "rates"),
        },
        tables,
        result.record.policy,
    )


def _read(folder: Path) -> FinishedRun:
    names = ("jobs.csv", "rounds.parquet", "timeline.parquet", "rates.parquet")
    if not (folder / "summary.json").is_file():
        raise _no_run(folder)
    summary = read_json(folder / "summary.json")
    settings = summary.get("settings") if isinstance(summary, dict) else None
    if not isinstance(settings, dict) or not isinstance(summary.get("cluster"), str):
        raise InputError(folder / "summary.json", found="no cluster or settings", expected=f"what {_COMMANDS} writes")
    missing = [name for name in names if not (folder / name).is_file()]
    missing += ["gpus_per_server in summary.json"] * ("gpus_per_server" not in summary)
    if missing:
        expected = f"{', '.join(missing)}, which older versions did not write: run it again"
        raise InputError(folder, found="a run without it", expected=expected)
    cluster = Cluster(Cluster.parse(summary["cluster"]).gpus, summary["gpus_per_server"])
    frames = {name: read_frame(folder / name) for name in names}
    decided = None
    if (folder / "decisions.parquet").is_file() and (folder / "shares.parquet").is_file():
        decided = (read_frame(folder / "decisions.parquet")[0], read_frame(folder / "shares.parquet")[0])
    readers = {name: FrameReader(frame, str(folder / name), line) for name, (frame, line) in frames.items()}
    if (folder / "capacity.parquet").is_file():
        readers["capacity.parquet"] = FrameReader(read_frame(folder / "capacity.parquet")[0], "capacity.parquet")
    return _run(str(folder), str(summary.get("policy")), settings, cluster, readers, decided)


def _no_run(folder: Path) -> InputError:
    """That a folder holds no run; if it holds some, which."""
    if not folder.is_dir():
        beside = [path.parent.name for path in folder.parent.glob("*/summary.json")]
        hint = did_you_mean(folder.name, beside)
        return InputError(folder, found="no such folder", expected=f"the folder of a run{hint}")
    inside = sorted(path.parent.name for path in folder.glob("*/summary.json"))
    which = f"one of the runs in it: {', '.join(inside)}" if inside else f"a folder that {_COMMANDS} wrote"
    return InputError(folder, found="no summary.json", expected=which)


def _run(
    source: str,
    policy: str,
    settings: Mapping[str, Any],
    cluster: Cluster,
    tables: Mapping[str, FrameReader],
    decided: tuple[pd.DataFrame, pd.DataFrame] | None,
    given: Policy | None = None,
) -> FinishedRun:
    jobs = _jobs(tables["jobs.csv"], tables["rates.parquet"], cluster)
    timeline = tables["timeline.parquet"]
    _check(timeline, ("round", "start_time", "end_time"))
    index, end = timeline.whole_numbers("round"), timeline.numbers("end_time")
    rows = _rows(tables["rounds.parquet"], jobs, cluster, index, timeline.numbers("start_time"), end)
    if settings.get("recorded"):
        rows = replace(rows, until=rows.finish)
    times, capacity = _capacity(tables.get("capacity.parquet"), cluster)
    return FinishedRun(
        source=source,
        policy_name=policy,
        settings=settings,
        cluster=cluster,
        jobs=jobs,
        rows=rows,
        round_index=index,
        round_start=timeline.numbers("start_time"),
        round_end=end,
        round_count=timeline.whole_numbers("rounds") if timeline.has("rounds") else np.ones(len(index), dtype=np.int64),
        capacity_times=times,
        capacity=capacity,
        decisions=None if decided is None else _decisions(*decided, len(jobs), cluster),
        given_policy=given,
    )


def _capacity(table: FrameReader | None, cluster: Cluster) -> tuple[_Floats, _Ints]:
    """(K,) and (K, M): from when on how many GPUs were in use; the first time is -inf."""
    if table is None or not len(table.frame):
        return np.array([-np.inf]), cluster.capacity[None, :]
    _check(table, ("time", *cluster.accelerators))
    times = np.append(-np.inf, table.numbers("time")[1:])
    return times, np.stack([table.whole_numbers(name) for name in cluster.accelerators], axis=1)


def _check(table: FrameReader, required: tuple[str, ...]) -> None:
    table.check_columns(required, tuple(map(str, table.frame.columns)))


def _jobs(table: FrameReader, rates: FrameReader, cluster: Cluster) -> Jobs:
    _check(table, ("job_type", "scale_factor", "priority_weight", "total_steps", "arrival_time", "completion_time"))
    _check(table, ("status", "restart_gpu_seconds"))
    _check(rates, cluster.accelerators)
    n = len(table.frame)
    if len(rates.frame) != n:
        raise InputError(rates.source, found=f"{len(rates.frame)} jobs", expected=f"{n}, as in {table.source}")
    nothing = np.full(n, np.nan)
    completion = table.numbers("completion_time", empty=np.nan)
    left = table.numbers("leave_time", empty=np.nan) if table.has("leave_time") else nothing
    status = table.text("status")
    gone = np.where(np.isnan(completion), left, completion)
    return Jobs(
        kind=table.text("job_type", empty=""),
        status=status,
        entity=table.text("entity", empty="") if table.has("entity") else np.full(n, "", dtype=object),
        gpus=table.whole_numbers("scale_factor"),
        weight=table.numbers("priority_weight"),
        steps=table.numbers("total_steps"),
        deadline=table.numbers("deadline", empty=np.nan) if table.has("deadline") else nothing,
        arrival=table.numbers("arrival_time"),
        completion=completion,
        gone=np.where(np.isnan(gone), np.inf, gone),
        restart_gpu_seconds=table.numbers("restart_gpu_seconds", empty=np.nan),
        rates=np.stack([rates.numbers(name) for name in cluster.accelerators], axis=1),
        fraction=table.numbers("gpu_fraction") if table.has("gpu_fraction") else np.ones(n),
        trace_id=table.text("trace_id", empty="") if table.has("trace_id") else np.full(n, "", dtype=object),
        arrival_date=table.dates("arrival_date")
        if table.has("arrival_date")
        else np.full(n, np.datetime64("NaT", "us")),
    )


def _rows(
    table: FrameReader, jobs: Jobs, cluster: Cluster, rounds: _Ints, round_start: _Floats, round_end: _Floats
) -> Rows:
    _check(table, ("round", "start_time", "end_time", "job_id", "accelerator", "gpus", "steps"))
    n = len(table.frame)
    job, start, finish = table.whole_numbers("job_id"), table.numbers("start_time"), table.numbers("end_time")
    pool = _positions(table, cluster)
    round_ = table.whole_numbers("round")
    if n and (job.min() < 0 or job.max() >= len(jobs)):
        raise InputError(table.source, field="job_id", found=int(job.max()), expected=f"below {len(jobs)}")
    at = rounds.searchsorted(round_)
    if not np.isin(round_, rounds).all():
        raise InputError(table.source, field="round", found="rounds", expected="those of timeline.parquet")
    whole = start == round_start[at]
    return Rows(
        round=round_,
        start=start,
        finish=finish,
        until=np.where(whole.all(), round_end[at], finish) if n else finish,
        job=job,
        pool=pool,
        gpus=table.whole_numbers("gpu_count") if table.has("gpu_count") else jobs.gpus[job],
        partner=table.numbers("partner", empty=-1.0).astype(np.int64) if table.has("partner") else np.full(n, -1),
        share=table.numbers("share") if table.has("share") else np.ones(n),
        fraction=jobs.fraction[job],
        steps=table.numbers("steps"),
        places=table.text("gpus", empty=""),
    )


def _positions(table: FrameReader, cluster: Cluster) -> _Ints:
    """(L,) position of the accelerator type of each row."""
    known = {name: j for j, name in enumerate(cluster.accelerators)}
    kinds = table.frame["accelerator"].astype("category")
    names = [str(name) for name in kinds.cat.categories]
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise InputError(table.source, field="accelerator", found=unknown, expected=f"one of {', '.join(known)}")
    lookup = np.array([known[name] for name in names], dtype=np.int64)
    return lookup[kinds.cat.codes.to_numpy()] if len(kinds) else np.empty(0, dtype=np.int64)


def _decisions(decisions: pd.DataFrame, shares: pd.DataFrame, n_jobs: int, cluster: Cluster) -> Decisions:
    head, rows = FrameReader(decisions, "decisions.parquet"), FrameReader(shares, "shares.parquet")
    _check(head, ("decision", "time", "status", "objective_unit", *(f"price {name}" for name in cluster.accelerators)))
    _check(rows, ("decision", "job_id", "accelerator", "share"))
    of = rows.whole_numbers("decision")
    count = len(decisions)
    job = rows.whole_numbers("job_id")
    if (np.diff(of, prepend=0, append=count) < 0).any():
        raise InputError(rows.source, field="decision", found="another order", expected="that of decisions.parquet")
    if len(job) and not 0 <= job.min() <= job.max() < n_jobs:
        raise InputError(rows.source, field="job_id", found=int(job.max()), expected=f"below {n_jobs}")
    return Decisions(
        time=head.numbers("time"),
        status=head.text("status", empty=""),
        unit=head.text("objective_unit", empty=""),
        prices=np.stack([head.numbers(f"price {name}", empty=np.nan) for name in cluster.accelerators], axis=1),
        first=of.searchsorted(np.arange(count + 1)),
        job=job,
        pool=_positions(rows, cluster),
        share=rows.numbers("share"),
        partner=rows.numbers("partner", empty=-1.0).astype(np.int64)
        if rows.has("partner")
        else np.full(len(of), -1, dtype=np.int64),
        packed=rows.has("partner"),
    )
