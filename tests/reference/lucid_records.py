"""The recorded runs of Lucid's simulator on synthetic logs of the clusters Venus and Philly, and the logs themselves.

That of Venus has its virtual clusters and numbers of arrivals; seconds, sizes, durations and workloads are drawn. That
of Philly has a week of its jobs; workloads are drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from allocator import Cluster, SimulationResult, simulate
from allocator.policies.lucid.profiling import ArrivalForecast, ProfilerSettings, ProfilingRun, profile_apart
from allocator.presets import preset
from allocator.published.lucid.policy import PublishedLucid
from throughputs import ThroughputTable, Trace
from throughputs.colocation import RetainedFractions

Data = Callable[[str], Path]

EPOCH = pd.Timestamp("2020-04-01")
"""Times in the records are seconds since then."""


@dataclass(frozen=True, eq=False)
class LucidRecord:
    """Jobs in the order of the published run, what became of them under one policy, and the forecast of arrivals.

    Attributes
    ----------
    log : the jobs, with `arrival` in seconds since the epoch and the predicted `length` in seconds.
    run : the recorded columns of the same jobs; none where only averages are on record.
    servers : servers of each virtual cluster that the profiler leaves.
    """

    log: pd.DataFrame
    run: pd.DataFrame
    servers: dict[str, int]
    forecast: ArrivalForecast | None = None
    profiler: ProfilerSettings | None = None

    @cached_property
    def profiling(self) -> ProfilingRun:
        """The run of the profiler, which is apart from that of the cluster."""
        log = self.log
        return profile_apart(log["arrival"], log["gpu_num"], log["duration"], self.profiler, self.forecast)


def venus(public_data: Data, reference_data: Data, policy: str) -> LucidRecord:
    """The log of the window and the record of `policy`."""
    log = pd.read_csv(public_data("lucid/venus_syn/cluster_full_log.csv.gz"))
    log["arrival"] = (pd.to_datetime(log["submit_time"]) - EPOCH).dt.total_seconds()
    run = pd.read_csv(reference_data("lucid/venus_syn_per_job.csv.gz"), low_memory=False)
    # In the order of the published run, whose sort does not keep the order of the log for jobs of the same second.
    run = run[run["policy"] == policy].set_index("job_id")
    log = log.set_index("job_id", drop=False).loc[run.index]
    predicted = pd.read_csv(public_data("lucid/venus_syn/Venus_Sept_ebm_weekly_updated.csv.gz"), index_col="job_id")
    length = predicted["priority"].loc[log.index]
    log["length"] = length.where(length >= 0, 1000)
    ahead = pd.read_csv(public_data("lucid/Venus_throughput_pred.csv.gz"), parse_dates=["time"])
    begins = (ahead["time"] - EPOCH).dt.total_seconds()
    forecast = ArrivalForecast(tuple(begins), tuple(ahead["pred_gpu_job"]), tuple(ahead["pred_gpu_num"]))
    servers = pd.read_csv(public_data("lucid/vc_config.csv.gz"), index_col=0)["num"]
    servers[["vc8Gr", "vcefl"]] -= 1
    return LucidRecord(log, run, {str(name): int(n) for name, n in servers.items()}, forecast)


def philly(public_data: Data) -> LucidRecord:
    """The log of a week of Philly; two of its 28 servers are the profiler's."""
    log = pd.read_csv(public_data("lucid/philly_real/cluster_full_log.csv.gz"))
    log["arrival"] = (pd.to_datetime(log["submit_time"]) - pd.Timestamp("2017-10-01")).dt.total_seconds()
    predicted = pd.read_csv(public_data("lucid/philly_real/Philly_ebm.csv.gz"), index_col="job_id")
    log["length"] = predicted["priority"].loc[log["job_id"]].to_numpy()
    profiler = ProfilerSettings(servers=2, limit_seconds=80.0, largest_gang=4, elastic=False)
    return LucidRecord(log, pd.DataFrame(), {"philly": 26}, profiler=profiler)


# Pairs with one of these were not measured, or hardly; the published run has them share without loss.
UNHARMED = ("NeuMF", "ResNet50", "BERT", "Transformer")
GPU_MEMORY = 24_576
"""Megabytes; two jobs have to stay below."""
WORKLOAD = ["model", "dataset", "batchsize", "amp"]


@dataclass(frozen=True, eq=False)
class Workloads:
    """What the measured workloads do alone and in pairs.

    Attributes
    ----------
    scores : sharing score by name.
    retained : what each keeps beside each other, the mean of two of one kind; 0 where memory does not suffice.
    of_one_type : name, and what of two of one kind the one that joins keeps and the other one.
    """

    scores: dict[str, int]
    retained: np.ndarray[Any, np.dtype[np.float64]]
    of_one_type: tuple[tuple[str, float, float], ...]


