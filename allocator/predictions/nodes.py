"""How many nodes may sleep: idle ones are put to sleep where demand has fallen and is forecast to fall further.

Source: Q. Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters",
SC 2021 (Helios), its cluster energy saving service.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from allocator.conversion import AtLeastOne, NotNegativeWhole, check_fields
from allocator.fractions import exact_sums
from throughputs.arrays import Flags, Floats, Ints
from throughputs.errors import InputError
from throughputs.predict.durations import symmetric_error
from throughputs.predict.series import forecast

_DAY = 86400.0
_HOUR = 3600.0


@dataclass(frozen=True)
class SleepSettings:
    """When idle nodes are put to sleep; the defaults are those published for Venus.

    Attributes
    ----------
    buffer : idle nodes that stay awake.
    history : bins before the present one over which past use is averaged.
    fall : nodes by which present use must lie below that average.
    future : bins after the present one whose mean use is forecast, and twice as many for a second look.
    expected_fall : nodes by which that forecast must lie below present use.
    least : nodes that must be able to sleep, or none is sent.
    hold : bins after nodes were woken in which none is put to sleep.
    start : first bins, in which just the buffer stays awake beside the nodes in use.

    Raises
    ------
    InputError
        A number of bins or nodes that is not whole or below 0; `history`, `future` and `start` are at least 1.
    """

    buffer: NotNegativeWhole = 5
    history: AtLeastOne = 3
    fall: float = 0.5
    future: AtLeastOne = 18
    expected_fall: float = 1.0
    least: NotNegativeWhole = 2
    hold: NotNegativeWhole = 12
    start: AtLeastOne = 6

    def __post_init__(self) -> None:
        check_fields(self, "settings of sleep")


PUBLISHED_SLEEP = {
    "Venus": SleepSettings(),
    "Earth": SleepSettings(history=6, expected_fall=1.0, fall=1.0, least=5),
    "Saturn": SleepSettings(history=6, fall=1.0, least=1),
    "Uranus": SleepSettings(history=3, fall=1.0, least=1, buffer=7),
    "Philly": SleepSettings(history=2, fall=0.1, expected_fall=0.0, least=1, buffer=20, future=30, hold=10),
}
"""Settings by cluster, as in the public code of Helios."""


@dataclass(frozen=True, eq=False)
class NodeSleep:
    """Nodes awake, bin by bin.

    Attributes
    ----------
    awake, used : (B,) nodes; nobody is awake less than is used.
    total : nodes of the cluster.
    soon : (B,) forecasts of mean use over the next `future` bins, nodes.
    future : bins, as in the settings.
    bin_seconds : length of a bin.
    """

    awake: Ints
    used: Ints
    total: int
    soon: Floats
    future: int
    bin_seconds: float

    def summary(self) -> dict[str, Any]:
        """Figures of the whole time.

        Returns
        -------
        dict with ``days``; ``daily_changes`` of the number of nodes awake, and those upwards, ``daily_wakes``, in which
        jobs wait until nodes are up; ``mean_change``, nodes; ``nodes_asleep``, mean, and ``node_hours_asleep``;
        ``utilization_before`` and ``utilization_after``: nodes in use over all nodes, and over those awake;
        ``forecast_smape``: symmetric mean absolute percentage error of the forecast, from 0 to 200. nan of nothing.
        """
        n = len(self.awake)
        days = n * self.bin_seconds / _DAY
        change = np.diff(self.awake)
        changes, wakes = int(np.count_nonzero(change)), int(np.count_nonzero(change > 0))
        asleep = float((self.total - self.awake).sum())
        used, awake = float(self.used.sum()), float(self.awake.sum())
        true = _means_ahead(self.used.astype(np.float64), self.future)
        known = ~np.isnan(self.soon + true)
        return {
            "days": days,
            "daily_changes": changes / days if n else np.nan,
            "daily_wakes": wakes / days if n else np.nan,
            "mean_change": float(np.abs(change).sum()) / changes if changes else np.nan,
            "nodes_asleep": asleep / n if n else np.nan,
            "node_hours_asleep": asleep * self.bin_seconds / _HOUR,
            "utilization_before": used / (self.total * n) if n and self.total else np.nan,
            "utilization_after": used / awake if awake else np.nan,
            "forecast_smape": symmetric_error(self.soon[known], true[known]),
        }


def put_to_sleep(
    used: Ints,
    total: int,
    soon: Floats,
    later: Floats,
    settings: SleepSettings | None = None,
    *,
    bin_seconds: float = 600.0,
) -> NodeSleep:
    """Decide at each bin how many nodes stay awake, from those in use then and from forecasts made then.

    - Where more nodes are in use than were awake, these and the `buffer` are woken, and none sleeps for `hold` bins.
    - All but those in use and the `buffer` are put to sleep if use has fallen (by `fall` against its mean over
      `history` bins) and is forecast to fall (by `expected_fall`) and not to rise later, and at least `least` nodes go.
    - Otherwise, and where a forecast is nan, the number stays.

    So at each bin at least the nodes in use are awake. In the first `start` bins these and the buffer are.

    Parameters
    ----------
    used : (B,) most nodes in use in each bin, those that waiting jobs need among them.
    total : nodes of the cluster.
    soon, later : (B,) forecasts, made at each bin, of mean use over the next `future` bins and over twice as many, as
        `use_ahead` makes them.
    settings : as published for Venus if omitted.
    bin_seconds : length of a bin.

    Raises
    ------
    InputError
        More nodes in use than there are, or fewer than 0, or a forecast of another length.

    >>> used = np.array([8, 8, 8, 8, 4, 2, 2, 2, 2, 2, 6])
    >>> soon, later = np.full((2, 11), 2.0)
    >>> put_to_sleep(used, 10, soon, later, SleepSettings(buffer=1, start=3)).awake.tolist()
    [9, 9, 9, 9, 5, 5, 5, 5, 5, 5, 7]
    """
    settings = SleepSettings() if settings is None else settings
    used = np.asarray(used)
    bad = (used < 0) | (used > total) | (used != np.rint(used))
    if bad.any():
        row = int(np.argmax(bad))
        expected = f"a number of nodes, at most {total}"
        raise InputError("used", line=row + 1, found=used[row : row + 1].tolist()[0], expected=expected)
    for name, given in (("soon", soon), ("later", later)):
        if len(given) != len(used):
            raise InputError(name, found=len(given), expected=f"{len(used)} bins")
    nodes = used.astype(np.int64)
    level = nodes.astype(np.float64)
    # comparisons with nan are false
    before = _windows(np.concatenate([np.full(settings.history, np.nan), level]), settings.history)[:-1]
    fallen = before - level >= settings.fall
    may = fallen & (level - soon >= settings.expected_fall) & (soon >= later)
    awake = np.empty(len(nodes), dtype=np.int64)
    now, held = 0, 0
    for place, (need, allowed) in enumerate(zip(nodes.tolist(), may.tolist(), strict=True)):
        kept = min(need + settings.buffer, total)
        if place < settings.start:
            now = kept
        elif now < need:
            now, held = kept, place + settings.hold
        elif allowed and place >= held and now - kept >= max(settings.least, 1):
            now = kept
        awake[place] = now
    return NodeSleep(awake, nodes, total, np.asarray(soon, dtype=np.float64), settings.future, bin_seconds)


def use_ahead(
    used: Ints,
    bins: int,
    *,
    first: int = 0,
    model: str = "fast",
    bin_seconds: float = 600.0,
    refit_bins: int = 1008,
    offset: float = 0.0,
) -> Floats:
    """Forecasts, made at each bin from what has passed, of mean use over the next `bins`.

    Parameters
    ----------
    used : (B,) nodes in use. first : first bin at which a forecast is made.
    model, bin_seconds, refit_bins, offset : as for `throughputs.predict.forecast`, which raises what is wrong.

    Returns
    -------
    (B,) nodes; nan before `first`, and in the last `bins`, whose future nobody asks for.
    """
    level = np.asarray(used, dtype=np.float64)
    # before the first bin use is taken to have been as in it
    means = _windows(np.concatenate([np.repeat(level[:1], bins - 1), level]), bins) if len(level) else level
    told = forecast(
        {"in use": level, "mean": means},
        "mean",
        ahead=bins,
        first=first + bins,
        model=model,
        bin_seconds=bin_seconds,
        refit_bins=refit_bins,
        offset=offset,
        since="in use",
    )
    return np.concatenate([told[bins:], np.full(min(bins, len(told)), np.nan)])


def known_ahead(used: Ints, bins: int) -> Floats:
    """What `use_ahead` would say if it knew the future: (B,) mean use over the next `bins`; nan in the last of them."""
    level = np.asarray(used, dtype=np.float64)
    return _means_ahead(level, bins) if len(level) else level


def jobs_that_wait(start: Floats, end: Floats, gpus: Ints | Floats, gpus_per_node: int, sleep: NodeSleep) -> Flags:
    """(N,) jobs at whose start more nodes are in use than were awake: they wait until nodes have been woken.

    Parameters
    ----------
    start, end, gpus, gpus_per_node : as for `nodes_in_use`, second 0 being where the first bin of `sleep` begins; jobs
        that begin before it or after its last bin do not count.
    sleep : nodes awake; those of the bin before are awake when a bin begins.
    """
    if not len(start):
        return np.zeros(0, dtype=np.bool_)
    times, gpus_held = _held(start, end, gpus)
    held = np.ceil(gpus_held[np.searchsorted(times, start)] / gpus_per_node)
    at = np.floor(start / sleep.bin_seconds).astype(np.int64)
    inside = (at >= 1) & (at < len(sleep.awake))
    before = sleep.awake[np.clip(at - 1, 0, max(len(sleep.awake) - 1, 0))]
    return np.asarray(inside & (held > before))


def _means_ahead(values: Floats, bins: int) -> Floats:
    """(B,) means over so many bins after each; nan where there are not so many."""
    return _windows(np.concatenate([values, np.full(bins, np.nan)]), bins)[1:]


def _windows(values: Floats, bins: int) -> Floats:
    return np.asarray(np.lib.stride_tricks.sliding_window_view(values, bins).sum(axis=1) / bins)


def _held(start: Floats, end: Floats, gpus: Ints | Floats) -> tuple[Floats, Floats]:
    """Times at which jobs begin or end, ascending, and the GPUs held from each on."""
    times, which = np.unique(np.concatenate([start, end]), return_inverse=True)
    change = np.bincount(which, weights=np.concatenate([gpus, -gpus]).astype(np.float64), minlength=len(times))
    return times, exact_sums(np.cumsum(change))


def nodes_in_use(
    start: Floats, end: Floats, gpus: Ints | Floats, gpus_per_node: int, *, bin_seconds: float = 600.0
) -> Ints:
    """Most nodes in use in each bin from second 0 to the last end, where jobs are packed on as few as hold their GPUs.

    Parameters
    ----------
    start, end : (N,) seconds at which jobs began and ended to hold GPUs.
    gpus : (N,) how many; a part of one where a job shares it, which counts as such. gpus_per_node : GPUs of a node.
    bin_seconds : length of a bin.

    Returns
    -------
    (B,) nodes.

    Raises
    ------
    InputError
        An end before its start, a start before second 0, or no GPUs on a node.

    >>> nodes_in_use(np.array([0.0, 500.0]), np.array([700.0, 900.0]), np.array([4, 8]), 8).tolist()
    [2, 2]
    """
    if gpus_per_node < 1:
        raise InputError("gpus_per_node", found=gpus_per_node, expected="at least 1")
    bad = ~((start >= 0) & (end >= start) & np.isfinite(end))
    if bad.any():
        row = int(np.argmax(bad))
        found = f"from {start[row]:g} s to {end[row]:g} s"
        raise InputError("jobs", line=row + 1, found=found, expected="a start from second 0 on and an end after it")
    if not len(start):
        return np.zeros(0, dtype=np.int64)
    times, held = _held(start, end, gpus)
    bins = np.floor(times / bin_seconds).astype(np.int64)
    begins = np.arange(int(bins[-1]) + 1) * bin_seconds
    last = np.searchsorted(times, begins, side="right") - 1
    most = np.where(last >= 0, held[last], 0.0)
    np.maximum.at(most, bins, held)
    return np.asarray(np.ceil(most / gpus_per_node), dtype=np.int64)
