"""Decisions by goodput that are measured: of jobs that are drawn alike each time, and proven."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.studies.study import Options
from benchmarks import decisions


@pytest.mark.exhaustive
def test_quick_figures_are_of_proven_decisions() -> None:
    rows = decisions.GOODPUT.results(Options(quick=True))
    assert rows[["policy", "jobs", "gpus"]].to_numpy().tolist() == [["sia", 160, 64], ["pollux", 160, 64]]
    assert (rows["gap"] <= 1e-7).all()
    assert (rows["seconds"] > 0).all()


def test_states_are_drawn_alike_and_fit() -> None:
    one, again = (decisions.draw_state(20, decisions.SMALL, seed=3) for _ in range(2))
    assert (one.configurations.rate == again.configurations.rate).all()
    assert (one.running.gpus_used(3) <= one.capacity).all()
    assert len(one.running) > 0


def test_configurations_are_those_of_sia() -> None:
    """Powers of two within a node, then whole nodes, up to 64 GPUs."""
    assert decisions.configurations(24, 8).tolist() == [[1, 1], [2, 1], [4, 1], [8, 1], [16, 2], [24, 3]]
    assert np.array_equal(decisions.configurations(1000, 4)[-1], [64, 16])
