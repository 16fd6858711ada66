"""Co-location: the interference model, tables extended by it, its fit and its error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.interference import colocation_errors, fit_interference, fit_memory_shares
from throughputs import (
    InputError,
    InterferenceModel,
    RetainedFractions,
    ThroughputTable,
    default_colocation,
    read_table,
)

V100 = ["v100"]


@pytest.fixture
def model():
    """One resource; c does not fit beside c; b is not known on k80."""
    return InterferenceModel(
        ["a", "b", "c"],
        ["v100", "k80"],
        sensitivity=[[[1.0], [1.0]], [[3.0], [np.nan]], [[0.0], [0.0]]],
        pressure=[[[1.0], [2.0]], [[0.5], [np.nan]], [[2.0], [2.0]]],
        memory_share=[[0.2, 0.2], [0.3, np.nan], [0.7, 0.7]],
    )


@pytest.fixture
def table():
    return ThroughputTable(
        [("c", 1), ("a", 2), ("a", 1), ("x", 1)], ["k80", "v100"], [[10, 20], [30, 60], [15, 30], [1, 2]]
    )


def random_model(rng, G, M, K):
    return InterferenceModel(
        [f"job{g}" for g in range(G)],
        [f"type{m}" for m in range(M)],
        rng.uniform(0, 2, (G, M, K)),
        rng.uniform(0, 1, (G, M, K)),
        rng.uniform(0.1, 0.7, (G, M)),
    )


def table_of(model, rng):
    alone = rng.uniform(1, 50, (len(model.job_types), len(model.accelerators)))
    bare = ThroughputTable([(name, 1) for name in model.job_types], model.accelerators, alone)
    return bare.with_colocation(model)


def test_formula(model):
    v100, k80 = np.moveaxis(model.retained(["a", "b", "c"], ["v100", "k80"]), 2, 0)
    np.testing.assert_allclose(v100, [[1 / 2, 1 / 1.5, 1 / 3], [1 / 4, 1 / 2.5, 1 / 7], [1, 1, 0]])
    np.testing.assert_allclose(k80, [[1 / 3, np.nan, 1 / 3], [np.nan] * 3, [1, np.nan, 0]])
    asked = model.retained(["c", "zebra", "a"], ["tpu", "v100"])  # in any order; unknown ones too
    np.testing.assert_allclose(asked[..., 1], [[0, np.nan, 1], [np.nan] * 3, [1 / 3, np.nan, 1 / 2]])
    assert np.isnan(asked[..., 0]).all()


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3))
def test_fractions_are_fractions_and_sharing_is_mutual(seed, G, M, K):
    model = random_model(np.random.default_rng(seed), G, M, K)
    fractions = model.fractions
    assert ((fractions >= 0) & (fractions <= 1)).all()
    np.testing.assert_array_equal(fractions > 0, np.swapaxes(fractions > 0, 0, 1))
    loaded = InterferenceModel(
        model.job_types, model.accelerators, model.sensitivity, 2 * model.pressure, model.memory_share
    )
    assert (loaded.fractions <= fractions).all()


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_frame_and_back(seed, K):
    rng = np.random.default_rng(seed)
    model = random_model(rng, 4, 2, K)
    frame = model.to_frame().sample(frac=1.0, random_state=int(rng.integers(1000)))
    again = InterferenceModel.from_frame(frame)
    np.testing.assert_array_equal(again.retained(model.job_types, model.accelerators), model.fractions)


@pytest.mark.parametrize(
    ("change", "line", "field"),
    [
        ({"pressure_1": -1.0}, 7, "pressure_1"),
        ({"sensitivity_1": None}, 7, "sensitivity_1"),
        ({"job_type": "a", "accelerator": "v100"}, 7, "job_type"),
    ],
)
def test_bad_rows_are_named(model, change, line, field):
    frame = model.to_frame()
    for column, value in change.items():
        frame.loc[2, column] = value
    with pytest.raises(InputError) as caught:
        InterferenceModel.from_frame(frame, "model.csv", first_line=5)
    assert (caught.value.source, caught.value.line, caught.value.field) == ("model.csv", line, field)


def test_table_gets_the_pairs_of_the_model(table, model):
    sharing = table.with_colocation(model)
    np.testing.assert_allclose(sharing.colocated_rates("a", 1, "c", 1, ["v100", "k80"]), [[10, 20], [5, 10]])
    np.testing.assert_allclose(sharing.colocated_rates("c", 1, "a", 1, V100), [[20, 10]])
    np.testing.assert_allclose(sharing.colocated_rates("a", 1, "a", 1, V100), [[15, 15]])
    assert sharing.colocated_rates("x", 1, "a", 1, V100).tolist() == [[0, 0]], "unknown to the model"
    assert sharing.colocated_rates("a", 2, "a", 2, V100).tolist() == [[0, 0]], "gangs only when asked for"
    assert not table.has_colocation
    with pytest.raises(InputError, match="found 4, expected one of 1, 2"):
        table.with_colocation(model, scale_factors=[4])


def test_gangs_share_only_with_gangs_of_their_size(table, model):
    sharing = table.with_colocation(model, scale_factors=(1, 2, 1))
    np.testing.assert_allclose(sharing.colocated_rates("a", 2, "a", 2, V100), [[30, 30]])
    sizes = np.array([size for _, size in sharing.keys])[sharing.pairs]
    assert (sizes[:, 0] == sizes[:, 1]).all()


def test_measured_figures_take_precedence(model):
    measured = ThroughputTable(
        [("a", 1), ("c", 1)],
        ["v100", "k80"],
        [[30, 15], [20, 10]],
        pairs=[[1, 0]],
        colocated=[[[7.0, 8.0], [np.nan, np.nan]]],
    )
    both = measured.with_colocation(model)
    np.testing.assert_allclose(both.colocated_rates("a", 1, "c", 1, ["v100", "k80"]), [[8, 7], [5, 10]])


def test_default_model_is_as_near_to_the_public_table_as_documented(public_data):
    table = read_table(public_data("gavel/simulation_throughputs.json.gz"))
    errors = colocation_errors(default_colocation(), table, ["v100", "p100", "k80"]).set_index("accelerator")
    assert errors["pairs"].tolist() == [351] * 3
    assert errors["sharing"].tolist() == [330, 340, 306]
    page = (Path(__file__).resolve().parents[2] / "docs" / "colocation.md").read_text()
    for name, row in errors.iterrows():
        shown = [f"{row[c]:.3f}" for c in ("median", "p90", "mean", "relative_median", "relative_p90")]
        wrong = f"{row['wrongly_allowed']:.0f} / {row['wrongly_refused']:.0f}"
        assert f"| {name} | {' | '.join(shown)} | {wrong} |" in page


@pytest.mark.exhaustive
def test_fit_finds_a_model_again():
    rng = np.random.default_rng(5)
    model = random_model(rng, 8, 2, 1)
    table = table_of(model, rng)
    found = fit_interference(table, model.accelerators, resources=1, ridge=1e-4, restarts=2)
    errors = colocation_errors(found, table, model.accelerators)
    again = fit_interference(table, model.accelerators, resources=1, ridge=1e-4, restarts=2)
    np.testing.assert_array_equal(found.fractions, again.fractions)
    assert errors["p90"].max() < 1e-3
    assert errors["verdict_wrong"].max() < 0.02


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_memory_shares_that_exist_are_found(seed, G):
    rng = np.random.default_rng(seed)
    true = rng.integers(1, 13, G) / 12 + 0.01 * rng.random()  # sums are a twelfth apart: a margin is left
    fits = true[:, np.newaxis] + true <= 1
    shares = fit_memory_shares(fits, np.ones_like(fits))
    np.testing.assert_array_equal(shares[:, np.newaxis] + shares <= 1, fits)


def test_memory_shares_sacrifice_the_fewest_pairs():
    fits = np.ones((4, 4), dtype=bool)
    fits[0, 1] = fits[1, 0] = False
    fits[2, 3] = fits[3, 2] = False  # with 0-2, 0-3, 1-2 and 1-3 fitting this cannot be told by shares
    shares = fit_memory_shares(fits, ~np.eye(4, dtype=bool))
    told = shares[:, np.newaxis] + shares <= 1
    assert np.triu(told != fits, 1).sum() == 1


def test_errors_count_each_pair_once_and_both_jobs():
    truth = ThroughputTable(
        [("a", 1), ("b", 1)],
        V100,
        [[10.0], [10.0]],
        pairs=[[0, 0], [0, 1], [1, 1]],
        colocated=[[[5, 5]], [[6, 3]], [[0, 0]]],
    )
    guess = RetainedFractions(("a", "b"), ("v100",), np.array([[0.6, 0.7], [0.5, 0.2]])[..., np.newaxis])
    (row,) = colocation_errors(guess, truth, V100).to_dict("records")
    assert (row["pairs"], row["sharing"], row["wrongly_allowed"], row["wrongly_refused"]) == (3, 2, 1, 0)
    assert row["mean"] == pytest.approx((0.1 + 0.1 + 0.2) / 3)
    assert row["relative_p90"] == pytest.approx(np.quantile([0.2, 1 / 6, 2 / 3], 0.9))
    assert row["sum_p90"] == pytest.approx(np.quantile([0.2, 0.3], 0.9))
    assert row["verdict_wrong"] == 1.0  # 1.0 against 1.2, 0.9 against 1.2: both on the other side
