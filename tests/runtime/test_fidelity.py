"""One policy through the runtime and through the simulator, in real time; the bounds are those of a busy machine."""

from __future__ import annotations

import pytest

from benchmarks.runtime import fidelity


@pytest.mark.exhaustive
def test_real_processes_take_as_long_as_simulated_ones(tmp_path):
    jobs = fidelity.draw(10, 10.0, 2.0, 4.0)
    found = []
    # what else the machine does may hold up one run, not what takes as long as it should
    while len(found) < 3 and (not found or max(found[-1]) >= 0.15):
        folder = tmp_path / str(len(found))
        comparison = fidelity.measure(folder, ["max_min_fairness_perf"], jobs, 4.0)["max_min_fairness_perf"]
        errors = {row["figure"]: abs(row["error"]) for row in comparison["figures"]}
        found.append((errors["average_jct"], errors["makespan"]))
    assert max(found[-1]) < 0.15, found
    kept = fidelity.kept(folder / "max_min_fairness_perf", "max_min_fairness_perf", comparison)
    assert len(kept["jobs"]) == 10
    # a start imports what a trainer needs, on a busy machine for longer
    assert kept["restart_seconds"] < 10.0
