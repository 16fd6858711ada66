"""The studies of deadlines: drawn jobs without public data, recorded ones with them; tables."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from allocator.experiments.run import Materials
from allocator.sweep import Sweep
from benchmarks import deadlines
from benchmarks.published import CLUSTER_RATIOS
from throughputs import InputError, write_trace


@pytest.fixture(scope="module")
def end_to_end(tmp_path_factory):
    return deadlines.run_study(
        "end_to_end", tmp_path_factory.mktemp("studies"), small=True, inputs=deadlines.Inputs(), processes=1
    )


@pytest.mark.exhaustive
def test_small_studies_run_on_drawn_jobs(end_to_end):
    assert set(end_to_end["status"]) == {"completed"}
    ratio = end_to_end.set_index("label")["deadline_ratio"]
    assert {deadlines.AS_PUBLISHED, deadlines.OURS, deadlines.REPAIR, "chronus", "themis"} <= set(ratio.index)
    assert ratio[deadlines.OURS] > ratio["tiresias"]


@pytest.mark.parametrize("name", deadlines.SWEEPS)
def test_every_study_can_be_defined(name):
    sweeps = deadlines.SWEEPS[name](deadlines.Inputs(), small=False)
    points = [point for sweep in sweeps for point in sweep.points()]
    assert len({sweep.name for sweep in sweeps}) == len(sweeps)
    assert all(point.make_policy() and point.chosen for point in points)


def test_elasticflow_is_called_by_its_admission(monkeypatch):
    monkeypatch.setattr(deadlines, "simulated", lambda point: SimpleNamespace(efficiency=point))
    found = deadlines.efficiency_over_time([deadlines.OURS, deadlines.REPAIR], small=True)
    own = [found[label].policy_settings.get("admission") for label in (deadlines.OURS, deadlines.REPAIR)]
    assert own == [None, "repair"]


@pytest.mark.exhaustive
def test_tables_of_policies_and_clusters(end_to_end):
    lines = deadlines.markdown_of_policies(end_to_end).splitlines()
    assert len(lines) == len(end_to_end) + 2
    assert " | 0.667 | " in lines[2]
    clusters = end_to_end.assign(case="cluster10")
    row = deadlines.markdown_of_clusters(clusters, ["cluster10"]).splitlines()[-1]
    assert row.startswith("| cluster10 | 20 | ")
    assert f"/ {CLUSTER_RATIOS['cluster10']['themis']:.3f}" in row
    cells = deadlines.STUDIES["end_to_end"].table(end_to_end)
    assert list(cells["label"]) == list(dict.fromkeys(end_to_end["label"]))


# Recorded traces in sweeps


def recorded(trace, **workload):
    return {
        "kind": "static",
        "policies": ["edf"],
        "jobs": [3],
        "seeds": [0],
        "clusters": ["v100:4"],
        "workload": {"generator": "recorded", "trace": str(trace), **workload},
    }


def test_the_first_jobs_of_a_recorded_trace(tmp_path):
    from throughputs import gavel_trace

    path = tmp_path / "jobs.csv"
    write_trace(gavel_trace(5, 600.0), path)
    (point,) = Sweep.from_dict(recorded(path, deadline_factors=[2, 2], best_effort=0.0)).points()
    materials = Materials.of([point])
    trace = materials.jobs_of(point)(3)
    assert len(trace) == 3
    assert (trace.deadline > trace.arrival_time + 1.9 * trace.duration).all()
    with pytest.raises(InputError, match="at least 6"):
        materials.jobs_of(point)(6)
    before = point.key
    write_trace(gavel_trace(5, 700.0), path)
    (point,) = Sweep.from_dict(recorded(path, deadline_factors=[2, 2], best_effort=0.0)).points()
    assert point.key != before
