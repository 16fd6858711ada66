"""What a scheduler may choose of the jobs of a sweep: drawn by shares, the same jobs otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.sweep import Sweep
from allocator.sweep.definition.point import Point, Workload
from allocator.sweep.jobs import trace_of
from throughputs import InputError, Trace
from throughputs.goodput.profiles import default_profiles
from throughputs.goodput.trainings import trainings_of

TRAININGS = trainings_of(default_profiles())


def point(categories: dict[str, float] | None, seed: int = 0) -> Point:
    workload = Workload(generator="goodput", multi_gpu=True, mean_interarrival_seconds=60.0, categories=categories)
    return Point("static", "sia", "t4:32", 400, seed, workload=workload, gpus_per_server="t4:4")


def jobs(categories: dict[str, float] | None, n_jobs: int = 400, seed: int = 0) -> Trace:
    return trace_of(point(categories, seed), TRAININGS)(n_jobs)


def test_jobs_are_drawn_by_the_shares_and_are_the_same_otherwise() -> None:
    plain, mixed = jobs(None), jobs({"adaptive": 3.0, "rigid": 1.0})
    assert set(plain.category) == {"adaptive"}
    assert (mixed.category == "rigid").mean() == pytest.approx(0.25, abs=0.06)
    for column in ("job_type", "scale_factor", "total_steps", "arrival_time"):
        assert (getattr(plain, column) == getattr(mixed, column)).all(), column


def test_a_larger_share_changes_no_other_job() -> None:
    few, many = (jobs({"adaptive": 1.0, "rigid": part}).category for part in (0.5, 1.0))
    assert ((few == "rigid") <= (many == "rigid")).all()
    assert set(jobs({"rigid": 2.0}).category) == {"rigid"}
    assert (jobs({"adaptive": 1.0, "rigid": 1.0}, 40).category == many[:40]).all()
    assert not np.array_equal(many, jobs({"adaptive": 1.0, "rigid": 1.0}, seed=1).category)


def test_a_sweep_has_them_as_a_column_and_in_the_identity() -> None:
    assert point(None).columns(())["categories"] is None
    assert point({"adaptive": 1.0, "rigid": 0.5}).columns(())["categories"] == "adaptive:1,rigid:0.5"
    assert len({point(shares).key for shares in (None, {"adaptive": 1.0}, {"rigid": 1.0})}) == 3


def definition(generator: str, categories: object) -> dict[str, object]:
    return {
        "kind": "static",
        "policies": ["sia"],
        "jobs": [4],
        "seeds": [0],
        "clusters": ["t4:8"],
        "workload": {"generator": generator, "categories": categories},
    }


def test_the_order_in_which_shares_are_listed_does_not_count() -> None:
    one, other = (
        Sweep.from_dict(definition("goodput", shares)).points()[0].key
        for shares in ({"rigid": 1, "adaptive": 2}, {"adaptive": 2, "rigid": 1})
    )
    assert one == other


@pytest.mark.parametrize(
    ("generator", "categories", "field", "expected"),
    [
        ("goodput", {"adaptve": 1}, "workload.categories", "did you mean 'adaptive'"),
        ("goodput", {"rigid": -1}, "workload.categories.rigid", "a share of at least 0"),
        ("goodput", {"rigid": 0}, "workload.categories", "a share above 0"),
        ("goodput", "rigid", "workload.categories", "shares of the jobs by category"),
        ("gavel", {"rigid": 1}, "workload.categories", "generators goodput and recorded"),
    ],
)
def test_what_cannot_be_is_refused(generator: str, categories: object, field: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        Sweep.from_dict(definition(generator, categories))
    assert caught.value.field == field
