"""Ragged columns: checks, order, slices, and the matrix and packed columns as views of them."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from throughputs import (
    Configurations,
    InputError,
    PackedColumns,
    PlainColumns,
    ThroughputMatrix,
    default_table,
    read_configurations,
    write_configurations,
)


def fields_of(made: Configurations) -> dict[str, list]:
    names = ("job", "pool", "gpus", "rate", "batch_size", "partner", "partner_rate", "offsets")
    return {name: getattr(made, name).tolist() for name in names} | {"jobs": made.jobs, "pools": made.pools}


@st.composite
def configurations(draw, *, pairs: bool = True) -> Configurations:
    N, M = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    keys = st.tuples(
        st.integers(0, N - 1),
        st.integers(0, M - 1),
        st.sampled_from([1, 2, 4]),
        st.sampled_from([0, 0, 32]),
        st.integers(-1, N - 1) if pairs else st.just(-1),
    )
    drawn = draw(st.lists(keys, max_size=20))
    seen = {
        (min(i, k) if k >= 0 else i, j, g, b, max(i, k) if k >= 0 else -1): (i, j, g, b, k)
        for i, j, g, b, k in drawn
        if i != k
    }
    chosen = list(seen.values())
    rates = [float(draw(st.integers(0, 9))) for _ in chosen]
    columns = np.array(chosen, dtype=np.int64).reshape(-1, 5)
    beside = np.where(columns[:, 4] >= 0, 3.0 + np.arange(len(columns)), 0.0)
    return Configurations(
        columns[:, 0],
        columns[:, 1],
        columns[:, 2],
        rates,
        batch_size=columns[:, 3],
        partner=columns[:, 4],
        partner_rate=beside,
        jobs=[f"job {i}" for i in range(N)],
        pools=[f"pool {j}" for j in range(M)],
    )


def test_columns_are_kept_in_one_order_whatever_order_they_come_in():
    one = Configurations([1, 0, 0], [0, 1, 0], [2, 1, 1], [3.0, 2.0, 1.0], jobs="ab", pools=["v100", "k80"])
    other = Configurations([0, 0, 1], [1, 0, 0], [1, 1, 2], [2.0, 1.0, 3.0], jobs="ab", pools=["v100", "k80"])
    assert fields_of(one) == fields_of(other)
    assert one.job.tolist() == [0, 0, 1]
    assert one.offsets.tolist() == [0, 2, 3]
    np.testing.assert_array_equal(one.usage.toarray(), [[1, 0, 2], [0, 1, 0]])
    np.testing.assert_array_equal(one.time.toarray(), [[1, 1, 0], [0, 0, 1]])
    np.testing.assert_array_equal(one.rates.toarray(), [[1, 2, 0], [0, 0, 3]])


def test_a_pair_stands_at_its_earlier_job():
    pair = Configurations([1], [0], [2], [3.0], partner=[0], partner_rate=[5.0], jobs="ab", pools=["v100"])
    assert (pair.job.tolist(), pair.partner.tolist()) == ([0], [1])
    assert (pair.rate.tolist(), pair.partner_rate.tolist()) == ([5.0], [3.0])
    np.testing.assert_array_equal(pair.time.toarray(), [[1], [1]])
    np.testing.assert_array_equal(pair.rates.toarray(), [[5], [3]])
    np.testing.assert_array_equal(pair.usage.toarray(), [[2]])
    assert pair.general.members == ((0, 1),)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate": [1.0, -1.0]}, "rate of job 'b' with 1 GPUs of 'v100'.*-1.0.*finite throughput"),
        ({"rate": [np.nan, 1.0]}, "rate of job 'a'.*nan"),
        ({"rate": [np.inf, 1.0]}, "rate of job 'a'.*inf"),
        ({"gpus": [0, 1]}, "gpus of job 'a'.*at least 1 GPU"),
        ({"gpus": [1.5, 1]}, "gpus of column 0.*1.5.*whole numbers"),
        ({"gpus": ["one", "two"]}, "gpus.*numbers"),
        ({"job": [0, 2]}, "job of column 1.*2.*below 2"),
        ({"pool": [0, -1]}, "pool of column 1.*-1"),
        ({"partner": [0, -1]}, "partner of job 'a'.*another job"),
        ({"partner": [5, -1]}, "partner of column 0.*5"),
        ({"partner_rate": [1.0, 0.0]}, "partner_rate of job 'a'.*or a partner"),
        ({"batch_size": [-1, 0]}, "batch_size of job 'a'"),
        ({"job": [0, 0]}, "job 'a' with 1 GPUs of 'v100'.*each column once"),
        ({"partner": [1, 0]}, "job 'a' with 1 GPUs of 'v100' beside 'b'.*each column once"),
        ({"rate": [1.0]}, r"rate.*shape \(2,\)"),
        ({"jobs": "aa"}, "jobs.*'a'.*distinct"),
    ],
)
def test_bad_input_is_named(changes, message):
    given = {"job": [0, 1], "pool": [0, 0], "gpus": [1, 1], "rate": [1.0, 2.0], "jobs": "ab", "pools": ["v100"]}
    with pytest.raises(InputError, match=message):
        Configurations(**{**given, **changes})


def test_unknown_labels_of_a_table_are_named_with_their_line():
    frame = pd.DataFrame({"job": ["a", "b"], "pool": ["v100", "v10"], "gpus": [1, 2], "rate": [1.0, 2.0]})
    with pytest.raises(InputError, match=r"mine:3.*'pool'.*'v10'.*did you mean 'v100'"):
        Configurations.from_frame(frame, pools=["v100"], source="mine", first_line=2)
    with pytest.raises(InputError, match=r"'job'.*'b'.*known job"):
        Configurations.from_frame(frame, jobs=["a"])
    with pytest.raises(InputError, match=r"gpus.*present"):
        Configurations.from_frame(frame.drop(columns="gpus"))
    with pytest.raises(InputError, match=r"'job'.*nothing"):
        Configurations.from_frame(frame.assign(job=["a", None]))


@settings(max_examples=60, deadline=None)
@given(configurations())
def test_tables_come_back_as_they_were(made):
    frame = made.to_frame()
    assert fields_of(Configurations.from_frame(frame, jobs=made.jobs, pools=made.pools)) == fields_of(made)


@pytest.mark.parametrize("name", ["ways.csv", "ways.csv.gz", "ways.parquet"])
def test_files_come_back_as_they_were(tmp_path, name):
    made = Configurations(
        job=[0, 0, 1],
        pool=[0, 1, 0],
        gpus=[1, 2, 1],
        rate=[0.1, 2.0, 3.0],
        batch_size=[0, 64, 0],
        partner=[1, -1, -1],
        partner_rate=[4.0, 0.0, 0.0],
        jobs=["a", "b"],
        pools=["v100", "k80"],
    )
    write_configurations(made, tmp_path / name)
    assert fields_of(read_configurations(tmp_path / name)) == fields_of(made)


def test_files_say_which_line_is_wrong(tmp_path):
    (tmp_path / "ways.csv").write_text("job,pool,gpus,rate\na,v100,1,2.5\nb,v100,x,1\n")
    with pytest.raises(InputError, match=r"ways.csv:3.*gpus.*'x'"):
        read_configurations(tmp_path / "ways.csv")
    with pytest.raises(InputError, match=r"ways.txt"):
        read_configurations(tmp_path / "ways.txt")


def test_the_matrix_of_gangs_is_a_view_both_ways():
    matrix = ThroughputMatrix([[4.0, 0.0], [2.0, 1.0]], ["a", "b"], ["v100", "k80"], [2, 1])
    ways = Configurations.from_matrix(matrix)
    back, plain = ways.to_matrix(), PlainColumns(matrix).general
    np.testing.assert_array_equal(back.rates, matrix.rates)
    np.testing.assert_array_equal(back.scale_factors, matrix.scale_factors)
    assert (back.jobs, back.accelerators) == (matrix.jobs, matrix.accelerators)
    for name in ("time", "rate", "usage"):
        np.testing.assert_array_equal(getattr(ways.general, name).toarray(), getattr(plain, name).toarray())
    assert ways.general.members == plain.members


def test_what_is_no_matrix_says_why():
    with pytest.raises(InputError, match=r"GPUs of job 'a'.*1 and 2.*one number"):
        Configurations([0, 0], [0, 1], [1, 2], [1.0, 2.0], jobs="a").to_matrix()
    with pytest.raises(InputError, match=r"GPUs of job 'b'.*no column"):
        Configurations([0], [0], [1], [1.0], jobs="ab").to_matrix()
    with pytest.raises(InputError, match="pairs"):
        Configurations([0], [0], [1], [1.0], partner=[1], jobs="ab").to_matrix()
    with pytest.raises(InputError, match=r"batch_size.*several"):
        Configurations([0, 0], [0, 0], [1, 1], [1.0, 2.0], batch_size=[32, 64]).to_matrix()


def test_packed_columns_are_a_view_both_ways():
    rng = np.random.default_rng(3)
    matrix = ThroughputMatrix(rng.uniform(1, 5, (5, 2)), range(5), ["v100", "k80"], [1, 1, 2, 2, 1])
    together = rng.uniform(0.5, 3, (5, 5, 2)) * (matrix.scale_factors[:, None] == matrix.scale_factors)[:, :, None]
    together[:, :, 1] *= rng.random((5, 5)) < 0.7
    together *= (together > 0) & (together.transpose(1, 0, 2) > 0)
    packed = PackedColumns.from_jobs(matrix, together)
    ways = Configurations.from_packed(packed)
    assert ways.has_pairs
    again = ways.to_packed().general
    assert set(zip(packed.general.members, packed.general.accelerator.tolist(), strict=True)) == set(
        zip(ways.general.members, ways.general.accelerator.tolist(), strict=True)
    )
    for name in ("time", "rate", "usage"):
        np.testing.assert_array_equal(getattr(again, name).toarray(), getattr(packed.general, name).toarray())


def test_the_table_gives_every_job_its_numbers_of_gpus():
    table = default_table()
    types = ["A3C", "LM (batch size 20)", "A3C"]
    ways = Configurations.from_table(table, types, ["v100", "k80"], jobs="xyz")
    assert [ways.counts_of(job) for job in "xyz"] == [(1,), (1, 2, 4, 8), (1,)]
    for c in range(ways.n_columns):
        kind, pool = types[ways.job[c]], ways.pools[ways.pool[c]]
        assert ways.rate[c] == table.rates([kind], [int(ways.gpus[c])], [pool])[0, 0] > 0
    some = Configurations.from_table(table, types, ["v100"], gpus=[1, 4], jobs="xyz")
    assert some.counts_of("y") == (1, 4)
    with pytest.raises(InputError, match=r"gpus of 'A3C'.*some of 1"):
        Configurations.from_table(table, types, ["v100"], gpus=[2])
    with pytest.raises(InputError, match="did you mean 'A3C'"):
        Configurations.from_table(table, ["A3D"], ["v100"])
    with pytest.raises(InputError, match="v10"):
        Configurations.from_table(table, types, ["v10"])
    with pytest.raises(InputError, match="3 labels"):
        Configurations.from_table(table, types, ["v100"], jobs="wxyz")
    with pytest.raises(InputError, match="did you mean 'x'"):
        Configurations.from_table(table, ["A3C"], ["v100"], jobs=["x"]).counts_of("xx")


@settings(max_examples=100, deadline=None)
@given(configurations(), st.randoms(use_true_random=False))
def test_a_slice_is_what_filtering_all_columns_gives(made, random):
    wanted = random.sample(range(made.n_jobs), random.randint(0, made.n_jobs))
    part = made.of(wanted)
    frame = made.to_frame()
    labels = [made.jobs[i] for i in wanted]
    rows = frame.job.isin(labels)
    if "partner" in frame:
        rows &= frame.partner.isna() | frame.partner.isin(labels)
    assert fields_of(part) == fields_of(Configurations.from_frame(frame[rows], jobs=labels, pools=made.pools))


def test_a_slice_refuses_jobs_that_are_not_there():
    made = Configurations([0, 1], [0, 0], [1, 1], [1.0, 2.0])
    for jobs in ([0, 0], [2], [-1]):
        with pytest.raises(InputError, match="distinct positions below 2"):
            made.of(jobs)


def test_a_slice_costs_what_it_takes():
    """Ten jobs of 200,000 cost a small part of looking at every column."""
    N = 200_000
    made = Configurations(np.repeat(np.arange(N), 4), np.zeros(4 * N), np.tile([1, 2, 4, 8], N), np.ones(4 * N))
    jobs = np.arange(10) * 1000

    def seconds(do) -> float:
        times = []
        for _ in range(5):
            began = time.process_time()
            do()
            times.append(time.process_time() - began)
        return min(times)

    assert seconds(lambda: made.of(jobs)) < 0.2 * seconds(lambda: np.isin(made.job, jobs))
    assert made.of(jobs).n_columns == 40


def test_only_columns_that_fit_and_gain_something_are_left():
    made = Configurations([0, 0, 0], [0, 0, 1], [1, 4, 1], [1.0, 2.0, 0.0], pools=["v100", "k80"])
    assert made.fitting([2, 2]).gpus.tolist() == [1]
    assert made.fitting([4, 2]).gpus.tolist() == [1, 4]
    with pytest.raises(InputError, match="capacity"):
        made.fitting([1])


@settings(max_examples=60, deadline=None)
@given(configurations())
def test_what_shares_yield_agrees_with_the_matrices(made):
    x = np.linspace(0.0, 1.0, made.n_columns)
    np.testing.assert_allclose(made.throughput(x), made.rates.toarray() @ x, rtol=1e-14)
    np.testing.assert_allclose(made.busy(x), made.time.toarray() @ x, rtol=1e-14)
    np.testing.assert_allclose(made.used(x), made.usage.toarray() @ x, rtol=1e-14)
