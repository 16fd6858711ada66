"""Borders of slots are found as they are on the clock, however the division by a slot is rounded."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from throughputs.numerics import slot_begin, slot_end

SLOTS = st.sampled_from([60.0, 240.0, 0.1, 7.3])
ORIGINS = st.floats(0, 1e6)


@given(ORIGINS, SLOTS, st.integers(0, 10**5))
def test_a_border_ends_and_begins_its_own_slot(origin, slot, k) -> None:
    """``ceil((border - origin) / slot)`` is one slot too many for every fifth of these."""
    border = origin + k * slot
    assert slot_end(origin, slot, border) == slot_begin(origin, slot, border) == border


@given(ORIGINS, SLOTS, st.floats(0, 1e6))
def test_a_time_is_within_its_slot(origin, slot, since) -> None:
    time = origin + since
    begin, end = slot_begin(origin, slot, time), slot_end(origin, slot, time)
    assert begin <= time <= end
    assert end - begin <= slot * (1 + 1e-6)
    assert slot_end(origin, slot, end) == end


def test_without_slots_and_beyond_all_times() -> None:
    assert slot_end(10.0, 0.0, 95.0) == slot_begin(10.0, 0.0, 95.0) == 95.0
    assert slot_end(10.0, 60.0, inf) == inf
