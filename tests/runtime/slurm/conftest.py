from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.runtime.slurm.cluster import VirtualCluster, missing_programs
from tests.runtime.slurm.jobs import Jobs

NODES = {"v1": ("v100", 2), "v2": ("v100", 2), "p1": ("p100", 2), "k1": ("k80", 4)}


@pytest.fixture(scope="session")
def cluster():
    """A Slurm cluster; skips the test where Slurm is not installed, and fails it where it is expected."""
    missing = missing_programs()
    if missing:
        message = f"Slurm is not installed: {', '.join(missing)} not found; make test-slurm installs Debian's packages"
        if os.environ.get("ALLOCATOR_EXPECT_SLURM", "0") not in ("", "0"):
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    # Of the path of a unix socket the system takes 107 characters.
    with tempfile.TemporaryDirectory(prefix="slurm-") as root:
        virtual = VirtualCluster(Path(root), NODES)
        try:
            virtual.begin()
            yield virtual
        finally:
            virtual.end()


@pytest.fixture
def jobs(cluster, tmp_path):
    """Jobs on the cluster, all of them gone afterwards."""
    cluster.mend()
    yield Jobs(cluster, tmp_path / "jobs")
    cluster.clear()
