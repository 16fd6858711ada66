"""The layouts of published job logs: which columns tell them, what each column holds, and what must be reckoned first.

A log of one of these is told by its header, and read without options; its dates and figures mean what its publisher
says. What a log of one's own has in its columns is guessed from their names instead (`logs.columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from throughputs.traces.logs.cells import numbers

Cells = dict[str, NDArray[np.object_]]
"""(N,) text of each column, by name."""

_CHINA = "Asia/Shanghai"

PACIFIC = "America/Los_Angeles"
"""Zone of the dates of Philly, as its records of utilisation name it."""


@dataclass(frozen=True)
class Layout:
    """How a published log is read.

    Attributes
    ----------
    name : of the format, as in ``--format``.
    system : whose log it is, for messages.
    told_by : columns that the header of such a log has, all of them; empty where a header does not tell it.
    alone : whether a header with other columns beside these is that of another log.
    columns : which column holds each field of `throughputs.traces.logs.columns.FIELDS`.
    zone : of dates that name none; None: UTC, or there are none.
    reckoned : columns that follow from others, in the order in which they are made; by name the columns that each is
        made of, and how, from the text of these.
    notes : what a user should know of any such log, in sentences.
    """

    name: str
    system: str
    told_by: frozenset[str]
    columns: Mapping[str, str]
    alone: bool = False
    zone: str | None = None
    reckoned: Mapping[str, tuple[Sequence[str], Callable[..., NDArray[np.float64]]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def completed(self, cells: Mapping[str, NDArray[np.object_]]) -> Cells:
        """The columns of a log with those that are reckoned; a figure that does not come out is an empty cell."""
        whole = dict(cells)
        for name, (of, reckon) in self.reckoned.items():
            figures = reckon(*(whole[column] for column in of))
            text = [repr(value).removesuffix(".0") if value == value else "" for value in figures.tolist()]
            whole[name] = np.array(text, dtype=object)
        return whole

    @property
    def used(self) -> frozenset[str]:
        """Columns that something is made of."""
        return frozenset(self.columns.values()).union(*(of for of, _ in self.reckoned.values()))


def layout_of_header(header: Sequence[str]) -> Layout | None:
    """The layout that these columns tell; None where they tell none."""
    names = set(header)
    for layout in LAYOUTS.values():
        if layout.told_by and (layout.told_by == names if layout.alone else layout.told_by <= names):
            return layout
    return None


def layout_of(kind: str) -> Layout | None:
    """The layout of a log of that kind; None where its columns are told by their names."""
    return LAYOUTS.get(kind)


def _difference(end: NDArray[np.object_], start: NDArray[np.object_]) -> NDArray[np.float64]:
    return np.round(numbers(end) - numbers(start), 6)


def _product(one: NDArray[np.object_], other: NDArray[np.object_]) -> NDArray[np.float64]:
    """Of workers with a part of a GPU, one GPU for each."""
    return np.maximum(np.ceil(numbers(one)), np.sign(numbers(one))) * numbers(other)


def _part(gpus: NDArray[np.object_]) -> NDArray[np.float64]:
    """Share of each GPU: below one GPU that figure, else whole GPUs."""
    asked = numbers(gpus)
    return np.where((asked > 0) & (asked < 1), asked, 1.0)


def _milli(gpus: NDArray[np.object_], milli: NDArray[np.object_]) -> NDArray[np.float64]:
    """Share of the GPU of a pod that has one: ``gpu_milli`` counts thousandths."""
    share = numbers(milli) / 1000
    return np.where((numbers(gpus) == 1) & (share > 0) & (share < 1), share, 1.0)


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout(
            "philly",
            "Philly",
            frozenset(),
            {
                "id": "jobid",
                "submit": "submitted_time",
                "duration": "seconds of attempts",
                "gpus": "gpus",
                "start": "first start",
                "end": "last end",
                "user": "user",
                "partition": "vc",
                "state": "status",
            },
            zone=PACIFIC,
        ),
        Layout(
            "philly-cut",
            "Philly (cut)",
            frozenset({"timestamp", "duration", "num_gpus", "gpu_time", "cluster"}),
            {"submit": "timestamp", "duration": "duration", "gpus": "num_gpus", "partition": "cluster"},
            zone=PACIFIC,
        ),
        Layout(
            "helios",
            "Helios",
            frozenset({"job_id", "user", "vc", "gpu_num", "node_num", "submit_time", "start_time", "end_time"}),
            {
                "id": "job_id",
                "submit": "submit_time",
                "duration": "duration",
                "gpus": "gpu_num",
                "start": "start_time",
                "end": "end_time",
                "user": "user",
                "partition": "vc",
                "state": "state",
            },
            zone=_CHINA,
        ),
        Layout(
            "acme",
            "Acme",
            frozenset({"job_id", "user", "node_num", "gpu_num", "type", "start_time", "end_time", "gpu_time"}),
            # Durations of Kalos have the time in the queue in them, against its description; the times do not.
            {
                "id": "job_id",
                "submit": "submit_time",
                "gpus": "gpu_num",
                "start": "start_time",
                "end": "end_time",
                "user": "user",
                "model": "type",
                "state": "state",
            },
            notes=("durations are the end less the start",),
        ),
        Layout(
            "openb-2023",
            "Alibaba openb 2023",
            frozenset({"name", "num_gpu", "gpu_milli", "gpu_spec", "creation_time", "deletion_time", "scheduled_time"}),
            {
                "id": "name",
                "submit": "creation_time",
                "duration": "deletion_time - scheduled_time",
                "gpus": "num_gpu",
                "fraction": "share of the GPU",
                "start": "scheduled_time",
                "end": "deletion_time",
                "model": "qos",
                "partition": "gpu_spec",
                "state": "pod_phase",
            },
            reckoned={
                "deletion_time - scheduled_time": (("deletion_time", "scheduled_time"), _difference),
                "share of the GPU": (("num_gpu", "gpu_milli"), _milli),
            },
        ),
        Layout(
            "spot-2026",
            "Alibaba spot 2026",
            frozenset(
                {"job_name", "organization", "gpu_model", "gpu_request", "worker_num", "submit_time", "job_type"}
            ),
            {
                "id": "job_name",
                "submit": "submit_time",
                "duration": "duration",
                "gpus": "gpu_request * worker_num",
                "fraction": "share of each GPU",
                "user": "organization",
                "model": "job_type",
                "partition": "gpu_model",
            },
            reckoned={
                "gpu_request * worker_num": (("gpu_request", "worker_num"), _product),
                "share of each GPU": (("gpu_request",), _part),
            },
            notes=("all workers of a job are one gang",),
        ),
        Layout(
            "pai-2020",
            "Alibaba PAI 2020",
            frozenset(),
            {
                "id": "job_name",
                "submit": "submission",
                "duration": "seconds of tasks",
                "gpus": "gpus",
                "fraction": "share of each GPU",
                "utilization": "share of its GPUs used",
                "start": "first start",
                "end": "last end",
                "user": "user",
                "model": "task_name",
                "partition": "gpu_type",
                "state": "status",
            },
        ),
        Layout(
            "itp",
            "ITP",
            frozenset({"job_id", "submission_time", "duration", "num_gpu"}),
            {"id": "job_id", "submit": "submission_time", "duration": "duration", "gpus": "num_gpu"},
            alone=True,
        ),
        Layout(
            "swf",
            "the Standard Workload Format",
            frozenset(),
            {
                "id": "job number",
                "submit": "submit time",
                "duration": "run time",
                "gpus": "processors",
                "start": "start time",
                "end": "end time",
                "user": "user",
                "model": "executable",
                "partition": "partition",
                "state": "status",
            },
            notes=("processors are taken for GPUs",),
        ),
    )
}
"""By name."""
