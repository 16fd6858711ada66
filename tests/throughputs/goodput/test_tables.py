"""Readers of measured steps and of trainings: every column, and what is said of bad ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from allocator.published.pollux.tables import StepTimes, read_step_times, read_validation
from allocator.published.pollux.trainings import read_trainings
from throughputs import InputError
from throughputs.goodput.trainings import find_trainings
from throughputs.goodput.trainings.jobs import step_time_with

PLACEMENTS = "placement,local_bsz,step_time,sync_time"
SCALABILITY = "num_nodes,num_replicas,local_bsz,step_time,sync_time"
VALIDATION = "progress,iteration,metric,grad_sqr,grad_var"


def validations(folder, less, more):
    (folder / f"validation-{less}.csv").write_text(f"{VALIDATION}\n10,10,0.5,1,2\n20,20,0.6,1,4\n")
    (folder / f"validation-{more}.csv").write_text(f"{VALIDATION}\n11,6,0.4,3,4\n19,11,0.6,3,8\n")


def test_placements_and_scalability(tmp_path):
    one, other = tmp_path / "placements.csv", tmp_path / "scalability.csv"
    one.write_text(f"{PLACEMENTS}\n1,32,0.1,0.001\n44,32,0.2,0.05\n123,16,0.3,0.1\n")
    other.write_text(f"{SCALABILITY}\n6,24,32,0.4,0.1\n")
    steps = StepTimes.joined([read_step_times(one), read_step_times(other)])
    assert steps.nodes.tolist() == [1, 2, 3, 6]
    assert steps.gpus.tolist() == [1, 8, 6, 24]
    assert steps.placement.tolist() == ["1", "44", "123", ""]
    samples = steps.samples()
    np.testing.assert_allclose(samples.gradient_time, [0.099, 0.15, 0.2, 0.3])
    assert samples.step_time.tolist() == [0.1, 0.2, 0.3, 0.4]


def test_trainings(tmp_path):
    validations(tmp_path, 8, 16)
    (tmp_path / "validation-x.csv").write_text("is not one")
    found = read_validation(tmp_path)
    assert found.batch_size.tolist() == [8, 16]
    assert found.epochs == 2
    assert found.least_progress().tolist() == [10, 19]
    square, variance = found.statistics([8, 12, 16], 1)
    assert square.tolist() == [1, 2, 3]
    assert variance.tolist() == [4, 6, 8]
    for asked, field in (((17, 0), "batch_size"), ((8, 2), "epoch")):
        with pytest.raises(InputError, match=field):
            found.statistics(*asked)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("10,10,0.5,1,2\n10,11,0.5,1,2", "8.csv:3: field 'progress': found 10.0"),
        ("10,1,0.5,-1,2\n11,11,0.5,1,2", "8.csv:2: field 'grad_sqr': found -1.0"),
        ("10,10,0.5,1,2", "validation-16.csv: field 'epochs': found 2"),
    ],
)
def test_bad_trainings(rows, message, tmp_path):
    validations(tmp_path, 8, 16)
    (tmp_path / "validation-8.csv").write_text(f"{VALIDATION}\n{rows}\n")
    with pytest.raises(InputError) as caught:
        read_validation(tmp_path)
    assert message in str(caught.value)


def _seconds(nodes, gpus, size):
    """Of a step in `measured`: between what was measured it is what a plane through the measurements says."""
    return 10.0 * nodes + gpus + size / 1000


@pytest.fixture
def measured(tmp_path):
    """Tables of one model: steps on one and two nodes, and on 16 and 17; two trainings of two epochs."""
    folder = tmp_path / "traces" / "net"
    folder.mkdir(parents=True)
    rows = [PLACEMENTS]
    for placement in ("1", "2", "9", "24", "33", "45", "99"):
        nodes, gpus = len(placement), sum(map(int, placement))
        # two placements of as many GPUs on as many nodes, of which one is slower by as much as the other is faster
        more = {"24": 0.5, "33": -0.5}.get(placement, 0.0)
        rows += [f"{placement},{b},{_seconds(nodes, gpus, b) + more},{gpus / 10}" for b in (400, 100)]
    (folder / "placements-gpu.csv").write_text("\n".join([*rows, "1,450,11.45,0.1", ""]))
    (folder / "placements-fast.csv").write_text(f"{PLACEMENTS}\n1,50,1.5,0.1\n1,200,2,0.1\n")
    rows = [f"{nodes},20,{b},{_seconds(nodes, 20, b)},2" for nodes in (8, 16, 17) for b in (100, 400)]
    (folder / "scalability-gpu.csv").write_text("\n".join([SCALABILITY, *rows, ""]))
    validations(folder, 400, 800)
    return folder.parent


def test_steps_where_nothing_was_measured_are_those_between_or_near(measured):
    net = read_trainings(measured).find("net")
    assert net.step_time("gpu", (1,), 250) == pytest.approx((11.25, 0.1))
    assert net.step_time("gpu", (4, 2), 100) == pytest.approx((26.6, 0.6))
    # of (5, 1) nothing is known but that it has 6 GPUs on 2 nodes, as two others have
    assert net.step_time("gpu", (5, 1), 100) == pytest.approx((26.1, 0.6))
    # 800 samples do not fit on one GPU at once: twice 400, which synchronise once
    assert step_time_with(net, "gpu", (1,), 800) == pytest.approx((22.7, 800))
    # between: 20 GPUs on 12 nodes
    assert net.step_time("gpu", (9, *(1,) * 11), 250) == pytest.approx((140.25, 2.0))
    # as many nodes as were measured and more count as 16
    for nodes in (16, 17, 18):
        assert net.step_time("gpu", (20 - nodes + 1, *(1,) * (nodes - 1)), 400) == pytest.approx((180.4, 2.0))
    # beyond: what is next in parts of the extent of each axis, 18 GPUs on two nodes, not 1 GPU with 450 samples
    assert net.step_time("gpu", (8, 8, 8), 440) == pytest.approx((38.4, 1.8))


def test_limits_are_those_of_what_was_measured(measured):
    net = read_trainings(measured).find("net")
    assert (net.least_local, net.largest_local) == (50, {"fast": 200, "gpu": 450})
    assert net.with_largest_local("gpu", 8).largest_local == {"fast": 200, "gpu": 8}
    assert [net.largest_atomic("gpu", shape) for shape in ((1,), (2,), (4, 2))] == [450, 400, 400]
    # as many GPUs as were measured elsewhere, and as many as never were
    assert [net.largest_atomic("gpu", shape) for shape in ((5, 1), (4, 4, 4, 4, 4), (7,))] == [400, 400, np.inf]
    # what rounding makes of a batch has the figures of the largest one, and of the smallest
    assert [net.statistics(size, 1) for size in (399, 400, 600, 800, 801)] == [(1, 4), (1, 4), (2, 6), (3, 8), (3, 8)]
    assert net.epoch_ends.tolist() == [10, 19]
    assert [net.steps(size, epochs) for size, epochs in ((400, 0), (400, 1), (600, 1), (600, 2))] == [0, 10, 8, 15.5]


def test_the_speed_of_one_gpu_is_the_largest_batch_over_the_longest_step(measured):
    """As published; on the fast type the smallest batch was measured to take longest."""
    net = read_trainings(measured).find("net")
    assert net.speed_of_replica("gpu", 4) == pytest.approx(450 / 11.45)
    assert net.speed_of_replica("fast", 4) == pytest.approx(200 / 2)
    (measured / "net" / "placements-fast.csv").write_text(f"{PLACEMENTS}\n1,50,2.5,0.1\n1,200,2,0.1\n")
    net = read_trainings(measured).find("net")
    assert net.speed_of_replica("fast", 4) == pytest.approx(200 / 2.5)
    # a profile has what was measured on one GPU
    assert (net.micro_batches("fast"), net.micro_batches("gpu")) == ((50.0, 200.0), (100.0, 400.0, 450.0))


def test_trainings_are_found_by_name(measured, tmp_path, monkeypatch):
    found = find_trainings(measured)
    assert found is not None
    assert (list(found.models), found.accelerators) == (["net"], ("fast", "gpu"))
    assert find_trainings(tmp_path) is None
    monkeypatch.chdir(tmp_path)
    assert "cifar10" in find_trainings("goodput").models
    # a file of that name is meant where there is one
    Path("goodput").write_text("")
    assert find_trainings("goodput") is None
    with pytest.raises(InputError, match="found 'no model'"):
        read_trainings(tmp_path)
