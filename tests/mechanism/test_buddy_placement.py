"""Buddy placement: aligned blocks of 1, 2, 4, ... GPUs, merged on release, with compaction."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.cluster import Cluster
from allocator.mechanism.placement.placement import Placement
from allocator.protocol.assignment import Assignment


def _buddy(gpus, per_server):
    return Placement(Cluster({"a": gpus}, {"a": per_server}), "buddy")


def _gangs(gpus, pool=0):
    return Assignment.of(list(gpus), [pool] * len(gpus), list(gpus.values()))


def test_freed_blocks_merge_with_their_buddies():
    placement = _buddy(8, 8)
    placement.place(_gangs(dict.fromkeys(range(8), 1)))
    # 2 and 3 are buddies; 1 and 2, side by side, are not.
    placement.place(_gangs(dict.fromkeys([0, 1, 4, 5, 6, 7], 1)))
    assert placement.place(_gangs({0: 1, 1: 1, 8: 2, 4: 1, 5: 1, 6: 1, 7: 1}))[2] == (2, 3)
    placement.place(_gangs(dict.fromkeys([4, 5, 6, 7], 1)))
    assert not len(placement.place_changes(_gangs({4: 1, 5: 1, 6: 1, 7: 1, 9: 4})).move)
    assert placement.gpus_of(9) == (0, 1, 2, 3)


def test_compaction_moves_as_few_gpus_as_it_can():
    placement = _buddy(16, 4)
    placement.place(_gangs({0: 2, 1: 1, 2: 1, 3: 2, 4: 2, 5: 2, 6: 2, 7: 2, 8: 2}))
    placement.place(_gangs({0: 2, 1: 1, 4: 2, 6: 2, 7: 2}))
    crowd = {job: placement.gpus_of(job) for job in (0, 1, 4, 6, 7)}
    # In use are 2, 2, 4 and 1 GPUs of the four servers: the job alone on its server moves.
    assert crowd == {0: (0, 1), 4: (4, 5), 6: (8, 9), 7: (10, 11), 1: (14,)}
    assert placement.place_changes(_gangs({0: 2, 1: 1, 4: 2, 6: 2, 7: 2, 9: 4})).move.tolist() == [1]
    assert placement.gpus_of(9) == (12, 13, 14, 15)


def test_two_jobs_that_share_move_together():
    placement = _buddy(4, 4)
    placement.place(_gangs({0: 1, 1: 1, 2: 1, 3: 1}))
    shared = Assignment.of([0, 1, 2], [0, 0, 0], [1, 1, 1], partner=[1, 0, -1])
    assert placement.place_changes(shared).move.tolist() == [1]
    assert placement.place(shared) == ((0,), (0,), (2,))
    with_another = Assignment.of([0, 1, 2, 5], [0, 0, 0, 0], [1, 1, 1, 2], partner=[1, 0, -1, -1])
    assert placement.place_changes(with_another).move.tolist() == [0, 1]
    assert placement.place(with_another) == ((3,), (3,), (2,), (0, 1))


def test_sizes_that_are_no_powers_of_two():
    placement = _buddy(16, 8)
    # The first three GPUs of a block of 4; the fourth goes to a job alone.
    assert placement.place(_gangs({0: 3, 1: 1})) == ((0, 1, 2), (3,))
    # In pieces beside another; of a pair and a GPU alone the pair is kept.
    placement = _buddy(4, 4)
    placement.place(_gangs({0: 1}))
    assert placement.place(_gangs({0: 1, 1: 3}))[1] == (1, 2, 3)
    assert placement.place(_gangs({0: 1, 1: 2}))[1] == (2, 3)
    # 7 = 4 + 2 + 1 where no block of 8 is free: nobody has to move.
    placement = _buddy(32, 8)
    placement.place(_gangs({0: 2, 1: 4, 2: 8, 3: 4}))
    assert [placement.gpus_of(job) for job in range(4)] == [(16, 17), (8, 9, 10, 11), tuple(range(8)), (12, 13, 14, 15)]
    placement.place(_gangs({0: 2, 1: 4, 2: 8, 4: 8}))
    assert not len(placement.place_changes(_gangs({0: 2, 1: 4, 2: 8, 4: 8, 5: 7})).move)
    assert placement.gpus_of(5) == (12, 13, 14, 15, 18, 19, 20)


@settings(max_examples=40)
@given(data=st.data(), per_server=st.sampled_from([1, 2, 4, 8]))
def test_powers_of_two_always_fit_in_aligned_blocks(data, per_server):
    first, capacity = 3, data.draw(st.sampled_from([8, 16, 32]))
    placement = Placement(Cluster({"other": first, "a": capacity}, {"a": per_server}), "buddy")
    before = {}
    sizes = {}
    job = 0
    for _ in range(data.draw(st.integers(1, 8))):
        sizes = {j: size for j, size in sizes.items() if data.draw(st.booleans())}
        if data.draw(st.booleans()):
            left = capacity - sum(sizes.values())
            for j, size in sizes.items():
                new = data.draw(st.sampled_from([size, size, size, size // 2 or 1, 2 * size]))
                if new - size <= left:
                    left -= new - size
                    sizes[j] = new
        while data.draw(st.integers(0, 4)):
            size = data.draw(st.sampled_from([1, 1, 2, 4, 8]))
            if sum(sizes.values()) + size <= capacity:
                sizes[job] = size
                job += 1
        moved = placement.place_changes(_gangs(sizes, pool=1)).move.tolist()
        gpus = {j: placement.gpus_of(j) for j in sizes}
        flat = [gpu for ids in gpus.values() for gpu in ids]
        assert len(set(flat)) == len(flat)
        assert set(flat) <= set(range(first, first + capacity))
        for j, size in sizes.items():
            start = gpus[j][0]
            assert gpus[j] == tuple(range(start, start + size))
            assert (start - first) % size == 0
            assert len({(gpu - first) // per_server for gpu in gpus[j]}) == -(-size // per_server)
        kept = [j for j in sizes if j in before and len(before[j]) == sizes[j] and gpus[j] == before[j]]
        stayed = [j for j in sizes if j in before and len(before[j]) == sizes[j]]
        assert moved == sorted(set(stayed) - set(kept))
        before = gpus
