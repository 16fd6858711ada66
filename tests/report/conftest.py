import pytest

from allocator.results.result import SimulationResult
from tests.report.synthetic import make_results


@pytest.fixture(scope="session")
def results() -> list[SimulationResult]:
    """Three policies on a small cluster."""
    return make_results()
