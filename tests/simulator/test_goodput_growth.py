"""Traces that grow while jobs train: the run is that of a trace that was long from the start."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from allocator import Cluster, get_policy, simulate
from allocator.presets import preset
from allocator.protocol.goodput.ledger import GoodputLedger
from allocator.protocol.goodput.rules import GoodputRules
from allocator.sweep import Sweep, run
from tests.simulator.goodput_worlds import StopAt
from throughputs import Trace, gavel_trace
from throughputs.errors import InputError
from throughputs.goodput.profiles import default_profiles
from throughputs.goodput.trainings import training_trace, trainings_of

EMBEDDED = trainings_of(default_profiles())
SMALL = Cluster({"t4": 16}, gpus_per_server={"t4": 4})
WINDOW = (4, 7)
CATEGORIES = ("adaptive", "rigid", "scale-gpus")


def drawn(n: int) -> Trace:
    """Jobs of all categories, of which the later ones ask for other numbers of GPUs than the first."""
    trace = training_trace(n, 900.0, rng=np.random.default_rng(3), trainings=EMBEDDED, most_gpus=16)
    columns = {name: getattr(trace, name) for name in Trace.column_names()}
    return Trace(**(columns | {"category": np.resize(np.array(CATEGORIES, dtype=object), n)}))


@pytest.mark.parametrize(
    ("name", "world", "changes"),
    [
        ("sia", "sia", {}),
        ("pollux", "default", {}),
        ("optimus", "default", {}),
        ("sia_fixed", "default", {}),
        ("max_min_fairness_perf", "default", {}),
        ("sia", "default", {"goodput_work": "samples"}),
        ("sia", "default", {"goodput_knowledge": "profiled"}),
    ],
)
def test_a_growing_trace_gives_the_run_of_a_long_one(name: str, world: str, changes: dict[str, str]) -> None:
    chosen, policy = preset(world).replace(**changes), get_policy(name)
    grown = simulate(drawn(3), SMALL, policy, EMBEDDED, preset=chosen, window=WINDOW, extend=drawn)
    long = simulate(drawn(64), SMALL, policy, EMBEDDED, preset=chosen, window=WINDOW)
    assert WINDOW[1] < len(grown.jobs) < len(long.jobs)
    assert grown.rounds.equals(long.rounds)
    first, last = WINDOW
    for figure in ("completion_time", "preemptions", "gpu_seconds"):
        assert grown.jobs[figure][first:last].equals(long.jobs[figure][first:last]), figure


def test_a_checkpoint_of_a_trace_that_has_grown_changes_nothing(tmp_path: Path) -> None:
    lengths: list[int] = []

    def longer(n: int) -> Trace:
        lengths.append(n)
        return drawn(n)

    asked = {"preset": "sia", "window": WINDOW}
    whole = simulate(drawn(3), SMALL, get_policy("sia"), EMBEDDED, extend=drawn, **asked)
    asked |= {"extend": longer, "checkpoint": tmp_path / "run", "checkpoint_every": 7}
    half_way = StopAt(len(whole.timeline) // 2)
    with pytest.raises(StopAt.StopError):
        simulate(drawn(3), SMALL, get_policy("sia"), EMBEDDED, observers=[half_way], **asked)
    assert lengths == [16]
    again = simulate(drawn(3), SMALL, get_policy("sia"), EMBEDDED, resume=True, **asked)
    assert again.rounds.equals(whole.rounds)
    assert again.jobs.equals(whole.jobs)


def test_a_sweep_of_jobs_that_keep_coming_has_jobs_with_goodput(tmp_path: Path) -> None:
    sweep = Sweep.from_dict(
        {
            "kind": "continuous",
            "policies": ["sia"],
            "rates": [4.0],
            "window": [2, 4],
            "seeds": [0],
            "clusters": ["t4:16"],
            "gpus_per_server": "t4:4",
            "workload": {"generator": "goodput", "multi_gpu": True},
            "settings": {"preset": "default"},
        }
    )
    (made,) = run(sweep, tmp_path, engine="serial").to_dict("records")
    assert (made["status"], made["completed_jobs"]) == ("completed", 2)


def test_other_jobs_than_before_are_named() -> None:
    with pytest.raises(InputError, match="the same jobs as before"):
        simulate(drawn(3), SMALL, get_policy("sia"), EMBEDDED, window=WINDOW, extend=lambda n: gavel_trace(n, 60.0))


def test_every_array_of_a_ledger_has_rows_for_those_who_come_later() -> None:
    def ledger(n: int) -> GoodputLedger:
        jobs, categories = list(EMBEDDED.models.values())[:1] * n, np.full(n, "adaptive", dtype=object)
        return GoodputLedger(jobs, np.full(n, 128.0), np.ones(n, dtype=np.int64), categories, SMALL, GoodputRules())

    grown, long = ledger(5), ledger(12)
    grown.append(ledger(7))
    arrays = {name: value.shape for name, value in vars(long).items() if isinstance(value, np.ndarray)}
    assert {name: getattr(grown, name).shape for name in arrays} == arrays
