"""When a series of points has saturated: which of its points need not run.

A series is the points that differ in load and seed only. They stand in the order of load, and of seed for equal loads.
The first one that saturates marks all behind it: a larger load, or the same load with another seed, is taken to
saturate too. The mark depends on the results alone, not on the order in which the points happened to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Place = tuple[float, int]
"""Load and seed."""


def first_saturated(
    places: Iterable[tuple[str, str, Place]], records: Mapping[str, Mapping[str, Any]]
) -> dict[str, Place]:
    """By series, the first place whose own run saturated.

    Parameters
    ----------
    places : (point, series, place) of every point of the sweep.
    records : records of the runs so far, by point.
    """
    first: dict[str, Place] = {}
    for key, series, place in places:
        if records.get(key, {}).get("status") == "saturated" and (series not in first or place < first[series]):
            first[series] = place
    return first
