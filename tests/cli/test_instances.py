"""Instances of one decision: read from files and the standard input, solved, refused."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import allocator
from allocator.instance import read_instance, state_from_json
from formulations.solving.backends import BACKENDS
from tests.cli.command import ran, refused, run

PACKED = "max_sum_throughput_normalized_by_cost_packed_SLOs"
PLAIN = "max_sum_throughput_normalized_by_cost_perf_SLOs"
INSTANCE = {
    "cluster": {"v100": 1, "k80": 1},
    "gpu_prices": {"v100": 0.74, "k80": 0.135},
    "jobs": [
        {"job_id": name, "throughputs": {"v100": fast, "k80": slow}, "num_steps_remaining": steps, "slo_seconds": slo}
        for name, fast, slow, steps, slo in (
            ("a", 4.0, 1.0, 7200, 3600), ("b", 3.0, 1.0, 9000, 3600), ("c", 2.0, 1.5, 90000, 3600),
            ("d", 2.0, 1.5, 90000, None),
        )
    ],
    "pairs": [
        {"pair": ["a", "b"], "throughputs": {"v100": [3.0, 2.4], "k80": [0.2, 0.4]}},
        {"pair": ["c", "d"], "throughputs": {"v100": [1.0, 1.4], "k80": [1.0, 1.0]}},
    ],
}  # fmt: skip


@pytest.fixture
def instance(folder: Path) -> Path:
    Path("i.json").write_text(json.dumps(INSTANCE))
    return folder


@pytest.mark.usefixtures("instance")
def test_a_decision_is_printed_or_written_and_solvers_agree() -> None:
    assert ran("solve i.json --policy isolated --out o.json").out == ""
    answer = json.loads(Path("o.json").read_text())
    assert answer["effective_throughput"] == pytest.approx({"a": 1.25, "b": 1.0, "c": 0.875, "d": 0.875})
    asked = "solve i.json --policy min_total_duration_perf"
    one, other = json.loads(ran(asked).out), json.loads(ran(f"{asked} --solver highs").out)
    assert (other["solver"], other["objective"]) == ("highs", pytest.approx(one["objective"], rel=1e-8))
    piped = json.loads(ran(asked.replace("i.json", "-"), given=json.dumps(INSTANCE).encode()).out)
    assert {**piped, "seconds": 0} == {**one, "seconds": 0}
    assert all(name in ran("solve --help").out for name in BACKENDS)
    cannot = run("solve i.json --policy nash_welfare --solver highs")
    assert (cannot.code, len(cannot.err.splitlines())) == (1, 1)
    assert "NashWelfare" in cannot.err


@pytest.mark.usefixtures("instance")
def test_given_up_deadlines_are_in_the_answer() -> None:
    """Job c needs 25 steps/s and no type does more than 2; a and b meet theirs only on one GPU together."""
    answer = json.loads(ran(f"solve i.json --policy {PACKED}").out)
    assert answer["dropped_slos"] == ["c"]
    assert answer["effective_throughput"]["a"] >= 2.0
    assert answer["effective_throughput"]["b"] >= 2.5 - 1e-9
    assert ["a", "b"] in [entry["jobs"] for entry in answer["allocation"]]
    assert len(json.loads(ran(f"solve i.json --policy {PLAIN}").out)["dropped_slos"]) == 2


def test_deadlines_and_prices_are_read(tmp_path: Path) -> None:
    path = tmp_path / "instance.json.gz"
    path.write_bytes(gzip.compress(json.dumps(INSTANCE).encode()))
    state = read_instance(path)
    assert state.slo_seconds.tolist() == [3600, 3600, 3600, np.inf]
    assert state.gpu_prices.tolist() == [0.74, 0.135]
    job = {"throughputs": {"v100": 1.0}}
    bare = state_from_json({"cluster": {"v100": 1}, "jobs": [job]})
    assert (bare.gpu_prices.tolist(), bare.slo_seconds.tolist()) == ([1.0], [np.inf])
    late = state_from_json({"cluster": {"v100": 1}, "jobs": [job | {"slo_seconds": -5}]})
    assert allocator.get_policy(PLAIN).allocate(late).dropped_slos == (0,)


def test_one_call_takes_deadlines_and_prices() -> None:
    speeds = pd.DataFrame({"v100": [4.0, 3.0], "k80": [1.0, 1.0]}, index=["a", "b"])
    jobs = pd.DataFrame({"steps_remaining": [7200.0, 9000.0], "slo_seconds": [3600.0, np.nan]}, index=["a", "b"])
    answer = allocator.solve(PLAIN, speeds, "v100:1,k80:1", jobs=jobs, gpu_prices=INSTANCE["gpu_prices"])
    assert answer.dropped_slos == ()
    assert answer.effective_throughput[0] >= 2.0 - 1e-9
    first, second = INSTANCE["jobs"][:2]
    same = state_from_json(INSTANCE | {"jobs": [first, second | {"slo_seconds": None}], "pairs": None})
    assert allocator.get_policy(PLAIN).allocate(same).objective == answer.objective
    with pytest.raises(allocator.InputError, match="k80"):
        allocator.solve(PLAIN, speeds, "v100:1,k80:1", jobs=jobs, gpu_prices={"v100": 0.74})


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("cluster", None, "field 'cluster'"),
        ("gpu_prices", {"v100": 1.0}, "gpu_prices k80"),
        ("gpu_prices", [1.0, 2.0], "gpu_prices"),
        ("gpu_prices.k80", "cheap", "gpu_prices.k80 'cheap'"),
        ("gpu_prices.k80", -1.0, "gpu_prices k80"),
        ("jobs.0.slo_seconds", "soon", "jobs[0].slo_seconds 'soon' null"),
        ("jobs.0.slo_seconds", True, "jobs[0].slo_seconds null"),
        ("jobs.0.slo_seconds", 1e300, "jobs[0].slo_seconds 1e+12"),
        ("jobs.1.throughputs", {"v100": 1.0}, "jobs[1].throughputs k80"),
        ("jobs.0.throughputs.v100", "fast", "jobs[0].throughputs.v100 'fast'"),
        ("jobs.0.scale_factor", 0, "jobs[0].scale_factor"),
        ("jobs.0.job_id", "b", "distinct"),
        ("jobs.1.priority_weight", -1, "jobs[1].priority_weight"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("folder")
def test_bad_instances_name_file_and_field(place: str, value: object, words: str) -> None:
    data = copy.deepcopy(INSTANCE)
    *parents, last = (int(part) if part.isdigit() else part for part in place.split("."))
    within = data
    for part in parents:
        within = within[part]
    within[last] = value
    if value is None:
        del within[last]
    Path("bad.json").write_text(json.dumps(data))
    message = refused("solve bad.json --policy isolated")
    assert message.startswith("error: bad.json")
    assert [word for word in words.split() if word not in message] == [], message


@pytest.mark.usefixtures("folder")
def test_broken_json_says_where() -> None:
    text = '{"cluster": {"v100": 1},\n "jobs": [}'
    Path("bad.json").write_text(text)
    assert "bad.json:2" in refused("solve bad.json --policy isolated")
    assert "standard input:2" in refused("solve - --policy isolated", given=text.encode())
    assert "standard input: field 'jobs'" in refused("solve - --policy isolated", given=b'{"cluster": {"v100": 1}}')
