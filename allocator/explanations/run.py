"""A finished run as it is written down, as columns: what explanations are read from, be it a folder or a result."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.cluster import Cluster
from allocator.presets import Preset, preset, preset_names
from allocator.protocol.policy import Policy
from allocator.registry import made
from allocator.results.output import COMMANDS, EXPLAINED, read_summary, tables_of
from allocator.results.tables import OF_ROW
from throughputs import InputError
from throughputs.arrays import Dates, Flags, Floats, Ints, Rowed, Texts, Values
from throughputs.errors import did_you_mean, expect
from throughputs.files import StrPath, read_frame
from throughputs.frames import FrameReader, column, columns_of
from throughputs.trace import date_texts, dates_after

if TYPE_CHECKING:
    from allocator.results.result import SimulationResult

LEAST_SHARE = 1e-6
"""Below that a share of time is what a solver leaves of none: a second in eleven days."""

_NAN, _NAT = float("nan"), np.datetime64("NaT", "us")


@dataclass(frozen=True, eq=False, kw_only=True)
class Jobs(Rowed):
    """The N jobs, with columns of jobs.csv; a job's id is its position.

    Attributes
    ----------
    gpu_fraction : (N,) what it asks for of each of its GPUs, 1 for one that has them whole.
    account : (N,) entity that it names, in a run without entities; user : who submitted it; "" for nobody.
    predicted_seconds : (N,) as the policy was told; nan where the run does not say.
    leave_time : (N,) when it was out of the cluster without having completed, seconds; nan: never.
    restart_gpu_seconds : (N,) GPU time that its starts took; nan where it is not known.
    rates : (N, M) steps/s of its gang alone, 0 where it cannot run.
    trace_id, arrival_date : (N,) what it is called where it was logged (empty: not told), and when it arrived there,
        datetime64[us] in UTC (NaT: not told).
    """

    job_type: Texts = column("text", "")
    status: Texts = column("text")
    entity: Texts = column("text", "")
    account: Texts = column("text", "")
    user: Texts = column("text", "")
    predicted_seconds: Floats = column("number", _NAN)
    scale_factor: Ints = column("whole")
    priority_weight: Floats = column("number")
    total_steps: Floats = column("number")
    deadline: Floats = column("number", _NAN)
    arrival_time: Floats = column("number")
    completion_time: Floats = column("number", _NAN)
    leave_time: Floats = column("number", _NAN)
    restart_gpu_seconds: Floats = column("number", _NAN)
    gpu_fraction: Floats = column("number", 1.0)
    trace_id: Texts = column("text", "")
    arrival_date: Dates = column("date", _NAT)
    rates: Floats

    @cached_property
    def gone(self) -> Floats:
        """(N,) when it was out of the cluster, seconds: completed, rejected or given up; inf: never."""
        gone = np.where(np.isnan(self.completion_time), self.leave_time, self.completion_time)
        return np.where(np.isnan(gone), np.inf, gone)

    @cached_property
    def served(self) -> Flags:
        """(N,) whether any type can run the job."""
        return np.asarray((self.rates > 0).any(axis=1))

    def gpus_taken(self, job: int) -> float:
        """GPUs that a job takes when it runs: a whole number, or the fraction of one that it asks for."""
        gpus, fraction = int(self.scale_factor[job]), float(self.gpu_fraction[job])
        return gpus if fraction == 1 else gpus * fraction

    def name(self, job: int) -> str:
        """What it is called where it was logged, else its id."""
        return str(self.trace_id[job]) or str(job)

    def named(self, text: str) -> str:
        """What a policy says of jobs, whose ids are positions to it, with the names of `name`."""
        return re.sub(r"\bjob (\d+)\b", lambda found: f"job {self.name(int(found[1]))}", text)

    def date(self, job: int, time: float) -> str:
        """So many seconds on the clock of the run as a date (ISO 8601, UTC), as that of the job; empty: not told."""
        since = np.array([time - self.arrival_time[job]])
        return str(date_texts(dates_after(self.arrival_date[job : job + 1], since))[0])


@dataclass(frozen=True, eq=False)
class Rounds:
    """The R rounds in which a job ran, or the times between events, with columns of timeline.parquet."""

    round: Ints = column("whole")
    start_time: Floats = column("number")
    end_time: Floats = column("number")


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows(Rowed):
    """L rows of rounds.parquet, each a job in a round, or a lease, or without rounds a job between two events.

    Attributes
    ----------
    start_time, end_time : (L,) when it began, and when it had done its steps, seconds.
    gpus : (L,) ids of its GPUs; none where placement is off.
    gpu_count, partner : (L,) on how many GPUs, with whom (-1: alone).
    share : (L,) share of the time of its type; 1 but in a world without rounds.
    pool : (L,) position of its type.
    until : (L,) when its GPUs were free for others, seconds: in rounds with the end of the round.
    gpu_fraction : (L,) of each of its GPUs that it takes.
    """

    round: Ints = column("whole")
    start_time: Floats = column("number")
    end_time: Floats = column("number")
    job_id: Ints = column("whole")
    gpus: Texts = column("ids", ())
    steps: Floats = column("number")
    gpu_count: Ints = column("whole", 0)
    partner: Ints = column("number", -1.0)
    share: Floats = column("number", 1.0)
    pool: Ints
    until: Floats
    gpu_fraction: Floats

    def before(self, time: float, job: int | None = None) -> Rows:
        """Those that began before that time (seconds), of one job or of all."""
        began = self.start_time < time
        return self.take(np.flatnonzero(began if job is None else began & (self.job_id == job)))

    def there_at(self, time: float) -> Rows:
        """Those whose GPUs are held right after that time (seconds)."""
        return self.take(np.flatnonzero((self.start_time <= time) & (self.until > time)))

    @cached_property
    def weighted_gpus(self) -> Floats:
        """(L,) GPUs that each row keeps busy: those that two jobs share count half for each, and shares of time too."""
        return np.where(self.partner >= 0, 0.5, 1.0) * self.gpu_count * self.share * self.gpu_fraction


@dataclass(frozen=True, eq=False, kw_only=True)
class Shares(Rowed):
    """What decisions gave jobs, one after the other, with columns of shares.parquet; partner -1: none."""

    decision: Ints = column("whole")
    job_id: Ints = column("whole")
    share: Floats = column("number")
    partner: Ints = column("number", -1.0)
    pool: Ints


@dataclass(frozen=True, eq=False, kw_only=True)
class Decisions(Rowed):
    """D decisions on shares of time, with columns of decisions.parquet; none where the policy makes no such ones.

    Attributes
    ----------
    time : (D,) seconds, ascending.
    status, objective_unit : (D,) how each was proven, and the unit of its objective.
    prices : (D, M) of one more GPU of each type, in that unit; nan where there is none.
    row_prices : by name of a row that the policy adds, (D,) per unit by which its limit is loosened.
    rows : what they gave.
    packed : whether jobs could share GPUs.
    """

    time: Floats = column("number")
    status: Texts = column("text", "")
    objective_unit: Texts = column("text", "")
    prices: Floats
    row_prices: Mapping[str, Floats]
    rows: Shares
    packed: bool

    def given(self, decision: int) -> Shares:
        """What one decision gave."""
        return self.rows.take(slice(*self.rows.decision.searchsorted([decision, decision + 1])))

    def shares_of(self, decision: int, job: int) -> Floats:
        """(M,) share of time of the job on each type, alone or with another, by this decision."""
        rows = self.given(decision)
        mine = rows.job_id == job
        return np.bincount(rows.pool[mine], rows.share[mine], self.prices.shape[1]).astype(float)

    def shares(self, decision: int, active: Ints) -> Floats:
        """(n, M) shares of the active jobs (ids, ascending) alone."""
        rows = self.given(decision)
        found = np.zeros((len(active), self.prices.shape[1]))
        found[active.searchsorted(rows.job_id), rows.pool] = rows.share
        return found

    def last_before(self, time: float) -> int:
        """Number of the decision in force at `time` (seconds), -1 for none."""
        return int(self.time.searchsorted(time, "right")) - 1


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """What happened in a run.

    Attributes
    ----------
    source : folder, or label of the run.
    policy_name, settings : as in its summary.
    cluster, jobs, rows, rounds : the GPUs, who there was, who ran, and when.
    capacity_times, capacity : (K,) and (K, M) from when on how many GPUs of each type were in use, seconds; those of
        nodes that are down or drained are not. The first time is -inf.
    decisions : on shares of time.
    given_policy : the policy itself, where it is at hand.
    """

    source: str
    policy_name: str
    settings: Mapping[str, Any]
    cluster: Cluster
    jobs: Jobs
    rows: Rows
    rounds: Rounds
    capacity_times: Floats
    capacity: Ints
    decisions: Decisions
    given_policy: Policy | None = None

    @classmethod
    def of(cls, run: SimulationResult | StrPath) -> FinishedRun:
        """From a result, or the folder of one.

        Raises
        ------
        InputError
            A folder that is no run, or is one of an older version, with what is missing.
        """
        if isinstance(run, str | os.PathLike):
            return _read(Path(run))
        tables = {name: FrameReader(table, name) for name, table in tables_of(run, EXPLAINED).items()}
        return _run(run.label, run.policy, run.settings, run.cluster, tables, run.record.policy)

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
        if self.settings.get("recorded") or self.ideal:
            return False
        begun = self.rounds.start_time[self.rounds.round.searchsorted(self.rows.round)]
        return bool((self.rows.start_time == begun).all())

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
            name, _, nth = job.rpartition(":")
            found, of_name = np.flatnonzero(names == job), np.flatnonzero(names == name)
            if nth.isdecimal() and 1 <= int(nth) <= len(of_name):
                found = of_name[int(nth) - 1 :][:1]
            if len(found) != 1:
                several = f"{job}, which are {len(found)} jobs" if len(found) else job
                which = f"{job}:1 to {job}:{len(found)}, as they stand in jobs.csv" if len(found) else "as in jobs.csv"
                expected = f"one job by its trace_id, {which}{'' if len(found) else did_you_mean(job, names.tolist())}"
                raise InputError(self.source, field="job", found=several, expected=expected)
            return int(found[0])
        if (text := str(job)).isdecimal() and int(text) < n:
            return int(text)
        known = f"the id of a job, 0 to {n - 1}" if n else "a run with jobs"
        raise InputError(self.source, field="job", found=job, expected=known)


def _read(folder: Path) -> FinishedRun:
    summary = read_summary(folder)
    settings = summary.get("settings")
    if not isinstance(settings, dict) or not isinstance(summary.get("cluster"), str):
        raise InputError(folder / "summary.json", found="no cluster or settings", expected=f"what {COMMANDS} writes")
    there = [name for name in EXPLAINED if (folder / name).is_file()]
    missing = [name for name, needed in EXPLAINED.items() if needed and name not in there]
    missing += ["gpus_per_server in summary.json"] * ("gpus_per_server" not in summary)
    if missing:
        expected = f"{', '.join(missing)}, which older versions did not write: run it again"
        raise InputError(folder, found="a run without it", expected=expected)
    cluster = Cluster(Cluster.parse(summary["cluster"]).gpus, summary["gpus_per_server"])
    frames = {name: read_frame(folder / name) for name in there}
    tables = {name: FrameReader(frame, str(folder / name), line) for name, (frame, line) in frames.items()}
    return _run(str(folder), str(summary.get("policy")), settings, cluster, tables)


def _run(
    source: str,
    policy: str,
    settings: Mapping[str, Any],
    cluster: Cluster,
    tables: Mapping[str, FrameReader],
    given: Policy | None = None,
) -> FinishedRun:
    names = cluster.accelerators
    table, rates = tables["jobs.csv"], tables["rates.parquet"]
    jobs = Jobs(**_columns(Jobs, table, "completion_time", "restart_gpu_seconds"), rates=_by_type(rates, names))
    if len(jobs.rates) != len(jobs):
        raise InputError(rates.source, found=f"{len(jobs.rates)} jobs", expected=f"{len(jobs)}, as in {table.source}")
    rounds = Rounds(**_columns(Rounds, tables["timeline.parquet"]))
    times, capacity = np.array([-np.inf]), cluster.capacity[None, :]
    if (changes := tables.get("capacity.parquet")) is not None and len(changes.frame):
        times = np.append(-np.inf, changes.numbers("time")[1:])
        capacity = _by_type(changes, names).astype(np.int64)
    rows = _rows(tables["rounds.parquet"], jobs, cluster, rounds, recorded=bool(settings.get("recorded")))
    decisions = _decisions(tables.get("decisions.parquet"), tables.get("shares.parquet"), len(jobs), cluster)
    return FinishedRun(source, policy, settings, cluster, jobs, rows, rounds, times, capacity, decisions, given)


def _columns(owner: Any, table: FrameReader, *names: str) -> dict[str, Any]:
    """The declared columns of a table, which may have others; it has to have those of these names, too."""
    present = tuple(map(str, table.frame.columns))
    table.check_columns(names, present)
    return table.read(columns_of(owner), present)


def _by_type(table: FrameReader, accelerators: tuple[str, ...], prefix: str = "", empty: float | None = None) -> Floats:
    """(N, M) numbers in columns that are called as the accelerator types."""
    table.check_columns([prefix + name for name in accelerators], tuple(map(str, table.frame.columns)))
    return np.stack([table.numbers(prefix + name, empty=empty) for name in accelerators], axis=1)


def _of_jobs(owner: Any, table: FrameReader, n: int, cluster: Cluster) -> dict[str, Any]:
    """Columns of a table whose rows are of one of n jobs on a type of the cluster."""
    columns = _columns(owner, table, "accelerator")
    job, known = columns["job_id"], {name: j for j, name in enumerate(cluster.accelerators)}
    if len(job) and not 0 <= job.min() <= job.max() < n:
        raise InputError(table.source, field="job_id", found=int(job.max()), expected=f"below {n}")
    kinds = table.frame["accelerator"].astype("category")
    names = kinds.cat.categories.astype(str).tolist()
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise InputError(table.source, field="accelerator", found=unknown, expected=f"one of {', '.join(known)}")
    lookup = np.array([known[name] for name in names], dtype=np.int64)
    return columns | {"partner": columns["partner"].astype(np.int64), "pool": lookup[kinds.cat.codes.to_numpy()]}


def _rows(table: FrameReader, jobs: Jobs, cluster: Cluster, rounds: Rounds, *, recorded: bool) -> Rows:
    columns = _of_jobs(Rows, table, len(jobs), cluster)
    job, of = columns["job_id"], columns["round"]
    expect(np.isin(of, rounds.round).all(), table.source, "round", "rounds", "those of timeline.parquet")
    at = rounds.round.searchsorted(of)
    if not table.has("gpu_count"):
        columns["gpu_count"] = jobs.scale_factor[job]
    whole = not recorded and bool((columns["start_time"] == rounds.start_time[at]).all())
    until = rounds.end_time[at] if whole else columns["end_time"]
    return Rows(**columns, until=until, gpu_fraction=jobs.gpu_fraction[job])


def _decisions(head: FrameReader | None, given: FrameReader | None, n_jobs: int, cluster: Cluster) -> Decisions:
    if head is None or given is None:
        none: Values = np.empty(0, dtype=np.int64)
        rows = Shares(decision=none, job_id=none, share=none, partner=none, pool=none)
        prices = np.empty((0, len(cluster.accelerators)))
        return Decisions(
            time=none, status=none, objective_unit=none, prices=prices, row_prices={}, rows=rows, packed=False
        )
    rows = Shares(**_of_jobs(Shares, given, n_jobs, cluster))
    expect(
        not (np.diff(rows.decision, prepend=0, append=len(head.frame)) < 0).any(),
        given.source,
        "decision",
        "another order",
        "that of decisions.parquet",
    )
    prices = _by_type(head, cluster.accelerators, "price ", np.nan)
    added = [name for name in map(str, head.frame.columns) if name.startswith(OF_ROW)]
    of_rows = {name.removeprefix(OF_ROW): head.numbers(name, empty=np.nan) for name in added}
    packed = given.has("partner")
    return Decisions(**_columns(Decisions, head), prices=prices, row_prices=of_rows, rows=rows, packed=packed)
