"""Readers of measured steps and of trainings: every column, and what is said of bad ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.reference import goodput_cases as cases
from throughputs import InputError
from throughputs.goodput.tables import StepTimes, read_step_times, read_validation

PLACEMENTS = "placement,local_bsz,step_time,sync_time"
SCALABILITY = "num_nodes,num_replicas,local_bsz,step_time,sync_time"
VALIDATION = "progress,iteration,metric,grad_sqr,grad_var"


def test_placements_and_scalability(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        (
            PLACEMENTS,
            "40,32,0.1,0",
            "steps.csv:3: field 'placement': found '40', expected GPUs from 1 to 9 on each node",
        ),
        (PLACEMENTS, "x,32,0.1,0", "steps.csv:3: field 'placement': found 'x'"),
        (PLACEMENTS, "1,0,0.1,0", "steps.csv:3: field 'local_bsz': found 0.0, expected a batch size above 0"),
        (PLACEMENTS, "1,32,inf,0", "steps.csv:3: field 'step_time': found inf, expected seconds above 0"),
        (PLACEMENTS, "1,32,0.1,-1", "steps.csv:3: field 'sync_time': found -1.0, expected seconds, at least 0"),
        (SCALABILITY, "0,1,32,0.1,0", "steps.csv:3: field 'num_nodes': found 0, expected at least 1 node"),
        (SCALABILITY, "2,1,32,0.1,0", "steps.csv:3: field 'num_replicas': found 1, expected at least as many"),
    ],
)
def test_bad_steps(header: str, row: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    good = "1,32,0.1,0" if header == PLACEMENTS else "1,1,32,0.1,0"
    path.write_text(f"{header}\n{good}\n{row}\n")
    with pytest.raises(InputError) as caught:
        read_step_times(path)
    assert message in str(caught.value)


def test_trainings(tmp_path: Path) -> None:
    (tmp_path / "validation-8.csv").write_text(f"{VALIDATION}\n10,10,0.5,1,2\n20,20,0.6,1,4\n")
    (tmp_path / "validation-16.csv").write_text(f"{VALIDATION}\n11,6,0.4,3,4\n19,11,0.6,3,8\n")
    (tmp_path / "validation-x.csv").write_text("is not one")
    found = read_validation(tmp_path)
    assert found.batch_size.tolist() == [8, 16]
    assert found.epochs == 2
    assert found.least_progress().tolist() == [10, 19]
    square, variance = found.statistics([8, 12, 16], 1)
    assert square.tolist() == [1, 2, 3]
    assert variance.tolist() == [4, 6, 8]
    with pytest.raises(InputError, match=r"field 'batch_size': found 17\.0, expected from 8 to 16"):
        found.statistics(17, 0)
    with pytest.raises(InputError, match="field 'epoch': found 2, expected 0 to 1"):
        found.statistics(8, 2)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("10,10,0.5,1,2\n10,11,0.5,1,2", "8.csv:3: field 'progress': found 10.0, expected a number above that of the"),
        ("10,0,0.5,1,2\n11,11,0.5,1,2", "8.csv:2: field 'iteration': found 0.0, expected a number above"),
        ("10,1,0.5,-1,2\n11,11,0.5,1,2", "8.csv:2: field 'grad_sqr': found -1.0, expected a number of at least 0"),
        ("10,1,inf,1,2\n11,11,0.5,1,2", "8.csv:2: field 'metric': found inf, expected a number"),
        ("10,10,0.5,1,2", "validation-16.csv: field 'epochs': found 2, expected 1, as in validation-8.csv"),
        ("", "validation-8.csv: found 'no row', expected one for each epoch"),
    ],
)
def test_bad_trainings(rows: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "validation-8.csv").write_text(f"{VALIDATION}\n{rows}\n" if rows else f"{VALIDATION}\n")
    (tmp_path / "validation-16.csv").write_text(f"{VALIDATION}\n11,6,0.4,3,4\n19,11,0.6,3,8\n")
    with pytest.raises(InputError) as caught:
        read_validation(tmp_path)
    assert message in str(caught.value)


def test_a_folder_without_trainings(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected files validation-BATCHSIZE\.csv"):
        read_validation(tmp_path)


def test_all_published_tables(public_data: Callable[[str], Path], tmp_path: Path) -> None:
    tables = cases.unpacked(public_data("pollux_sia/sia_traces.tar.xz"), tmp_path)
    files = [path for kind in ("placements", "scalability") for path in sorted(tables.rglob(f"{kind}*.csv"))]
    rows = sum(len(read_step_times(path)) for path in files)
    assert (len(files), rows) == (88, 30547)
    for case in cases.with_goodput():
        trained = read_validation(tables / case["app"])
        square, variance = trained.statistics(case["init_batch_size"], case["grad_epoch"])
        assert trained.batch_size[0] == case["init_batch_size"]
        assert min(square, variance) > 0
