"""Running a sweep: what is missing is run, everything that ends is kept at once, the table is brought up to date."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from allocator.experiments.definition import Sweep
from allocator.experiments.engines import Engine, LocalEngine, RayEngine, SerialEngine, Task
from allocator.experiments.execute import Outcome
from allocator.experiments.progress import Display
from allocator.experiments.run import Materials, Run
from allocator.experiments.store import Record, Store, first_saturated
from throughputs import InputError
from throughputs.shown import counted

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

# The table is made anew at most this often while runs end.
TABLE_SECONDS = 10.0
WAIT_SECONDS = 1.0


def run(
    sweep: Sweep,
    out: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    engine: Literal["local", "serial", "ray"] = "local",
    address: str | None = None,
    retry_failed: bool = False,
    console: Console | None = None,
    names: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Run those points of a sweep that `out` does not hold yet.

    Parameters
    ----------
    sweep : what to run.
    out : folder of the sweep; made if it does not exist. Its layout is in docs/sweeps.md.
    jobs : runs at a time; None: one for each core that this process may use, or CPU of the Ray cluster.
    engine : "local" for processes of this machine, "serial" for this process, "ray" for a Ray cluster.
    address : of the Ray cluster, see `RayEngine`.
    retry_failed : run points again that have failed before.
    console : where progress goes; None: nowhere.
    names : what progress calls points, by identity; else their own labels.

    Returns
    -------
    pandas.DataFrame
        One row per run, as `load` returns it. A point whose process was killed has none: run the sweep again.

    Raises
    ------
    InputError
        A file that cannot be used, a cluster that does not fit the throughputs, an unknown engine, no Ray.
    """
    if jobs is not None and jobs < 1:
        raise InputError("jobs", found=jobs, expected="at least 1")
    if engine not in ("local", "serial", "ray"):
        raise InputError("engine", found=engine, expected="local, serial or ray")
    points = sweep.points()
    materials = Materials.of(points)
    store = Store(out)
    store.begin(sweep, points)
    records = store.records((point.key for point in points), with_jobs=sweep.keep_jobs)
    if retry_failed:
        records = {key: record for key, record in records.items() if record["status"] != "failed"}
    if names is None and len({point.cluster for point in points}) > 1:
        names = {point.key: f"{point.label} on {point.cluster}" for point in points}
    display = Display(len(points), console, names)
    display.settle(len(records))
    work = _Work(sweep, points, records, store, display)
    try:
        if work.next() is not None:
            work.run_on(_engine(engine, materials, jobs, address))
    finally:
        display.close()
        table = store.write_results(records)
    return table


def _engine(name: str, materials: Materials, jobs: int | None, address: str | None) -> Engine:
    if name == "ray":
        return RayEngine(materials, address, jobs)
    if name == "serial":
        return SerialEngine(materials)
    return LocalEngine(materials, jobs or cores())


def cores() -> int:
    """Cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


class _Work:
    """What is still to be run, smallest loads first, so that saturation is found before the runs it spares."""

    def __init__(
        self, sweep: Sweep, points: Sequence[Run], records: dict[str, Record], store: Store, display: Display
    ) -> None:
        self._sweep = sweep
        self._store = store
        self._display = display
        self._points = {point.key: point for point in points}
        self._places = [(point.key, point.series, point.place) for point in points]
        self._records = records
        self._waiting = sorted((p for p in points if p.key not in records), key=lambda p: p.place)
        self._table_made = time.monotonic()
        self._drop_skipped()

    def next(self) -> Run | None:
        """The point to run next."""
        return self._waiting[0] if self._waiting else None

    def run_on(self, engine: Engine) -> None:
        """Run everything."""
        under_way: set[str] = set()
        try:
            while self._waiting or under_way:
                while self._waiting and len(under_way) < engine.slots:
                    point = self._waiting.pop(0)
                    under_way.add(point.key)
                    self._display.begin(point)
                    engine.start(Task(point, self._sweep.keep_jobs, self._store.log_path(point)))
                for key, news in engine.wait(WAIT_SECONDS):
                    if isinstance(news, float):
                        self._display.advance(key, news)
                    else:
                        under_way.remove(key)
                        self._note(self._points[key], news)
        finally:
            engine.close()

    def _note(self, point: Run, news: Outcome | str) -> None:
        if isinstance(news, str):
            self._display.end(point, f"lost, {news}; run the sweep again to make up for it")
            return
        record = news.record
        self._store.save(news)
        self._records[point.key] = record
        self._display.end(point, _message(record))
        if record["status"] == "saturated":
            self._drop_skipped()
        if time.monotonic() - self._table_made >= TABLE_SECONDS:
            self._store.write_results(self._records)
            self._table_made = time.monotonic()

    def _drop_skipped(self) -> None:
        """Forget the points that need not run."""
        if not self._sweep.skip_saturated:
            return
        first = first_saturated(self._places, self._records)
        left = [p for p in self._waiting if p.series not in first or p.place <= first[p.series]]
        self._display.settle(len(self._waiting) - len(left))
        self._waiting = left


def _message(record: dict[str, Any]) -> str:
    figures, seconds = record["figures"], record["run_seconds"]
    if figures.get("decision_seconds") is not None:
        return f"{record['status']}, {1000 * figures['decision_seconds']:.3g} ms for a decision, in {seconds:.1f} s"
    text = record["status"] + (f", {record['status_detail']}" if record["status_detail"] else "")
    if record["status"] == "completed" and figures.get("average_jct") is not None:
        text += f", average JCT {figures['average_jct'] / 3600:.2f} h of {counted(figures['completed_jobs'], 'job')}"
        text += f", makespan {figures['makespan'] / 3600:.1f} h"
    return f"{text}, in {seconds:.1f} s"
