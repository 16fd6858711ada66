"""A picture of measured against fitted step times."""

from __future__ import annotations

from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import numpy as np

from throughputs.errors import InputError
from throughputs.goodput.fit import Fit
from throughputs.goodput.samples import Samples

PICTURE_KINDS = ("svg", "png", "pdf")

_DATE = {"svg": "Date", "pdf": "CreationDate"}
"""Field that would make every picture another file."""

_INK, _FAINT = "#222222", "#bbbbbb"
_GROUPS = (("one GPU", "o", "#0072b2"), ("one node", "s", "#e69f00"), ("several nodes", "^", "#009e73"))


def draw_fitted_steps(fit: Fit, samples: Samples, path: Path) -> None:
    """Write the picture: a mark for each sample, on the diagonal where the model agrees with the measurement.

    Raises
    ------
    InputError
        Another kind of file than `PICTURE_KINDS`, or matplotlib is not installed.
    """
    kind = path.suffix.lower().lstrip(".")
    if kind not in PICTURE_KINDS:
        expected = f"a file name that ends in {', '.join(f'.{kind}' for kind in PICTURE_KINDS)}"
        raise InputError(path, found=path.name, expected=expected)
    if find_spec("matplotlib") is None:
        expected = "matplotlib to be installed: pip install cluster-allocator[plot]"
        raise InputError("picture", field="matplotlib", found="no such package", expected=expected)
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    fitted = fit.step_times(samples)
    both = np.concatenate([fitted, samples.step_time])
    ends = float(both.min()) * 0.85, float(both.max()) * 1.18
    group = np.where(samples.gpus == 1, 0, np.where(samples.nodes == 1, 1, 2))
    # names in an SVG file are drawn at random otherwise
    with rc_context({"svg.hashsalt": "fitted steps", "svg.fonttype": "none"}):
        figure = Figure(figsize=(5.2, 5.0), layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        axes.plot(ends, ends, color=_FAINT, linewidth=1.0, zorder=1)
        for number, (label, marker, color) in enumerate(_GROUPS):
            here = group == number
            if here.any():
                axes.scatter(
                    samples.step_time[here], fitted[here], s=26, marker=marker, color=color, label=label, alpha=0.8
                )
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
        axes.set_xlabel("measured step time (s)", color=_INK)
        axes.set_ylabel("fitted step time (s)", color=_INK)
        for axis in (axes.xaxis, axes.yaxis):  # times as people write them, 0.2 and not 2 x 10^-1
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.set_minor_locator(NullLocator())
        mean = fit.errors(samples)["mean"]
        axes.set_title(f"{len(samples)} samples, mean error {100 * mean:.1f} %", fontsize=10, color=_INK)
        axes.legend(frameon=False, loc="upper left")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        picture = BytesIO()
        figure.savefig(picture, format=kind, dpi=150, metadata={} if kind == "png" else {_DATE[kind]: None})
    path.write_bytes(picture.getvalue())
