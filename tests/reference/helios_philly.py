"""Orders on the virtual clusters of Philly, beside what Helios (Hu et al., SC 2021) printed of the same names.

    python -m tests.reference.helios_philly

makes the stored rows anew: October and November 2017 of the public log, each virtual cluster by itself, from which the
table of docs/fidelity.md is made.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from allocator import Cluster, simulate
from allocator.presets import preset
from tests.conftest import _data_root, _reference_root
from throughputs import Trace

STORED = Path(__file__).with_name("helios_philly.csv")
POLICIES = {"fifo": "fcfs", "sjf": "sjf", "srtf": "srtf", "qssf": "qssf"}
"""Orders by the names of Helios."""

_FIRST, _LAST = "2017-10-01", "2017-12-01"

# Relative errors of the predictions behind the printed figures: with which chance between which two, up or down.
_ERRORS = ((0.1, 0.0, 0.1), (0.4, 0.1, 0.5), (0.2, 0.5, 1.0), (0.2, 1.0, 10.0), (0.1, 10.0, 100.0))


@cache
def published() -> pd.DataFrame:
    """What was printed, by virtual cluster: servers, average JCT and wait of four orders, seconds."""
    return pd.read_csv(_reference_root() / "lucid/published_helios_philly.csv", index_col="vc")


@cache
def log() -> pd.DataFrame:
    """The jobs of two months, as they were submitted."""
    table = pd.read_csv(_data_root() / "field/philly_82k.csv.gz")
    submitted = pd.to_datetime(table["timestamp"])
    kept = (submitted >= _FIRST) & (submitted < _LAST) & (table["duration"] > 0)
    table = table.assign(arrival=(submitted - pd.Timestamp(_FIRST)).dt.total_seconds())[kept]
    return table.sort_values("arrival", kind="stable")


def rows_of(name: str) -> list[dict[str, float | str]]:
    """One row per order: jobs, their average length, JCT and wait in seconds, on the virtual cluster of this name."""
    part = log()[log()["cluster"] == name]
    cluster = Cluster({name: 8 * int(published().loc[name, "nodes"])}, {name: 8})
    seconds = np.maximum(np.rint(part["duration"].to_numpy()), 1.0)
    trace = Trace(
        ["job"] * len(part),
        part["num_gpus"].to_numpy(),
        seconds,
        part["arrival"].to_numpy(),
        duration=seconds,
        predicted_seconds=_predicted(seconds),
    )
    lucid, found = preset("lucid"), []
    for order, ours in POLICIES.items():
        jobs = simulate(trace, cluster, lucid.make_policy(ours, cluster), preset=lucid).jobs
        figures = {"jct": float(jobs["jct"].mean()), "wait": float(jobs["queueing_time"].mean())}
        found.append({"vc": name, "policy": order, "jobs": len(part), "length": float(seconds.mean())} | figures)
    return found


def _predicted(seconds: np.ndarray) -> np.ndarray:
    """Lengths with errors as large as those behind the printed figures, at least a second."""
    rng = np.random.default_rng(6)
    kind = rng.choice(len(_ERRORS), len(seconds), p=[chance for chance, _, _ in _ERRORS])
    low, high = (np.array(column)[kind] for column in list(zip(*_ERRORS, strict=True))[1:])
    error = rng.choice([-1.0, 1.0], len(seconds)) * rng.uniform(low, high)
    return np.maximum(np.rint(seconds * (1.0 + error)), 1.0)


def stored() -> pd.DataFrame:
    """The rows of the last run."""
    return pd.read_csv(STORED)


def table() -> str:
    """By virtual cluster: length of the jobs and average JCT, printed and here."""
    lines = [
        "| virtual cluster | GPUs | jobs here | average length, s: implied / here | FIFO JCT, s: printed / here "
        "| SJF, s | SRTF, s | QSSF, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    ours = stored().pivot(index="vc", columns="policy")
    jobs = ours["jobs"]["fifo"]
    everything = {
        name: {order: float((ours[name][order] * jobs).sum() / jobs.sum()) for order in POLICIES}
        for name in ("length", "jct")
    }
    for name, printed in published().iterrows():
        whole = name == "all"
        here = everything if whole else {what: dict(ours[what].loc[name]) for what in ("length", "jct")}
        implied = printed["jct_fifo"] - printed["queue_fifo"]
        pairs = [(printed[f"jct_{order}"], here["jct"][order]) for order in POLICIES]
        cells = [f"{one:,.0f} / {other:,.0f}" for one, other in [(implied, here["length"]["fifo"]), *pairs]]
        count = int(jobs.sum() if whole else jobs[name])
        lines.append(f"| {name} | {8 * int(printed['nodes']):,} | {count:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    every = [row for name in published().index if name != "all" for row in rows_of(name)]
    pd.DataFrame(every).to_csv(STORED, index=False, float_format="%.3f", lineterminator="\n")
