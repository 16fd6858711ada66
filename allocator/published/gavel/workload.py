"""The jobs of Gavel's simulator, as sweeps and comparisons draw them."""

from dataclasses import dataclass

from allocator.experiments.workloads import Draw, Lengths
from throughputs import Trace
from throughputs.traces.drawing import published_trace


@dataclass(frozen=True, kw_only=True)
class GavelWorkload(Lengths):
    """Jobs of `throughputs.gavel_trace`, draw for draw."""

    generator = "gavel"

    def drawn(self, draw: Draw) -> Trace:
        """With steps as the published simulator has them where it draws jobs as it goes, else as in its files."""
        return published_trace(
            "gavel",
            draw.jobs,
            draw.gap_seconds,
            multi_gpu=self.multi_gpu,
            priorities=self.priorities,
            slos=self.slos,
            seed=draw.seed,
            fixed_duration=self.fixed_duration_seconds,
            table=draw.speeds,
            whole_steps=not draw.grows,
        )
