"""A trace: the jobs of a workload as they were submitted, one array per attribute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from throughputs.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Trace"]


@dataclass(frozen=True, eq=False)
class Trace:
    """N jobs in the order of their arrival; a job's id is its position, counted from 0.

    Attributes
    ----------
    job_type : (N,) str, for example ``"ResNet-50 (batch size 64)"``; the key into a throughput table.
    scale_factor : (N,) GPUs in the job's gang.
    total_steps : (N,) training steps to run.
    arrival_time : (N,) seconds from the start of the trace.
    priority_weight : (N,) weight of the job, 1 for an ordinary one.
    slo : (N,) allowed completion time as a multiple of the job's duration; nan for none.
    duration : (N,) seconds the job was said to run for, alone; nan where the trace does not say.
    mode : (N,) str, how the batch size changes while training: "static", "accordion" or "gns".
    command, working_directory, num_steps_arg : (N,) str, how to start the job on a real cluster; may be empty.
    needs_data_dir : (N,) bool, whether `command` takes a data directory.
    source : where the trace came from, for messages.

    Raises
    ------
    InputError
        Arrays of different length, a scale factor below 1, non-positive steps, times that are negative or not
        finite, or arrivals that are not in order.
    """

    job_type: NDArray[np.object_]
    scale_factor: NDArray[np.int64]
    total_steps: NDArray[np.float64]
    arrival_time: NDArray[np.float64]
    priority_weight: NDArray[np.float64]
    slo: NDArray[np.float64]
    duration: NDArray[np.float64]
    mode: NDArray[np.object_]
    command: NDArray[np.object_]
    working_directory: NDArray[np.object_]
    num_steps_arg: NDArray[np.object_]
    needs_data_dir: NDArray[np.bool_]
    source: str = "trace"

    def __init__(
        self,
        job_type: Sequence[str] | NDArray[np.object_],
        scale_factor: Sequence[int] | NDArray[np.int64],
        total_steps: Sequence[float] | NDArray[np.float64],
        arrival_time: Sequence[float] | NDArray[np.float64],
        *,
        priority_weight: Sequence[float] | NDArray[np.float64] | None = None,
        slo: Sequence[float] | NDArray[np.float64] | None = None,
        duration: Sequence[float] | NDArray[np.float64] | None = None,
        mode: Sequence[str] | NDArray[np.object_] | None = None,
        command: Sequence[str] | NDArray[np.object_] | None = None,
        working_directory: Sequence[str] | NDArray[np.object_] | None = None,
        num_steps_arg: Sequence[str] | NDArray[np.object_] | None = None,
        needs_data_dir: Sequence[bool] | NDArray[np.bool_] | None = None,
        source: str = "trace",
    ) -> None:
        n = len(job_type)

        def keep(name: str, values: object, dtype: object, default: object) -> None:
            array = np.full(n, default, dtype=dtype) if values is None else np.array(values, dtype=dtype)  # type: ignore[call-overload]
            object.__setattr__(self, name, array)

        keep("job_type", job_type, object, "")
        keep("scale_factor", scale_factor, np.int64, 1)
        keep("total_steps", total_steps, np.float64, 0.0)
        keep("arrival_time", arrival_time, np.float64, 0.0)
        keep("priority_weight", priority_weight, np.float64, 1.0)
        keep("slo", slo, np.float64, np.nan)
        keep("duration", duration, np.float64, np.nan)
        keep("mode", mode, object, "static")
        keep("command", command, object, "")
        keep("working_directory", working_directory, object, "")
        keep("num_steps_arg", num_steps_arg, object, "")
        keep("needs_data_dir", needs_data_dir, np.bool_, False)
        object.__setattr__(self, "source", source)
        self._validate()

    def __len__(self) -> int:
        return len(self.job_type)

    def _validate(self) -> None:
        n = len(self)
        for name in self.column_names():
            if getattr(self, name).shape != (n,):
                raise InputError(self.source, field=name, found=getattr(self, name).shape, expected=f"shape ({n},)")
        rules = (
            ("scale_factor", self.scale_factor >= 1, "at least 1 GPU"),
            ("total_steps", np.isfinite(self.total_steps) & (self.total_steps > 0), "a positive number of steps"),
            ("arrival_time", np.isfinite(self.arrival_time) & (self.arrival_time >= 0), "seconds, at least 0"),
            ("priority_weight", np.isfinite(self.priority_weight) & (self.priority_weight > 0), "a positive weight"),
        )
        for name, good, expected in rules:
            if not good.all():
                row = int(np.argmin(good))
                raise InputError(self.source, line=row + 1, field=name, found=getattr(self, name)[row].item(), expected=expected)
        late = np.diff(self.arrival_time) < 0
        if late.any():
            row = int(np.argmax(late)) + 1
            raise InputError(
                self.source,
                line=row + 1,
                field="arrival_time",
                found=float(self.arrival_time[row]),
                expected=f"at least the arrival before it, {self.arrival_time[row - 1]} s",
            )

    @staticmethod
    def column_names() -> tuple[str, ...]:
        """Names of the columns, in the order in which they are written."""
        return (
            "job_type",
            "scale_factor",
            "total_steps",
            "arrival_time",
            "priority_weight",
            "slo",
            "duration",
            "mode",
            "command",
            "working_directory",
            "num_steps_arg",
            "needs_data_dir",
        )

    def to_frame(self) -> pd.DataFrame:
        """Table with one row per job (index: job id) and the columns of `column_names`."""
        import pandas as pd

        frame = pd.DataFrame({name: getattr(self, name) for name in self.column_names()})
        frame.index.name = "job_id"
        return frame

    def head(self, n: int) -> Trace:
        """The first `n` jobs."""
        columns = {name: getattr(self, name)[:n] for name in self.column_names()}
        return Trace(**columns, source=self.source)
