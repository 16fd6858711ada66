"""The same sweep on a Ray cluster of several nodes, started here."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pandas as pd
import pytest

from allocator.sweep import Sweep, load_jobs, run
from tests.sweep.sweep_definitions import continuous, measured

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra [ray]")

NODES = 3
# Small enough for a machine that does other things too.
OBJECT_STORE_BYTES = 80 * 1024**2


@pytest.fixture(scope="module")
def cluster():
    """Address of a cluster of three nodes with one CPU each; this process is not connected to it."""
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    nodes = {"num_cpus": 1, "object_store_memory": OBJECT_STORE_BYTES}
    started = Cluster(initialize_head=True, head_node_args=nodes | {"include_dashboard": False})
    try:
        for _ in range(NODES - 1):
            started.add_node(**nodes)
        yield started
    finally:
        started.shutdown()


@pytest.mark.exhaustive
def test_the_same_results_as_on_this_machine(cluster, tmp_path):
    sweep = Sweep.from_dict(
        continuous(rates=[0.1, 40.0, 60.0], settings={"max_waiting_jobs": 15}, keep_jobs=True, seeds=[0, 1])
    )
    there = run(sweep, tmp_path / "ray", engine="ray", address=cluster.address)
    here = run(sweep, tmp_path / "local", jobs=2)
    pd.testing.assert_frame_equal(measured(there), measured(here))
    assert there["by_rule"].sum() == 6
    for point in sweep.points():
        if (tmp_path / "ray" / "points" / f"{point.key}.json").exists():
            assert point.key in (tmp_path / "ray" / "logs" / point.log_name).read_text()
    pd.testing.assert_frame_equal(load_jobs(tmp_path / "ray"), load_jobs(tmp_path / "local"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "ray" / "points").iterdir()}
    run(sweep, tmp_path / "ray", engine="ray", address=cluster.address)
    assert {path: path.stat().st_mtime_ns for path in before} == before
