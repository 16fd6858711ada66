"""Traces that grow while jobs train: the run is that of a trace that was long from the start."""

from __future__ import annotations

import numpy as np
import pytest

from allocator import Cluster, get_policy, simulate
from allocator.presets import preset
from throughputs import Trace
from throughputs.goodput.profiles import default_profiles
from throughputs.goodput.trainings import training_trace, trainings_of

EMBEDDED = trainings_of(default_profiles())
SMALL = Cluster({"t4": 16}, gpus_per_server={"t4": 4})
WINDOW = (2, 4)
CATEGORIES = ("adaptive", "rigid", "scale-gpus")


def drawn(n):
    """Jobs of all categories, of which the later ones ask for other numbers of GPUs than the first."""
    trace = training_trace(n, 900.0, rng=np.random.default_rng(3), trainings=EMBEDDED, most_gpus=16)
    columns = {name: getattr(trace, name) for name in Trace.column_names()}
    return Trace(**(columns | {"category": np.resize(np.array(CATEGORIES, dtype=object), n)}))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "world", "changes"),
    [
        ("pollux", "default", {}),
        ("max_min_fairness_perf", "default", {}),
        ("sia", "default", {"goodput_work": "samples", "goodput_knowledge": "profiled"}),
    ],
)
def test_a_growing_trace_gives_the_run_of_a_long_one(name, world, changes):
    chosen, policy = preset(world).replace(**changes), get_policy(name)
    grown = simulate(drawn(3), SMALL, policy, EMBEDDED, preset=chosen, window=WINDOW, extend=drawn)
    long = simulate(drawn(24), SMALL, policy, EMBEDDED, preset=chosen, window=WINDOW)
    assert WINDOW[1] < len(grown.jobs) < len(long.jobs)
    assert grown.rounds.equals(long.rounds)
    first, last = WINDOW
    for figure in ("completion_time", "preemptions", "gpu_seconds"):
        assert grown.jobs[figure][first:last].equals(long.jobs[figure][first:last]), figure
