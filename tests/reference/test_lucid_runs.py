"""Lucid against its recorded runs: end and queueing of every job, and the variants of its rules."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.conftest import Data
from tests.reference.lucid_records import LucidRecord, Workloads, philly, replay, venus, workloads


@pytest.fixture(scope="module")
def record(public_data: Data, reference_data: Data) -> LucidRecord:
    return venus(public_data, reference_data, "lucid")


@pytest.fixture(scope="module")
def tables(public_data: Data) -> Workloads:
    return workloads(public_data)


def test_every_job_ends_and_waits_as_recorded(record: LucidRecord, tables: Workloads) -> None:
    run = replay(record, tables)
    assert len(run.end) == 3536
    assert np.array_equal(run.end, record.run["end_time"])
    assert np.array_equal(run.queue, record.run["queue"])


_FIXED = {"guests_recover": True}
_NOBODY_FITS = 9
VARIANTS: dict[str, dict[str, Any]] = {
    "as released": {},
    "recovery bug fixed": _FIXED,
    "no packing": {"scores": _NOBODY_FITS},
    "place first, pack only if no room": {"place_first": True},
    "fixed + place first": {**_FIXED, "place_first": True},
    "fixed + best-speed host": {**_FIXED, "host": "fastest"},
    "fixed + place first + best host": {**_FIXED, "place_first": True, "host": "fastest"},
    "fixed, score budget 0": {**_FIXED, "score_budget": 0},
    "fixed, score budget 1": {**_FIXED, "score_budget": 1},
    "fixed, score budget 4": {**_FIXED, "score_budget": 4},
}


def figures(record: LucidRecord, tables: Workloads, name: str) -> dict[str, float]:
    settings = dict(VARIANTS[name])
    if settings.get("scores") == _NOBODY_FITS:
        settings["scores"] = dict.fromkeys(tables.scores, _NOBODY_FITS)
    run = replay(record, tables, **settings)
    return {
        "mean_jct": (run.end - record.log["arrival"]).mean(),
        "mean_queue": run.queue.mean(),
        "q999": run.queue.quantile(0.999),
    }


@pytest.mark.parametrize(
    "name",
    [
        "recovery bug fixed",
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in VARIANTS if name != "recovery bug fixed"),
    ],
)
def test_variants_of_the_rules_come_to_what_is_recorded(
    record: LucidRecord, tables: Workloads, reference_data: Data, name: str
) -> None:
    recorded = json.loads(reference_data("lucid/lucid_variants_Venus_Sept.json").read_text())
    assert set(recorded) == set(VARIANTS)
    assert figures(record, tables, name) == pytest.approx(recorded[name], rel=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        *("recovery bug fixed", "fixed, score budget 0"),
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in VARIANTS
            if "0" not in name and "bug" not in name
        ),
    ],
)
def test_variants_on_philly_come_to_what_is_recorded(
    public_data: Data, tables: Workloads, reference_data: Data, name: str
) -> None:
    recorded = json.loads(reference_data("lucid/lucid_variants_Philly.json").read_text())
    assert figures(philly(public_data), tables, name) == pytest.approx(recorded[name], rel=1e-12)
