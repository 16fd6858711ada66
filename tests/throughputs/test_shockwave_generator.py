"""The Shockwave generator: the shipped traces byte for byte, and its settings."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from throughputs import InputError, default_table, read_table, read_trace, write_trace
from throughputs.traces.shockwave_generator import shockwave_trace

SHIPPED = [
    # jobs, durations, mean inter-arrival s, seed, table
    (120, 100, 40, 25, "tacc"),
    (220, 100, 25, 4, "wisr"),
    (460, 100, 10, 1, "wisr"),
    (900, 100, 5, 15, "wisr"),
    (900, 1000, 5, 15, "wisr"),
]


@pytest.mark.parametrize(("n", "durations", "mean", "seed", "measured"), SHIPPED)
def test_shipped_traces_byte_for_byte(n, durations, mean, seed, measured, public_data, tmp_path):
    name = f"{n}_0.2_5_{durations}_{mean}_{seed}_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace"
    original = public_data(f"shockwave/traces/{name}")
    table = read_table(public_data(f"shockwave/{measured}_throughputs.json.gz"))
    trace = shockwave_trace(n, mean, seed=seed, n_durations=durations, table=table)
    write_trace(trace, tmp_path / "mine.trace")
    write_trace(read_trace(original), tmp_path / "read.trace")
    assert (tmp_path / "mine.trace").read_bytes() == original.read_bytes() == (tmp_path / "read.trace").read_bytes()


def test_the_canonical_jobs_without_data():
    # the first jobs of the 120-job trace; its steps need its own table, all else does not
    trace = shockwave_trace(120, 40.0, seed=25)
    assert trace.job_type[:3].tolist() == [
        "LM (batch size 10)",
        "ResNet-18 (batch size 32)",
        "ResNet-50 (batch size 64)",
    ]
    assert trace.duration[:3].tolist() == [1418, 3338, 13462]
    assert trace.arrival_time[[0, 1, 2, -1]].tolist() == [0, 55, 64, 5011]
    assert Counter(trace.mode) == {"static": 4, "accordion": 59, "gns": 57}
    assert Counter(trace.scale_factor.tolist()) == {1: 92, 2: 20, 4: 8}
    assert trace.command[2] == "python3 main.py -j 4 -a resnet50 -b 64 %s/imagenet/"


def test_steps_follow_from_the_table():
    trace = shockwave_trace(300, 10.0, seed=2)
    rates = default_table().rates(trace.job_type, trace.scale_factor, ["v100", "k80"])
    np.testing.assert_array_equal(trace.total_steps, np.floor(trace.duration * rates[:, 0]))
    elsewhere = shockwave_trace(300, 10.0, seed=2, reference_accelerator="k80")
    assert (elsewhere.duration == trace.duration).all()
    np.testing.assert_array_equal(elsewhere.total_steps, np.floor(trace.duration * rates[:, 1]))


def test_each_stream_is_its_own():
    plain = shockwave_trace(200, 30.0, seed=3)
    alone = shockwave_trace(200, 30.0, seed=3, scale_factors={1: 1.0})
    still = shockwave_trace(200, 30.0, seed=3, modes={"static": 1.0})
    assert set(alone.scale_factor) == {1}
    assert set(still.mode) == {"static"}
    for other in (alone, still):
        for column in ("job_type", "duration", "arrival_time"):
            assert (getattr(other, column) == getattr(plain, column)).all()
    longer = shockwave_trace(300, 30.0, seed=3)
    assert longer.head(200).to_frame().equals(plain.to_frame())
    assert shockwave_trace(5, 0.0).arrival_time.tolist() == [0.0] * 5
    assert len(shockwave_trace(0, 30.0)) == 0


def test_mixes_come_out():
    trace = shockwave_trace(6000, 1.0, seed=8, modes={"static": 0.5, "gns": 0.25, "accordion": 0.25})
    distributed = ~np.char.startswith(trace.job_type.astype(str), "Recommendation")
    assert set(trace.scale_factor[~distributed]) == {1}
    for size, share in {1: 0.6, 2: 0.3, 4: 0.09, 8: 0.01}.items():
        assert abs((trace.scale_factor[distributed] == size).mean() - share) < 0.02
    assert abs((trace.mode == "gns").mean() - 0.25) < 0.02
    assert (trace.duration[trace.mode == "accordion"] >= 1000).all()
    assert trace.duration.min() == 720
    assert trace.duration.max() == 18_000
    assert abs((trace.duration < 720 + 0.2 * 17_280).mean() - 0.72) < 0.02


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"n_jobs": -1}, "n_jobs"),
        ({"mean_interarrival": -1.0}, "mean_interarrival"),
        ({"mean_interarrival": float("nan")}, "mean_interarrival"),
        ({"hours": (0.0, 1.0)}, "hours"),
        ({"hours": (2.0, 1.0)}, "hours"),
        ({"n_durations": 4}, "n_durations"),
        ({"scale_factors": {1: 0.5}}, "scale_factors"),
        ({"scale_factors": {0: 1.0}}, "scale_factors"),
        ({"modes": {"dynamic": 1.0}}, "modes"),
        ({"modes": {}}, "modes"),
        ({"reference_accelerator": "v200"}, "accelerator"),
    ],
)
def test_bad_settings(setting, named):
    with pytest.raises(InputError) as error:
        shockwave_trace(**{"n_jobs": 3, "mean_interarrival": 10.0, **setting})
    assert error.value.field == named
