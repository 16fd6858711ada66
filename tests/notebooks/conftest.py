"""Axes to draw on."""

from __future__ import annotations

import matplotlib
import pytest

from allocator.studies import figures


@pytest.fixture
def axes():
    import matplotlib.pyplot as plt

    matplotlib.use("Agg")
    with matplotlib.rc_context():
        figures.use_style()
        figure, (panel,) = figures.panels(1)
        yield panel
        plt.close(figure)
