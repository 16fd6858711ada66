"""Columns with space sharing: from tables of groups, of jobs, and from a throughput table."""

from __future__ import annotations

import numpy as np
import pytest

from throughputs import InputError, ThroughputMatrix, ThroughputTable
from throughputs.packed import PackedColumns


@pytest.fixture
def table():
    return ThroughputTable(
        [("A", 1), ("B", 1), ("B", 2)],
        ["v100", "k80"],
        [[4.0, 2.0], [6.0, 1.0], [10.0, np.nan]],
        pairs=[[0, 1], [1, 1], [2, 2]],
        colocated=[[[3.0, 5.0], [np.nan, np.nan]], [[4.0, 4.0], [0.5, 0.5]], [[7.0, 7.0], [0.0, 0.0]]],
    )


def test_from_table(table):
    columns = PackedColumns.from_table(table, ["B", "A", "B", "B"], [1, 1, 2, 1], ["k80", "v100"], jobs="wxyz")
    assert columns.jobs == ("w", "x", "y", "z")
    assert columns.accelerators == ("k80", "v100")
    assert columns.group[0] == columns.group[3]
    np.testing.assert_array_equal(columns.rates, [[1, 6], [2, 4], [0, 10], [1, 6]])
    np.testing.assert_array_equal(columns.scale_factors, [1, 1, 2, 1])
    b, a, wide = columns.group[:3]
    np.testing.assert_array_equal(columns.together[a, b], [0, 3])
    np.testing.assert_array_equal(columns.together[b, a], [0, 5])
    np.testing.assert_array_equal(columns.together[b, b], [0.5, 4])
    np.testing.assert_array_equal(columns.together[wide, wide], [0, 7])
    assert not columns.together[wide, [a, b]].any()


def test_groups_do_not_depend_on_the_order_of_jobs(table):
    one = PackedColumns.from_table(table, ["B", "A", "B"], [1, 1, 2], ["v100"])
    other = PackedColumns.from_table(table, ["B", "B", "A"], [2, 1, 1], ["v100"])
    np.testing.assert_array_equal(one.alone, other.alone)
    np.testing.assert_array_equal(one.together, other.together)


def test_from_table_names_what_is_unknown(table):
    with pytest.raises(InputError, match="'C'"):
        PackedColumns.from_table(table, ["C"], [1], ["v100"])
    with pytest.raises(InputError, match="one for each of 2 jobs"):
        PackedColumns.from_table(table, ["A", "B"], [1], ["v100"])


def test_general_columns_list_every_pair_that_has_a_rate(table):
    columns = PackedColumns.from_table(table, ["A", "B", "B", "B"], [1, 1, 1, 2], ["v100", "k80"])
    general = columns.general
    assert general.members[:8] == tuple((i,) for i in (0, 0, 1, 1, 2, 2, 3, 3))
    found = {(m, int(j)) for m, j in zip(general.members[8:], general.accelerator[8:], strict=True)}
    assert found == {((0, 1), 0), ((0, 2), 0), ((1, 2), 0), ((1, 2), 1)}
    rate, time, usage = general.rate.toarray(), general.time.toarray(), general.usage.toarray()
    for c, (members, j) in enumerate(zip(general.members, general.accelerator, strict=True)):
        assert np.flatnonzero(time[:, c]).tolist() == list(members)
        assert usage[j, c] == columns.scale_factors[members[0]]
        assert usage[:, c].sum() == usage[j, c]
        if len(members) == 2:
            i, k = members
            a, b = columns.group[[i, k]]
            assert rate[i, c] == columns.together[a, b, j]
            assert rate[k, c] == columns.together[b, a, j]
        else:
            assert rate[members[0], c] == columns.rates[members[0], j]


def test_plain_columns_are_the_same_jobs_alone(table):
    columns = PackedColumns.from_table(table, ["A", "B"], [1, 2], ["v100", "k80"])
    np.testing.assert_array_equal(columns.plain.rates, columns.rates)
    np.testing.assert_array_equal(columns.plain.scale_factors, [1, 2])


def test_from_jobs_finds_interchangeable_jobs():
    """Jobs 0 and 2 meet the same from everybody; 1 and 3 have equal rates alone but differ in company."""
    together = np.zeros((4, 4, 1))
    for i, k, mine, theirs in (
        (0, 1, 2.0, 1.0),
        (2, 1, 2.0, 1.0),
        (0, 3, 2.0, 1.5),
        (2, 3, 2.0, 1.5),
        (0, 2, 2.5, 2.5),
    ):
        together[i, k], together[k, i] = mine, theirs
    together[0, 0] = 99.0  # beside itself: not read
    matrix = ThroughputMatrix([[3.0], [2.0], [3.0], [2.0]], "abcd", ["v100"])
    columns = PackedColumns.from_jobs(matrix, together)
    assert columns.group[0] == columns.group[2]
    assert len(columns.alone) == 3
    assert columns.together[columns.group[0], columns.group[0], 0] == 2.5
    expected = together[:, :, 0].copy()
    np.fill_diagonal(expected, 0)
    ours = columns.together[columns.group[:, None], columns.group[None, :], 0]
    np.fill_diagonal(ours, 0)
    np.testing.assert_array_equal(ours, expected)


def test_from_jobs_keeps_every_rate():
    rng = np.random.default_rng(3)
    for _ in range(30):
        N, M = int(rng.integers(1, 7)), 2
        matrix = ThroughputMatrix(rng.integers(1, 3, (N, M)), range(N), ["v100", "k80"])
        together = rng.integers(0, 2, (N, N, M)).astype(float)
        columns = PackedColumns.from_jobs(matrix, together)
        np.testing.assert_array_equal(columns.rates, matrix.rates)
        ours = columns.together[columns.group[:, None], columns.group[None, :]]
        different = ~np.eye(N, dtype=bool)
        np.testing.assert_array_equal(ours[different], together[different])


def test_input_that_does_not_fit():
    alone, together = [[1.0], [2.0]], np.zeros((2, 2, 1))
    with pytest.raises(InputError, match="two dimensions"):
        PackedColumns([0], [1.0, 2.0], together)
    with pytest.raises(InputError, match=r"together.*shape \(2, 2, 1\)"):
        PackedColumns([0], alone, np.zeros((2, 2)))
    with pytest.raises(InputError, match="a group below 2"):
        PackedColumns([0, 2], alone, together)
    with pytest.raises(InputError, match="whole numbers"):
        PackedColumns([0.5], alone, together)
    with pytest.raises(InputError, match="2 distinct labels"):
        PackedColumns([0, 1], alone, together, jobs=["a", "a"])
    with pytest.raises(InputError, match="at least 0"):
        PackedColumns([0], [[1.0], [-2.0]], together)
    together[0, 1] = np.nan
    with pytest.raises(InputError, match="group 0 beside group 1 on 'v100'"):
        PackedColumns([0], alone, together, accelerators=["v100"])
    together[0, 1] = 0.5
    with pytest.raises(InputError, match="gangs of different sizes"):
        PackedColumns([0], alone, together, [1, 2])
    with pytest.raises(InputError, match=r"together.*shape \(2, 2, 1\)"):
        PackedColumns.from_jobs(ThroughputMatrix(alone, "ab", ["v100"]), np.zeros((1, 2, 1)))