def named(frame: pd.DataFrame, suffix: str = "") -> list[str]:
    """Names of the workloads of a table."""
    rows = frame[[f"{column}{suffix}" for column in WORKLOAD]].itertuples(index=False)
    return [f"{model} on {data} (batch size {size}{', amp' if amp else ''})" for model, data, size, amp in rows]


def workloads(public_data: Data) -> Workloads:
    """The published tables."""
    alone = pd.read_csv(public_data("lucid/single_data.csv.gz"))
    pairs = pd.read_csv(public_data("lucid/colocate_info.csv.gz"))
    names = named(alone)
    position = {name: k for k, name in enumerate(names)}
    one, other = (np.array([position[name] for name in named(pairs, suffix)]) for suffix in "12")
    retained = np.full((len(names), len(names)), np.nan)
    retained[one, other], retained[other, one] = pairs["speed1"], pairs["speed2"]
    same = one == other
    retained[one[same], one[same]] = ((pairs["speed1"] + pairs["speed2"]) / 2.0)[same]
    unharmed = alone["model"].isin(UNHARMED).to_numpy()
    retained[unharmed], retained[:, unharmed] = 1.0, 1.0
    memory = alone["gmem"].to_numpy()
    fits = memory[:, None] < GPU_MEMORY - memory
    told_apart = pairs[same & ~pairs["model1"].isin(UNHARMED).to_numpy()]
    columns = zip(named(told_apart, "1"), told_apart["speed1"], told_apart["speed2"], strict=True)
    return Workloads(
        dict(zip(names, alone["label"].tolist(), strict=True)), np.where(fits, retained, 0.0), tuple(columns)
    )


@dataclass(frozen=True, eq=False)
class Replay:
    """A run of the cluster after that of the profiler.

    Attributes
    ----------
    record : of the same log.
    result : of the jobs that were not through in the profiler.
    """

    record: LucidRecord
    result: SimulationResult

    @cached_property
    def end(self) -> pd.Series[float]:
        """When each job was through, in the profiler or in the cluster, seconds since the epoch."""
        run = self.record.profiling
        end = pd.Series(run.end, index=self.record.log.index)
        end[~run.ended] = self.result.jobs["completion_time"].to_numpy()
        return end

    @cached_property
    def queue(self) -> pd.Series[float]:
        """Seconds that each job waited, as published: for the profiler, and once more since its submission."""
        run, log = self.record.profiling, self.record.log
        queue = pd.Series(run.queue_seconds, index=log.index)
        queue[~run.ended] += self.result.jobs["start_time"].to_numpy() - log["arrival"][~run.ended]
        return queue


def replay(record: LucidRecord, table: Workloads, **settings: Any) -> Replay:
    """The cluster under `lucid` as the preset has it, and other `settings` of the policy."""
    log, run = record.log, record.profiling
    left = log[~run.ended]
    servers = record.servers
    pools = tuple(servers)
    sizes = sorted(set(log["gpu_num"].tolist()))
    keys = [(name, size) for size in sizes for name in table.scores]
    fractions = np.repeat(table.retained[:, :, None], len(pools), axis=2)
    throughputs = ThroughputTable(keys, pools, np.ones((len(keys), len(pools)))).with_colocation(
        RetainedFractions(tuple(table.scores), pools, fractions), [size for size in sizes if size <= 8]
    )
    seconds = left["duration"].to_numpy(dtype=float)
    trace = Trace(
        named(left),
        left["gpu_num"].to_numpy(),
        seconds,
        left["arrival"].to_numpy(),
        duration=seconds,
        partition=left["vc"].tolist(),
        predicted_seconds=left["length"].to_numpy(dtype=float),
    )
    published = preset("lucid")
    cluster = Cluster({name: 8 * count for name, count in servers.items()}, dict.fromkeys(servers, 8))
    # As published the profiler borrows from this virtual cluster.
    loans = tuple((seconds, -change) for seconds, change in run.scaling)
    given = {"scores": table.scores, "forecast": record.forecast, "loans": loans, "lender": "vcYVn" if loans else ""}
    policy = published.make_policy("lucid", cluster, **given | settings)
    assert isinstance(policy, PublishedLucid)
    world = published.in_run("lucid", cluster).replace(
        pairs_of_one_type=table.of_one_type, guests_stay_slow=not policy.guests_recover
    )
    return Replay(record, simulate(trace, cluster, policy, throughputs, preset=world))
