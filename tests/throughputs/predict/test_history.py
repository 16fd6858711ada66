"""What similar jobs took lately, beside a loop that looks at all of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from throughputs.predict import name_group, rank_correlation
from throughputs.predict.submissions import recent

MOST = 3

jobs = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 9), st.one_of(st.integers(1, 9), st.none()), st.integers(-5, 5)),
    max_size=25,
)


@settings(max_examples=60)
@given(jobs)
def test_recent_is_what_a_loop_finds(rows):
    rows = sorted(rows, key=lambda row: row[1])
    group = np.array([row[0] for row in rows], dtype=np.int64)
    submitted = np.array([row[1] for row in rows], dtype=float)
    ended = submitted + np.array([np.nan if row[2] is None else row[2] for row in rows], dtype=float)
    values = np.array([row[3] for row in rows], dtype=float)
    last, mean = recent(group, submitted, ended, values, MOST)
    for i in range(len(rows)):
        there = [j for j in range(len(rows)) if group[j] == group[i] and ended[j] <= submitted[i]]
        there = sorted(there, key=lambda j: (ended[j], j))[-MOST:]
        if there:
            assert last[i] == values[there[-1]]
            assert mean[i] == sum(values[j] for j in there) / len(there)
        else:
            assert np.isnan(last[i])
            assert np.isnan(mean[i])


def test_names_of_one_kind_of_work():
    assert name_group("resnet50-lr0.1-run12") == name_group("ResNet101_lr0.01_run7") == "resnet-lr-run"
    assert name_group("train_9f86d081") == "train"
    assert name_group("a.b.c.d.e.f") == "a-b-c-d"
    assert name_group("1234") == name_group("") == ""
    assert name_group("décoder") == "décoder"


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=20))
def test_rank_correlation_is_that_of_pandas(pairs):
    import pandas as pd

    a, b = (np.array(part, dtype=float) for part in zip(*pairs, strict=True))
    found = rank_correlation(a, b)
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert np.isnan(found)
    else:
        expected = pd.Series(a).rank().corr(pd.Series(b).rank())
        np.testing.assert_allclose(found, expected, atol=1e-12)
