"""The Gittins index, by hand and by its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator import get_policy, simulate
from allocator.policies.time_sharing.gittins import TiresiasGittins
from allocator.presets import preset
from throughputs import InputError, Trace


def test_the_index_by_hand() -> None:
    policy = TiresiasGittins(samples=(10.0, 20.0, 100.0), quantum=15.0)
    # One of three ends within 15, after 10; the others use 15. Then one of two, after 10, the other uses 15.
    np.testing.assert_allclose(policy.index(np.array([0.0, 10.0])), [1 / 40, 1 / 25], rtol=1e-15)
    # Nobody ends within 15 of 50, and nobody is left at 100.
    assert policy.index(np.array([50.0, 100.0])).tolist() == [0.0, 0.0]


def test_the_published_index_counts_samples_in_full() -> None:
    policy = TiresiasGittins(samples=(10.0, 20.0, 100.0), quantum=15.0, published_index=True)
    np.testing.assert_allclose(policy.index(np.array([0.0, 10.0])), [1 / 40, 1 / 35], rtol=1e-15)


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=20), st.integers(1, 60), st.lists(st.integers(0, 60), min_size=1)
)
def test_the_index_by_its_definition(samples: list[int], quantum: int, attained: list[int]) -> None:
    policy = TiresiasGittins(samples=tuple(map(float, samples)), quantum=float(quantum))
    found = policy.index(np.array(attained, dtype=np.float64))
    for at, index in zip(attained, found.tolist(), strict=True):
        left = [sample - at for sample in samples if sample > at]
        ends = sum(more <= quantum for more in left)
        expected = ends / sum(min(more, quantum) for more in left) if left else 0.0
        assert index == pytest.approx(expected, rel=1e-12)


def test_who_is_likely_to_end_soon_runs_first() -> None:
    # Jobs of this cluster take about 100 or 10,000 GPU seconds: a new one is worth more than one that passed 100.
    samples = (100.0, 110.0, 10_000.0, 11_000.0)
    trace = Trace(["job"] * 2, [1, 1], [10_000.0, 100.0], [0.0, 200.0])
    policy = get_policy("tiresias_gittins", samples=samples, quantum=200.0, queue_limits=(50_000.0,))
    no_costs = preset("default").replace(restart_penalty_seconds=0.0)
    ends = simulate(trace, "v:1", policy, np.ones((2, 1)), preset=no_costs).jobs["completion_time"]
    assert ends.tolist() == [10_100.0, 300.0]
    by_service = get_policy("tiresias", queue_limits=(50_000.0,))
    ends = simulate(trace, "v:1", by_service, np.ones((2, 1)), preset=no_costs).jobs["completion_time"]
    assert ends.tolist() == [10_000.0, 10_100.0]


@pytest.mark.parametrize("settings", [{"samples": ()}, {"samples": (1.0, 0.0)}, {"quantum": 0.0}])
def test_settings_are_checked(settings: dict[str, object]) -> None:
    with pytest.raises(InputError, match=f"policy tiresias_gittins.*{next(iter(settings))}"):
        get_policy("tiresias_gittins", **settings)
