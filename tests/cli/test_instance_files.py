"""Instances with deadlines and prices: read, solved, shown."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import allocator
from allocator.instance import allocation_to_json, read_instance, state_from_json
from throughputs import InputError

PACKED = "max_sum_throughput_normalized_by_cost_packed_SLOs"
PLAIN = "max_sum_throughput_normalized_by_cost_perf_SLOs"
INSTANCE = {
    "cluster": {"v100": 1, "k80": 1},
    "gpu_prices": {"v100": 0.74, "k80": 0.135},
    "jobs": [
        {"job_id": "a", "throughputs": {"v100": 4.0, "k80": 1.0}, "num_steps_remaining": 7200, "slo_seconds": 3600},
        {"job_id": "b", "throughputs": {"v100": 3.0, "k80": 1.0}, "num_steps_remaining": 9000, "slo_seconds": 3600},
        {"job_id": "c", "throughputs": {"v100": 2.0, "k80": 1.5}, "num_steps_remaining": 90000, "slo_seconds": 3600},
        {"job_id": "d", "throughputs": {"v100": 2.0, "k80": 1.5}, "num_steps_remaining": 90000, "slo_seconds": None},
    ],
    "pairs": [
        {"pair": ["a", "b"], "throughputs": {"v100": [3.0, 2.4], "k80": [0.2, 0.4]}},
        {"pair": ["c", "d"], "throughputs": {"v100": [1.0, 1.4], "k80": [1.0, 1.0]}},
    ],
}


def solve(path, *arguments):
    command = [sys.executable, "-m", "allocator", "solve", str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_deadlines_and_prices_are_read(tmp_path):
    path = tmp_path / "instance.json.gz"
    path.write_bytes(gzip.compress(json.dumps(INSTANCE).encode()))
    state = read_instance(path)
    np.testing.assert_array_equal(state.slo_seconds, [3600, 3600, 3600, np.inf])
    np.testing.assert_array_equal(state.gpu_prices, [0.74, 0.135])
    bare = state_from_json({"cluster": {"v100": 1}, "jobs": [{"throughputs": {"v100": 1.0}}]})
    np.testing.assert_array_equal(bare.gpu_prices, [1.0])
    np.testing.assert_array_equal(bare.slo_seconds, [np.inf])


def test_past_deadlines_are_read():
    late = {"cluster": {"v100": 1}, "jobs": [{"throughputs": {"v100": 1.0}, "slo_seconds": -5}]}
    assert allocator.get_policy(PLAIN).allocate(state_from_json(late)).dropped_slos == (0,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpu_prices": {"v100": 1.0}}, "also a price of k80"),
        ({"gpu_prices": [1.0, 2.0]}, "dollars per GPU hour"),
        ({"gpu_prices": {"v100": 1.0, "k80": "cheap"}}, "gpu_prices.k80"),
        ({"gpu_prices": {"v100": 1.0, "k80": -1.0}}, "at least 0"),
        ({"jobs": [INSTANCE["jobs"][0] | {"slo_seconds": "soon"}], "pairs": None}, r"jobs\[0\].slo_seconds"),
        ({"jobs": [INSTANCE["jobs"][0] | {"slo_seconds": float("inf")}], "pairs": None}, "or null"),
        ({"jobs": [INSTANCE["jobs"][0] | {"slo_seconds": True}], "pairs": None}, "or null"),
    ],
)
def test_bad_ones_say_so(change, message):
    with pytest.raises(InputError, match=message):
        state_from_json(INSTANCE | change)


def test_given_up_deadlines_are_in_the_answer(tmp_path):
    """Job c needs 25 steps/s and no type does more than 2; a and b meet theirs only on one GPU together."""
    path = tmp_path / "instance.json"
    path.write_text(json.dumps(INSTANCE))
    answer = json.loads(solve(path, "--policy", PACKED))
    assert answer["dropped_slos"] == ["c"]
    assert answer["effective_throughput"]["a"] >= 2.0
    assert answer["effective_throughput"]["b"] >= 2.5 - 1e-9
    assert ["a", "b"] in [entry["jobs"] for entry in answer["allocation"]]
    plain = json.loads(solve(path, "--policy", PLAIN))
    assert len(plain["dropped_slos"]) == 2


def test_table_shows_pairs_and_given_up_deadlines(tmp_path):
    path = tmp_path / "instance.json"
    path.write_text(json.dumps(INSTANCE))
    text = " ".join(solve(path, "--policy", PACKED, "--table").split())
    assert "a + b 1 0.833 0.000 2.5 + 2" in text
    assert "c + d 1 0.000 1.000 1 + 1" in text
    assert "deadlines given up: c;" in text
    assert "jobs that share GPUs" in text


def test_one_call_takes_deadlines_and_prices():
    speeds = pd.DataFrame({"v100": [4.0, 3.0], "k80": [1.0, 2.0]}, index=["a", "b"])
    jobs = pd.DataFrame({"steps_remaining": [7200.0, 5400.0], "slo_seconds": [3600.0, np.nan]}, index=["a", "b"])
    prices = {"v100": 0.74, "k80": 0.135}
    answer = allocator.solve(PLAIN, speeds, "v100:1,k80:1", jobs=jobs, gpu_prices=prices)
    assert answer.dropped_slos == ()
    assert answer.effective_throughput[0] >= 2.0 - 1e-9
    state = state_from_json(
        {
            "cluster": {"v100": 1, "k80": 1},
            "gpu_prices": prices,
            "jobs": [
                {
                    "job_id": "a",
                    "throughputs": {"v100": 4.0, "k80": 1.0},
                    "num_steps_remaining": 7200,
                    "slo_seconds": 3600,
                },
                {"job_id": "b", "throughputs": {"v100": 3.0, "k80": 2.0}, "num_steps_remaining": 5400},
            ],
        }
    )
    same = allocation_to_json(allocator.get_policy(PLAIN).allocate(state))
    assert same["objective"] == answer.objective
    with pytest.raises(InputError, match="k80"):
        allocator.solve(PLAIN, speeds, "v100:1,k80:1", jobs=jobs, gpu_prices={"v100": 0.74})
