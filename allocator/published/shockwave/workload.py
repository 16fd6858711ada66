"""The jobs of Shockwave's generator, as sweeps and comparisons draw them."""

from dataclasses import dataclass
from typing import Annotated, Any

from allocator.experiments.workloads import ONE_GPU, Draw, Lengths, with_weights
from throughputs import Trace
from throughputs.limits import Range
from throughputs.traces.drawing import published_trace


@dataclass(frozen=True, kw_only=True)
class ShockwaveWorkload(Lengths):
    """Jobs of `throughputs.shockwave_trace`, draw for draw.

    Attributes
    ----------
    n_durations : durations to choose from; None: as many as it has by default.
    """

    generator = "shockwave"
    n_durations: Annotated[int, Range(5)] | None = None

    def drawn(self, draw: Draw) -> Trace:
        """Priorities, which the published ones have not, are drawn in a stream of their own."""
        duration, settings = self.fixed_duration_seconds, dict[str, Any]()
        if duration is not None:
            settings["hours"] = (duration / 3600.0,) * 2
        if self.n_durations is not None:
            settings["n_durations"] = self.n_durations
        if not self.multi_gpu:
            settings["scale_factors"] = ONE_GPU
        trace = published_trace("shockwave", draw.jobs, draw.gap_seconds, seed=draw.seed, table=draw.speeds, **settings)
        return with_weights(trace, draw.seed) if self.priorities else trace
