"""A picture of measured against fitted step times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from allocator.studies import figures
from throughputs.goodput.fit import Fit
from throughputs.goodput.samples import Samples

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GROUPS = (("one GPU", "o", "#0072b2"), ("one node", "s", "#e69f00"), ("several nodes", "^", "#009e73"))


def fitted_steps(fit: Fit, samples: Samples) -> Figure:
    """A mark for each sample, on the diagonal where the model agrees with the measurement."""
    figures.use_style()
    figure, (axes,) = figures.panels(1, width=5.2, height=5.0)
    measured, fitted = samples.step_time, fit.step_times(samples)
    both = np.concatenate([fitted, measured])
    ends = float(both.min()) * 0.85, float(both.max()) * 1.18
    axes.plot(ends, ends, color="#bbbbbb", linewidth=1.0)
    group = np.where(samples.gpus == 1, 0, np.where(samples.nodes == 1, 1, 2))
    for number, (label, marker, color) in enumerate(_GROUPS):
        here = group == number
        if here.any():
            axes.plot(measured[here], fitted[here], marker, color=color, label=label, alpha=0.8)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    axes.set(xlabel="measured step time (s)", ylabel="fitted step time (s)")
    for axis in (axes.xaxis, axes.yaxis):  # times as people write them, 0.2 and not 2 x 10^-1
        figures.plain_numbers(axis)
    axes.set_title(f"{len(samples)} samples, mean error {100 * fit.errors(samples)['mean']:.1f} %")
    axes.legend(frameon=False, loc="upper left")
    return figure
