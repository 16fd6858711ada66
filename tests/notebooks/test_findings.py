"""Findings say what the results say: figures are theirs, and words follow when the figures change."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import findings
from benchmarks.findings.words import Paired, compared, few, listed, paired, plus_minus
from throughputs import InputError

HOUR = 3600.0
POSITIVE = st.floats(0.1, 1e3)


# Words


@given(POSITIVE, POSITIVE)
def test_comparisons_are_true(figure, base):
    words = compared(figure, base, more="longer", less="shorter")
    if words == "about the same":
        assert figure == pytest.approx(base, rel=0.0051)
    else:
        percent = float(words.split()[0])
        assert words.endswith("% longer") == (figure > base)
        assert base * (1 + (percent if figure > base else -percent) / 100) == pytest.approx(figure, abs=0.0051 * base)


@settings(max_examples=25)
@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=2, max_size=6))
def test_agreement_counts_draws_on_the_side_of_the_mean(figures):
    pair = Paired(*zip(*figures, strict=True))
    same = sum((a < b) == (pair.means[0] < pair.means[1]) for a, b in figures)
    number = few(len(figures))
    assert pair.agreement() == (
        f"in each of the {number} draws" if same == len(figures) else f"in {few(same)} of {number} draws"
    )
    mean, half_width = pair.difference()
    assert ("no more than draws" in pair.on_same_jobs()) == (abs(mean) <= half_width)


def test_intervals_are_in_words():
    assert plus_minus([1.0, 2.0, 3.0], digits=2) == "2.00 \N{PLUS-MINUS SIGN} 2.48"
    assert plus_minus([7200.0], unit=HOUR) == "2.0"
    assert Paired([1.0], [2.0]).on_same_jobs() == "in the one draw that was made"
    assert (listed(["a"]), listed(["a", "b", "c"])) == ("a", "a, b and c")


def test_pairs_are_of_runs_that_both_completed():
    runs = pd.DataFrame(
        [
            ("a", 0, "completed", 1.0),
            ("b", 0, "completed", 2.0),
            ("a", 1, "completed", 9.0),
            ("b", 1, "saturated", 0.1),
        ],
        columns=["policy", "seed", "status", "jct"],
    )
    assert paired(runs, value="jct", series="policy", first="a", second="b").means == (1.0, 2.0)
    with pytest.raises(InputError, match="a, c"):
        paired(runs, value="jct", series="policy", first="a", second="c")


# Findings, from results made up so that either side is true


def loaded(hours: dict[str, float], *, seeds: int = 3, **figures: dict[str, float]) -> pd.DataFrame:
    """Runs at two loads; hours by policy at the heavier one, other figures by policy too."""
    rng = np.random.default_rng(5)
    rows = []
    for seed in range(seeds):
        noise = rng.normal(0, 0.1)
        for policy, mean in hours.items():
            for load, part in ((0.2, 0.8), (0.8, 1.0)):
                more = {name: values[policy] + 0.01 * noise for name, values in figures.items()}
                jct = HOUR * (part * mean + noise)
                rows.append({"policy": policy, "seed": seed, "status": "completed", "jobs_per_hour": load,
                             "submitted_jobs": 10 * load, "average_jct": jct, "makespan": 3 * jct,
                             "average_jct_weight_5": jct, "average_jct_weight_1": 2 * jct, **more})  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("aware", "words"), [(15.0, "25 % shorter than without"), (25.0, "25 % longer than without")])
def test_attained_service_follows_the_runs(aware, words):
    hours = {"gandiva": 18.0, "max_min_fairness": 20.0, "max_min_fairness_perf": aware, "max_min_fairness_packed": 14.0}
    first, second, *_ = findings.las_multi_gpu(loaded(hours))
    assert words in first
    assert f"{aware:.1f} \N{PLUS-MINUS SIGN}" in first or f"{aware - 0.1:.1f}" in first
    assert "at 0.8 jobs per hour" in first
    assert second.startswith(f"It is {'shorter' if aware < 20 else 'longer'} in each of the three draws")
    assert ("since types differ" in second) == (aware < 20)


def compared_policies(shockwave: float) -> pd.DataFrame:
    """Three draws in which Shockwave's figures are this multiple of 1, and those of the others 1 to 3."""
    rows = []
    for seed in (1, 2, 25):
        for label, figure in (("Shockwave", shockwave), ("OSSP", 1.0), ("Gavel", 2.0), ("MST", 3.0)):
            rows.append({"label": label, "seed": seed, "status": "completed", "makespan": figure * HOUR,
                         "average_jct": figure * HOUR, "worst_rho_static": figure, "cpu_seconds": 1.0,
                         "unfair_fraction_static": figure / 10})  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("multiple", "words"), [(0.5, "the fewest of all policies"), (2.5, "two of the other policies")]
)
def test_planning_is_praised_only_where_it_is_better(multiple, words):
    text = " ".join(findings.shockwave_canonical(compared_policies(multiple)))
    assert words in text
    assert f"% {'below' if multiple < 1 else 'above'} that of OSSP" in text
    beaten = re.search(r"No policy is better in all four figures in any draw( but .*?)?\.", text)
    assert beaten is not None
    assert (beaten[1] is None) == (multiple < 1)
    of_load = [compared_policies(multiple).assign(contention=at, gpus=gpus) for at, gpus in ((1.5, 16), (3.0, 64))]
    assert words in " ".join(findings.shockwave_contention(pd.concat(of_load)))
    first, *_ = findings.shockwave_scale(pd.concat(of_load))
    assert f"on {'two' if multiple < 1 else 'none'} of two clusters" in first


def frame(columns: str, *rows: tuple[object, ...]) -> pd.DataFrame:
    """Rows for each of three seeds, all completed."""
    found = pd.concat([pd.DataFrame(rows, columns=columns.split()).assign(seed=seed) for seed in range(3)])
    return found.assign(status="completed")


@pytest.mark.parametrize("sign", [1, -1])
def test_choosing_gpus_is_compared_with_what_was_asked_for(sign):
    rows = []
    for gap, base in ((240.0, 3600.0), (900.0, 1800.0)):
        for policy, part in (
            ("sia", 0.52), ("pollux", 0.5), ("optimus", 0.6), ("tiresias", 1.0), ("max_min_fairness_perf", 1.0),
        ):  # fmt: skip
            factor = part if sign > 0 or part == 1.0 else 1.0 / part
            rows.append((policy, gap, factor * base, 30 if policy == "optimus" else 10))
    first, types, left, asked, calm, paper = findings.goodput(
        frame("policy mean_interarrival_seconds average_jct preemptions", *rows)
    )
    best, share, words = ("pollux", "50", "shorter") if sign > 0 else ("optimus", "67", "longer")
    assert f"JCT under `{best}` is {0.5 if sign > 0 else 1 / 0.6:.2f}" in first
    assert f"{share} % {words} than under `max_min_fairness_perf`, in each of the three draws" in first
    assert f"under `sia` is {'4.0 % longer' if sign > 0 else '3.8 % shorter'} than under `pollux`" in types
    assert f"JCT is {'20 % longer than' if sign > 0 else 'about the same as'} under `{best}`" in left
    assert f"with {3.0 if sign > 0 else 1.0} times the preemptions" in left
    assert "JCT is about the same as under `max_min_fairness_perf`" in asked
    assert f"of `{best}` gives {share} % {words}" in calm
    assert "0.68 h under Pollux" in paper
