"""The throughput matrix and its column form."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from throughputs import InputError, PlainColumns, ThroughputMatrix

rates = st.tuples(st.integers(0, 5), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.floats(0, 1e6))
)


def labelled(values: np.ndarray, **more: object) -> ThroughputMatrix:
    jobs, accelerators = values.shape
    return ThroughputMatrix(values, range(jobs), [f"a{j}" for j in range(accelerators)], **more)


@given(rates)
def test_frame_round_trip(values: np.ndarray) -> None:
    matrix = labelled(values)
    back = ThroughputMatrix.from_frame(matrix.to_frame())
    np.testing.assert_array_equal(back.rates, values)
    assert (back.jobs, back.accelerators) == (matrix.jobs, matrix.accelerators)
    assert (back.n_jobs, back.n_accelerators) == values.shape


def test_scale_factors_come_from_their_column_or_are_one() -> None:
    frame = pd.DataFrame({"v100": [4.0, 2.0], "scale_factor": [2, 1]}, index=["a", "b"])
    matrix = ThroughputMatrix.from_frame(frame)
    assert matrix.scale_factors.tolist() == [2, 1]
    assert matrix.accelerators == ("v100",)
    assert labelled(np.ones((2, 1))).scale_factors.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rates": [[1.0]]}, "shape (2, 1)"),
        ({"rates": [[1.0], [-1.0]]}, "job 'b' on 'v100'"),
        ({"rates": [[1.0], [np.nan]]}, "job 'b' on 'v100'"),
        ({"rates": [[np.inf], [1.0]]}, "job 'a' on 'v100'"),
        ({"jobs": ["a", "a"]}, "distinct labels"),
        ({"scale_factors": [1, 0]}, "scale factor of job 'b'"),
        ({"scale_factors": [1, 1.5]}, "whole numbers"),
        ({"scale_factors": [1]}, "shape (2,)"),
    ],
)
def test_bad_input_is_named(change: dict, words: str) -> None:
    good = {"rates": [[1.0], [2.0]], "jobs": ["a", "b"], "accelerators": ["v100"]}
    with pytest.raises(InputError) as caught:
        ThroughputMatrix(**{**good, **change})
    assert words in str(caught.value)


def test_text_in_a_frame_is_refused() -> None:
    with pytest.raises(InputError, match="field 'v100'"):
        ThroughputMatrix.from_frame(pd.DataFrame({"v100": ["fast"]}))


@given(rates, st.integers(1, 8))
def test_general_columns_say_the_same_as_the_matrix(values: np.ndarray, size: int) -> None:
    columns = PlainColumns(labelled(values, scale_factors=np.full(len(values), size)))
    x = np.random.default_rng(0).random(values.size)
    shares = x.reshape(values.shape)
    general = columns.general
    np.testing.assert_allclose(general.rate @ x, (values * shares).sum(axis=1))
    np.testing.assert_allclose(general.time @ x, shares.sum(axis=1))
    np.testing.assert_allclose(general.usage @ x, size * shares.sum(axis=0))
    assert len(general.members) == values.size
    assert general.accelerator.tolist() == list(range(values.shape[1])) * len(values)
