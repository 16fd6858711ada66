import pytest

from allocator.results.result import SimulationResult
from tests.report.synthetic import make_results


@pytest.fixture(scope="session")
def results() -> list[SimulationResult]:
    """Three policies on a small cluster."""
    return make_results(3, n_jobs=14, n_rounds=4000, cluster="v100:8,p100:8,k80:8", decide_every=10)
