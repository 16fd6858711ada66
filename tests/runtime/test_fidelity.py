"""One policy through the runtime and through the simulator, in real time; the bound is that of a busy machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.runtime import fidelity


@pytest.mark.exhaustive
def test_real_processes_take_as_long_as_simulated_ones(tmp_path: Path) -> None:
    jobs = fidelity.draw(10, 10.0, 2.0, 4.0)
    comparison = fidelity.measure(tmp_path, ["max_min_fairness_perf"], jobs, 4.0)["max_min_fairness_perf"]
    errors = {row["figure"]: abs(row["error"]) for row in comparison["figures"]}
    assert errors["average_jct"] < 0.15
    assert errors["makespan"] < 0.15
    kept = fidelity.kept(tmp_path / "max_min_fairness_perf", "max_min_fairness_perf", comparison)
    assert len(kept["jobs"]) == 10
    assert kept["restart_seconds"] < 3.0
