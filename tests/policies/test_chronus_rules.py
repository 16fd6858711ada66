"""How long jobs are given by Chronus, in whole units of a minute; leases last 20 of them."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.policies.chronus.rules import rounded_gpus
from tests.policies.test_chronus_memory import rules_of

RULES = rules_of(8)


def test_a_start_costs_half_a_unit_and_as_much_again_for_each_doubling() -> None:
    assert RULES.start_units(np.array([1, 2, 8])).tolist() == [0.5, 1.0, 2.0]
    assert rules_of(8, start_cost=3.0).start_units(np.array([1, 4])).tolist() == [3.0, 9.0]


@pytest.mark.parametrize(
    ("minutes", "gpus", "settings", "units"),
    [
        # 85 (1 + 0.5 / 20) 1.1 = 95.8
        (85.0, 1, {}, 95),
        # 85 (1 + 2 / 20) 1.1 = 102.9
        (85.0, 8, {}, 102),
        # slots are of no consequence; 85 (1 + 0.5 / 40) 1.1 = 94.7
        (85.0, 1, {"slot_seconds": 600.0, "lease_seconds": 2400.0}, 94),
        (85.0, 1, {"margin": 1.0}, 87),
        (85.0, 8, {"start_cost": 0.0, "margin": 1.0}, 85),
    ],
)
def test_estimates_have_the_cost_of_one_start_in_each_lease_and_a_margin(minutes, gpus, settings, units) -> None:
    assert rules_of(8, **settings).estimates(np.array([minutes]), np.array([gpus])).tolist() == [units]


def test_leases_for_so_many_units() -> None:
    assert RULES.leases_for(np.array([95.0, 100.0, 101.0, 0.0, -30.0])).tolist() == [5, 5, 6, 0, 0]


def test_the_lease_program_reckons_with_powers_of_two_up_to_eight() -> None:
    assert rounded_gpus(np.arange(1, 11)).tolist() == [1, 2, 4, 4, 8, 8, 8, 8, 9, 10]
