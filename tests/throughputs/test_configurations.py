"""Columns of programs: ragged configurations, and the matrix of gangs and columns of pairs as views of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from allocator import Cluster
from allocator.protocol.colocated import of_trace
from throughputs import (
    Configurations,
    InputError,
    PackedColumns,
    ThroughputMatrix,
    ThroughputTable,
    Trace,
    default_table,
    read_configurations,
    write_configurations,
)


def fields_of(made):
    names = ("job", "pool", "gpus", "rate", "batch_size", "partner", "partner_rate", "offsets")
    return {name: getattr(made, name).tolist() for name in names} | {"jobs": made.jobs, "pools": made.pools}


def counts_of(ways, *jobs):
    """Numbers of GPUs that jobs (positions) have columns for."""
    return [set(ways.gpus[ways.job == job].tolist()) for job in jobs]


@st.composite
def configurations(draw):
    N, M = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    keys = st.tuples(
        st.integers(0, N - 1),
        st.integers(0, M - 1),
        st.sampled_from([1, 2, 4]),
        st.sampled_from([0, 0, 32]),
        st.integers(-1, N - 1),
    )
    drawn = draw(st.lists(keys, max_size=20))
    seen = {(*sorted((i, k if k >= 0 else N)), j, g, b): (i, j, g, b, k) for i, j, g, b, k in drawn if i != k}
    columns = np.array(list(seen.values()), dtype=np.int64).reshape(-1, 5)
    job, pool, gpus, batch_size, partner = columns.T
    rates = [float(draw(st.integers(0, 9))) for _ in columns]
    beside = np.where(partner >= 0, 3.0 + np.arange(len(columns)), 0.0)
    labels = {"jobs": [f"job {i}" for i in range(N)], "pools": [f"pool {j}" for j in range(M)]}
    return Configurations(job, pool, gpus, rates, batch_size=batch_size, partner=partner, partner_rate=beside, **labels)


def test_columns_by_hand():
    """In one order whatever order they come in; a pair stands at its earlier job."""
    one = Configurations([1, 0, 0], [0, 1, 0], [2, 1, 1], [3.0, 2.0, 1.0], jobs="ab", pools=["v100", "k80"])
    assert (one.job.tolist(), one.offsets.tolist()) == ([0, 0, 1], [0, 2, 3])
    assert one.usage.toarray().tolist() == [[1, 0, 2], [0, 1, 0]]
    assert one.time.toarray().tolist() == [[1, 1, 0], [0, 0, 1]]
    assert one.rates.toarray().tolist() == [[1, 2, 0], [0, 0, 3]]
    assert one.rates_at(*np.array([[0, 0, 1], [0, 0, 0], [1, 3, 2]])).tolist() == [1.0, 0.0, 3.0]
    sizes = Configurations([0, 0], [0, 0], [1, 1], [2.0, 1.0], batch_size=[32, 64], jobs="a")
    assert sizes.rates_by_gpus(0, 0) == {1: 2.0}
    pair = Configurations([1], [0], [2], [3.0], partner=[0], partner_rate=[5.0], jobs="ab", pools=["v100"])
    assert (pair.job.tolist(), pair.partner.tolist()) == ([0], [1])
    assert [m.toarray().tolist() for m in (pair.time, pair.rates, pair.usage)] == [[[1], [1]], [[5], [3]], [[2]]]


GOOD = {"job": [0, 1], "pool": [0, 0], "gpus": [1, 1], "rate": [1.0, 2.0], "jobs": "ab", "pools": ["v100"]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rate": [1.0, -1.0]}, "configurations:2|'rate'|-1.0"),
        ({"rate": [np.nan, 1.0]}, "configurations:1|'rate'|at least 0"),
        ({"gpus": [0, 1]}, ":1|'gpus'|at least 1"),
        ({"gpus": [1.5, 1]}, "'gpus'|not whole"),
        ({"pool": [0, -1]}, ":2|'pool'|-1"),
        ({"partner": [0, -1]}, ":1|'partner'|another"),
        ({"partner_rate": [1.0, 0.0]}, ":1|'partner_rate'|partner"),
        ({"batch_size": [-1, 0]}, ":1|'batch_size'|-1"),
        ({"job": [0, 0]}, "job 'a'|1 GPUs of 'v100'|once"),
        ({"partner": [1, 0]}, "job 'a'|1 GPUs of 'v100'|once"),
        ({"rate": [1.0]}, "rate|(2,)"),
        ({"jobs": "aa"}, "jobs|'a'"),
    ],
)
def test_bad_configurations_are_named(changes, words):
    with pytest.raises(InputError) as caught:
        Configurations(**{**GOOD, **changes})
    assert [word for word in words.split("|") if word not in str(caught.value)] == []


@settings(max_examples=30)
@given(made=configurations(), random=st.randoms(use_true_random=False))
def test_tables_slices_and_matrices_agree(made, random):
    frame = made.to_frame()
    assert fields_of(Configurations.from_frame(frame, jobs=made.jobs, pools=made.pools)) == fields_of(made)
    wanted = random.sample(range(made.n_jobs), random.randint(0, made.n_jobs))
    labels = [made.jobs[i] for i in wanted]
    rows = frame.job.isin(labels)
    if "partner" in frame:
        rows &= frame.partner.isna() | frame.partner.isin(labels)
    filtered = Configurations.from_frame(frame[rows], jobs=labels, pools=made.pools)
    assert fields_of(made.of(wanted)) == fields_of(filtered)
    n = made.n_jobs
    later = made.joined(made).of(range(n, 2 * n))
    assert fields_of(later) == fields_of(made) | {"jobs": tuple(range(n, 2 * n))}
    x = np.linspace(0.0, 1.0, made.n_columns)
    for of, matrix in ((made.throughput, made.rates), (made.busy, made.time), (made.used, made.usage)):
        np.testing.assert_allclose(of(x), matrix.toarray() @ x, rtol=1e-14)
    room = [random.randint(0, 4) for _ in made.pools]
    kept = [room[pool] >= gpus for pool, gpus in zip(made.pool, made.gpus, strict=True)]
    kept = np.array(kept, dtype=bool) & (np.maximum(made.rate, made.partner_rate) > 0)
    assert made.fitting(room).job.tolist() == made.job[kept].tolist()


@pytest.mark.parametrize("name", ["ways.csv", "ways.csv.gz", "ways.parquet"])
def test_files_come_back_as_they_were(tmp_path, name):
    made = Configurations(
        [0, 0, 1], [0, 1, 0], [1, 2, 1], [0.1, 2.0, 3.0], batch_size=[0, 64, 0], partner=[1, -1, -1],
        partner_rate=[4.0, 0.0, 0.0], jobs=["a", "b"], pools=["v100", "k80"],
    )  # fmt: skip
    write_configurations(made, tmp_path / name)
    assert fields_of(read_configurations(tmp_path / name)) == fields_of(made)


def test_what_is_no_slice_or_capacity_says_why():
    two = Configurations([0, 1], [0, 0], [1, 1], [1.0, 2.0])
    for call, told in (
        *((lambda jobs=jobs: two.of(jobs), "below 2") for jobs in ([0, 0], [2])),
        (lambda: two.fitting([1, 2]), "capacity"),
    ):
        with pytest.raises(InputError, match=told):
            call()


def test_the_table_gives_every_job_its_numbers_of_gpus():
    table, types = default_table(), ["A3C", "LM (batch size 20)", "A3C"]
    ways = Configurations.from_table(table, types, ["v100", "k80"], jobs="xyz")
    assert counts_of(ways, *range(3)) == [{1}, {1, 2, 4, 8}, {1}]
    for c in range(ways.n_columns):
        kind, pool = types[ways.job[c]], ways.pools[ways.pool[c]]
        assert ways.rate[c] == table.rates([kind], [int(ways.gpus[c])], [pool])[0, 0] > 0
    assert counts_of(Configurations.from_table(table, types, ["v100"], gpus=[1, 4], jobs="xyz"), 1) == [{1, 4}]
    for changed, told in (({"gpus": [2]}, "gpus of 'A3C'"), ({"jobs": "wxyz"}, "3 labels")):
        with pytest.raises(InputError, match=told):
            Configurations.from_table(table, types, ["v100"], **changed)


rates = st.tuples(st.integers(0, 5), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.floats(0, 1e6))
)


@settings(max_examples=25)
@given(rates, st.integers(1, 8))
def test_the_matrix_of_gangs_as_a_table_and_as_columns(values, size):
    N, M = values.shape
    matrix = ThroughputMatrix(values, range(N), [f"a{j}" for j in range(M)], np.full(N, size))
    again = ThroughputMatrix.from_frame(matrix.to_frame().assign(scale_factor=size))
    ways = Configurations.from_matrix(matrix)
    np.testing.assert_array_equal(again.rates, values)
    np.testing.assert_array_equal(again.scale_factors, matrix.scale_factors)
    assert (again.jobs, again.accelerators, again.n_jobs) == (matrix.jobs, matrix.accelerators, N)
    x = np.random.default_rng(0).random(values.size)
    np.testing.assert_allclose(ways.rates @ x, (values * x.reshape(N, M)).sum(axis=1))
    np.testing.assert_allclose(ways.usage @ x, size * x.reshape(N, M).sum(axis=0))
    assert ways.pool.tolist() == list(range(M)) * N


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rates": [[1.0]]}, "shape (2, 1)"),
        ({"rates": [[1.0], [-1.0]]}, "job 'b' on 'v100'"),
        ({"rates": [[np.inf], [1.0]]}, "job 'a' on 'v100'"),
        ({"jobs": ["a", "a"]}, "distinct labels"),
        ({"scale_factors": [1, 0]}, "scale factor of job 'b'"),
        ({"scale_factors": [1]}, "shape (2,)"),
    ],
)
def test_bad_matrices_are_named(change, words):
    with pytest.raises(InputError) as caught:
        ThroughputMatrix(**{"rates": [[1.0], [2.0]], "jobs": ["a", "b"], "accelerators": ["v100"]} | change)
    assert words in str(caught.value)
    with pytest.raises(InputError, match="field 'v100'"):
        ThroughputMatrix.from_frame(pd.DataFrame({"v100": ["fast"]}))
    assert ThroughputMatrix.from_frame(pd.DataFrame({"v100": [2.0]})).scale_factors.tolist() == [1]


def test_columns_of_pairs_from_a_table():
    table = ThroughputTable(
        [("A", 1), ("B", 1), ("B", 2)],
        ["v100", "k80"],
        [[4.0, 2.0], [6.0, 1.0], [10.0, np.nan]],
        pairs=[[0, 1], [1, 1], [2, 2]],
        colocated=[[[3.0, 5.0], [np.nan, np.nan]], [[4.0, 4.0], [0.5, 0.5]], [[7.0, 7.0], [0.0, 0.0]]],
    )
    trace = Trace(["B", "A", "B", "B"], [1, 1, 2, 1], [1.0] * 4, [0.0] * 4)
    columns = of_trace(trace, table, Cluster({"k80": 2, "v100": 2}), ())
    assert columns.accelerators == ("k80", "v100")
    assert columns.group[0] == columns.group[3]
    assert columns.rates.tolist() == [[1, 6], [2, 4], [0, 10], [1, 6]]
    b, a, wide = columns.group[:3]
    together = columns.together
    assert [together[k].tolist() for k in ((a, b), (b, a), (b, b), (wide, wide))] == [[0, 3], [0, 5], [0.5, 4], [0, 7]]
    assert not together[wide, [a, b]].any()


@pytest.mark.parametrize("seed", range(12))
def test_columns_of_pairs_keep_every_rate(seed):
    rng = np.random.default_rng(seed)
    N = int(rng.integers(1, 7))
    matrix = ThroughputMatrix(rng.integers(1, 3, (N, 2)), range(N), ["v100", "k80"], rng.integers(1, 3, N))
    together = rng.integers(1, 3, (N, N, 2)) * (rng.random((N, N, 2)) < 0.6)
    together = together * (matrix.scale_factors[:, None] == matrix.scale_factors)[:, :, None].astype(float)
    together *= together.transpose(1, 0, 2) > 0
    packed = PackedColumns.from_jobs(matrix, together)
    np.testing.assert_array_equal(packed.rates, matrix.rates)
    ours = packed.together[packed.group[:, None], packed.group[None, :]]
    different = ~np.eye(N, dtype=bool)
    np.testing.assert_array_equal(ours[different], together[different])
    ways = Configurations.from_packed(packed)
    rate, time, usage = (matrix.toarray() for matrix in (ways.rates, ways.time, ways.usage))
    members = [(i, i) if k < 0 else (i, k) for i, k in zip(ways.job.tolist(), ways.partner.tolist(), strict=True)]
    expected = {((i, i), j) for i in range(N) for j in range(2)}
    expected |= {((i, k), j) for i in range(N) for k in range(i + 1, N) for j in range(2) if together[i, k, j]}
    assert set(zip(members, ways.pool.tolist(), strict=True)) == expected
    for c, ((i, k), j) in enumerate(zip(members, ways.pool.tolist(), strict=True)):
        own = [matrix.rates[i, j]] if i == k else [together[i, k, j], together[k, i, j]]
        assert np.flatnonzero(time[:, c]).tolist() == sorted({i, k})
        assert rate[sorted({i, k}), c].tolist() == own
        assert usage[j, c] == usage[:, c].sum() == matrix.scale_factors[i]


def test_bad_columns_of_pairs_are_named():
    alone = [[1.0], [2.0]]
    unknown, uneven = np.zeros((2, 2, 1)), np.zeros((2, 2, 1))
    unknown[0, 1], uneven[0, 1] = np.nan, 0.5
    for arguments, labels, told in (
        (([0], [1.0, 2.0], unknown), {}, "two dimensions"),
        (([0, 2], alone, uneven), {}, "below 2"),
        (([0], [[1.0], [-2.0]], uneven), {}, "at least 0"),
        (([0], alone, unknown), {"accelerators": ["v100"]}, "group 0 beside group 1 on 'v100'"),
        (([0], alone, uneven, [1, 2]), {}, "different sizes"),
    ):
        with pytest.raises(InputError, match=told):
            PackedColumns(*arguments, **labels)
