"""Which GPUs a gang gets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from allocator.cluster import Cluster
from allocator.mechanism import Placement


def test_jobs_that_stay_keep_their_gpus() -> None:
    placement = Placement(Cluster({"a": 2, "b": 4}), consolidated=False)
    sizes = [1, 1, 1, 1]
    assert placement.place(1, [0, 1, 2], sizes) == [(2,), (3,), (4,)]
    assert placement.place(1, [3, 2, 1], sizes) == [(2,), (4,), (3,)]


def test_a_larger_gang_displaces_a_smaller_one_in_order_only() -> None:
    sizes = [1, 1, 4]
    rounds = ([0, 1], [1], [1, 2])
    in_order = Placement(Cluster({"a": 8}), consolidated=False)
    assert [in_order.place(0, jobs, sizes) for jobs in rounds][-1] == [(4,), (0, 1, 2, 3)]
    keeping = Placement(Cluster({"a": 8}), consolidated=True)
    assert [keeping.place(0, jobs, sizes) for jobs in rounds][-1] == [(1,), (0, 2, 3, 4)]


def test_consolidated_gangs_take_the_fullest_server_with_room() -> None:
    placement = Placement(Cluster({"a": 10}, {"a": 4}), consolidated=True)
    sizes = [2, 3, 1, 4, 2]
    # Servers 0-3, 4-7 and the partial 8-9. The gang of 4 comes first, then 3, then 2 on the partial server, which it
    # fills, then the single job on what is left beside the gang of 3.
    assert placement.place(0, [0, 1, 2, 3], sizes) == [(8, 9), (4, 5, 6), (7,), (0, 1, 2, 3)]


def test_a_gang_larger_than_a_server_spans_few() -> None:
    placement = Placement(Cluster({"a": 8}, {"a": 4}), consolidated=True)
    assert placement.place(0, [0], [6]) == [(0, 1, 2, 3, 4, 5)]


@given(data=st.data(), consolidated=st.booleans(), per_server=st.integers(1, 5))
def test_gpus_are_disjoint_of_the_type_and_kept(data: st.DataObject, consolidated: bool, per_server: int) -> None:
    capacity = 9
    cluster = Cluster({"other": 3, "a": capacity}, {"a": per_server})
    placement = Placement(cluster, consolidated)
    sizes = data.draw(st.lists(st.sampled_from([1, 1, 2, 4]), min_size=8, max_size=8))
    before: dict[int, tuple[int, ...]] = {}
    for _ in range(4):
        jobs, left = [], capacity
        for job in data.draw(st.permutations(range(8))):
            if sizes[job] <= left:
                jobs.append(job)
                left -= sizes[job]
        jobs = jobs[: data.draw(st.integers(0, len(jobs)))]
        gpus = dict(zip(jobs, placement.place(1, jobs, sizes), strict=True))
        flat = [gpu for ids in gpus.values() for gpu in ids]
        assert len(set(flat)) == len(flat)
        assert set(flat) <= set(range(3, 3 + capacity))
        assert all(len(gpus[job]) == sizes[job] for job in jobs)
        if consolidated:
            assert all(gpus[job] == before[job] for job in jobs if job in before)
        before = gpus
