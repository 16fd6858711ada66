"""The recorded runs of Lucid's simulator on a synthetic log of the cluster Venus, and the log itself.

The log has the virtual clusters and the numbers of arrivals of Venus; seconds, sizes, durations and workloads are
drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from allocator.policies.lucid.forecast import ArrivalForecast

Data = Callable[[str], Path]

EPOCH = pd.Timestamp("2020-04-01")
"""Times in the records are seconds since then."""


@dataclass(frozen=True, eq=False)
class VenusRecord:
    """Jobs in the order of the published run, what became of them under one policy, and the forecast of arrivals.

    Attributes
    ----------
    log : the jobs, with `arrival` in seconds since the epoch and the predicted `length` in seconds.
    run : the recorded columns of the same jobs.
    servers : servers of each virtual cluster.
    """

    log: pd.DataFrame
    run: pd.DataFrame
    servers: dict[str, int]
    forecast: ArrivalForecast


def venus(public_data: Data, reference_data: Data, policy: str) -> VenusRecord:
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
    return VenusRecord(log, run, {str(name): int(n) for name, n in servers.items()}, forecast)
