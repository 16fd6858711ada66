"""Lucid against its recorded runs: end and queueing of every job, and the variants of its rules."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.conftest import Data
from tests.reference.lucid_records import LucidRecord, Replay, Workloads, philly, replay, venus, workloads
from tests.reference.tiers import tiered


@pytest.fixture(scope="module")
def record(public_data: Data, reference_data: Data) -> LucidRecord:
    return venus(public_data, reference_data, "lucid")


@pytest.fixture(scope="module")
def tables(public_data: Data) -> Workloads:
    return workloads(public_data)


_FIXED = {"guests_recover": True}
VARIANTS: dict[str, dict[str, Any]] = {
    "as released": {},
    "recovery bug fixed": _FIXED,
    "no packing": {"scores": 9},
    "place first, pack only if no room": {"place_first": True},
    "fixed + place first": {**_FIXED, "place_first": True},
    "fixed + best-speed host": {**_FIXED, "host": "fastest"},
    "fixed + place first + best host": {**_FIXED, "place_first": True, "host": "fastest"},
    "fixed, score budget 0": {**_FIXED, "score_budget": 0},
    "fixed, score budget 1": {**_FIXED, "score_budget": 1},
    "fixed, score budget 4": {**_FIXED, "score_budget": 4},
}


def assert_as_recorded(run: Replay, recorded: dict[str, float]) -> None:
    found = {
        "mean_jct": (run.end - run.record.log["arrival"]).mean(),
        "mean_queue": run.queue.mean(),
        "q999": run.queue.quantile(0.999),
    }
    assert found == pytest.approx(recorded, rel=1e-12)


def variant(record: LucidRecord, tables: Workloads, name: str) -> Replay:
    settings = dict(VARIANTS[name])
    if "scores" in settings:
        settings["scores"] = dict.fromkeys(tables.scores, settings["scores"])
    return replay(record, tables, **settings)


@pytest.mark.parametrize(
    "name",
    tiered(VARIANTS, gate=["as released", "fixed + place first + best host"]),
)
def test_variants_of_the_rules_come_to_what_is_recorded(
    name: str, record: LucidRecord, tables: Workloads, reference_data: Data
) -> None:
    recorded = json.loads(reference_data("lucid/lucid_variants_Venus_Sept.json").read_text())
    assert set(recorded) == set(VARIANTS)
    run = variant(record, tables, name)
    assert_as_recorded(run, recorded[name])
    if name == "as released":
        assert len(run.end) == 3536
        assert np.array_equal(run.end, record.run["end_time"])
        assert np.array_equal(run.queue, record.run["queue"])


@pytest.mark.parametrize("name", tiered(VARIANTS, gate=["recovery bug fixed"]))
def test_variants_on_philly_come_to_what_is_recorded(
    name: str, public_data: Data, tables: Workloads, reference_data: Data
) -> None:
    recorded = json.loads(reference_data("lucid/lucid_variants_Philly.json").read_text())
    assert_as_recorded(variant(philly(public_data), tables, name), recorded[name])
