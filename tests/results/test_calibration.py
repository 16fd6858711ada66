"""A policy beside the schedule that a log records: over the same jobs, by hand, and what is said of it."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from allocator import Trace, get_policy, simulate
from allocator.experiments.compare import compare
from allocator.experiments.run import Run
from allocator.presets import preset
from allocator.recorded import recorded_schedule
from allocator.report.figures import FIGURES, OFF, best_rows
from allocator.results.measures.calibration import Calibration, answer

FREE = {"gang_rates": "duration", "restart_penalty_seconds": 0.0, "restart_penalty_by_gpus": ()}
HOUR = 3600.0


def log(**changes: object) -> Trace:
    """Five jobs on one GPU of each of two types; of the fourth it is not known on which it ran."""
    columns = {
        "job_type": ["job"] * 5,
        "scale_factor": [1] * 5,
        "total_steps": [HOUR, HOUR, 60.0, HOUR, HOUR],
        "arrival_time": [0.0, 0.0, 60.0, 60.0, 90.0],
        "duration": [HOUR, HOUR, 60.0, HOUR, HOUR],
        "gpu_type": ["a", "b", "a", "", "c"],
        "partition": ["", "", "", "", "a"],
        "recorded_start_seconds": [0.0, 600.0, 2 * HOUR, 60.0, 9000.0],
        "recorded_end_seconds": [HOUR, 600.0 + HOUR, 2 * HOUR + 60.0, 60.0 + HOUR, 9000.0 + HOUR],
        "recorded_status": ["completed", "failed", "timed_out", "", "cancelled"],
    }
    return Trace(**columns | changes)


def test_all_rows_are_of_the_jobs_that_the_log_places() -> None:
    runs = [Run("trace", name, "a:1,b:1", workload=log(), settings=FREE) for name in ("srtf", "slurm")]
    compared = compare(runs)
    assert [(row["label"] if "label" in row else row["policy"], row["jobs"], row["completed_jobs"])
            for row in compared.summaries] == [("recorded", 4, 4), ("srtf", 4, 4), ("slurm", 4, 4)]  # fmt: skip
    assert compared.summaries[0]["average_queueing_time"] == pytest.approx((600 + 2 * HOUR - 60 + 8910) / 4)
    # they ran beside the one that does not count, and ended as they did
    assert compared.results[2].jobs["status"].tolist() == ["completed", "failed", "timed_out", "completed", "cancelled"]
    assert [compared.summaries[2][f"{name}_jobs"] for name in ("failed", "timed_out", "cancelled")] == [1, 1, 1]
    # nor is its GPU time in the utilisation, nor its end in the makespan
    for row, result in zip(compared.summaries, compared.results, strict=True):
        assert row["utilization"] * row["makespan"] * 2 == pytest.approx(3 * HOUR + 60.0)
        assert row["makespan"] == result.jobs["completion_time"][[0, 1, 2, 4]].max()
        assert sum(each["gpu_hours"] for each in row["by_accelerator"]) == pytest.approx(3 + 1 / 60)
    notes = " ".join(compared.notes)
    for told in ("1 of 5 jobs", "of 5 jobs 1 failed", "1 timed out", "1 cancelled"):
        assert told in notes
    # slurm stands for what the cluster has, wherever it is in the list
    assert compared.calibration is not None
    assert compared.calibration.policy == "slurm"
    assert compared.summaries[0][OFF].keys() >= {"average_jct", "makespan"}


def test_slowdown_counts_ten_minutes_and_is_over_the_same_in_all_runs() -> None:
    trace = log(gpu_type=["a"] * 5).take(slice(3))
    settings = FREE | {"restart_penalty_seconds": 40.0}
    usual = preset("default").replace(**settings)
    simulated = simulate(trace, "a:1", get_policy("slurm"), preset=usual)
    assert simulated.jobs["jct"].tolist() == [HOUR + 40, 2 * HOUR + 80, 2 * HOUR + 180 - 60]
    for result in simulated, recorded_schedule(trace, "a:1", preset=usual):
        slowdown = result.jobs["jct"] / [HOUR, HOUR, 600]
        assert result.jobs["bounded_slowdown"].tolist() == pytest.approx(slowdown.tolist())
    plain = simulate(log(recorded_status=None), "a:1,b:1", get_policy("slurm"), [[1.0, 1.0]] * 5)
    assert "bounded_slowdown" not in plain.jobs


def jobs_of(starts: list[float]) -> pd.DataFrame:
    gpus = [1, 1, 4, 8]
    return pd.DataFrame({"scale_factor": gpus, "start_time": starts, "queueing_time": starts, "jct": starts})


def test_how_near_by_hand() -> None:
    recorded, simulated = jobs_of([0.0, HOUR, 2 * HOUR, 9 * HOUR]), jobs_of([600.0, HOUR, 3 * HOUR, 8 * HOUR])
    found = Calibration.of("slurm", recorded, simulated)
    assert found is not None
    assert found.starts_near == 0.5
    table = found.table.set_index("part")
    assert table.loc["mean", "off"] == pytest.approx((12 + 1 / 6) / 12 - 1)
    assert table.loc["2-4 GPUs", ["recorded", "simulated", "off"]].tolist() == [2 * HOUR, 3 * HOUR, 0.5]
    assert table.loc["1 GPU", "jobs"] == 2
    assert Calibration.of("slurm", recorded, simulated.assign(jct=float("nan"))) is None
    nobody = jobs_of([0.0] * 4)
    assert Calibration.of("slurm", nobody, nobody).table["off"].isna().all()


def test_three_sentences_say_what_was_what_is_and_what_would_be() -> None:
    found = Calibration.of("slurm", jobs_of([10 * HOUR] * 4), jobs_of([11 * HOUR] * 4))
    waits = {"under slurm": 11 * HOUR, "under x": 2.25 * HOUR, "with 8 more a": 2 * HOUR}
    rows = [((words,), {"average_queueing_time": wait}) for words, wait in waits.items()]
    told = answer({"average_queueing_time": 10 * HOUR}, rows, found, {("with 8 more a",): 16012.0})
    first, second, third = re.split(r"(?<=\.) (?=[A-Z])", told)
    assert "10 h" in first
    assert all(word in second for word in ("slurm", "11 h", "a factor of 1.10", "0%"))
    assert all(word in third for word in ("8 more a", "2.0 h", "1.8 h to 2.2 h", "$16,000"))
    # a simulation that is low by a factor of 4 may be so of the others, and what differs by less is no difference
    low = Calibration.of("slurm", jobs_of([8 * HOUR] * 4), jobs_of([2 * HOUR] * 4))
    eight, two = {"average_queueing_time": 8 * HOUR}, (("under slurm",), {"average_queueing_time": 2 * HOUR})
    told = answer(eight, [two, (("under x",), {"average_queueing_time": 0.4 * HOUR})], low)
    assert "factor of 4.0" in told
    assert "24 min, or 6 min to 1.6 h" in told
    rows_of = [two, *(((f"under {name}",), {"average_queueing_time": h * HOUR}) for name, h in (("x", 0.6), ("y", 7)))]
    told = answer(eight, rows_of, low)
    assert "No other row differs from the one under slurm by more than" in told
    assert told.endswith("under x it is 36 min, under y 7.0 h.")
    rows_of[2][1]["average_queueing_time"] = 9 * HOUR  # more than four times two hours
    assert "No other row is below the one under slurm" in answer(eight, rows_of, low)
    nearly = Calibration.of("slurm", jobs_of([8 * HOUR] * 4), jobs_of([1.0] * 4))
    assert "off by a factor of at least 480" in answer(eight, [two], nearly)
    close = answer(
        {"average_queueing_time": 10 * HOUR}, [rows[0], (("under x",), {"average_queueing_time": 10.5 * HOUR})], found
    )
    assert "No other" in close
    assert answer(None, [(("under x",), {"average_queueing_time": None})], None) == ""
    # what two changes bring is told of each of them alone, too
    waits = [
        (("under y",), 9.0),
        (("with 8 more a",), 7.0),
        (("under x, which knows",), 3.0),
        (("with 8 more a", "under x, which knows"), 2.0),
    ]
    both = answer(None, [(words, {"average_queueing_time": wait * HOUR}) for words, wait in waits], None)
    assert both.endswith("it would have been 2.0 h; 7.0 h with 8 more a alone; 3.0 h under x alone.")
    some = [(("under x",), {"average_queueing_time": HOUR, "completed_jobs": done}) for done in (139, 140)]
    # before what is said of the two
    assert re.search("139 to 140 jobs, .* compare with care. .* one under x", answer(None, some, None))
    assert "with care" not in answer(None, some[:1] * 2, None)


def test_what_is_no_larger_than_noise_is_not_marked() -> None:
    figure = next(each for each in FIGURES if each.key == "average_jct")
    rows = [{"average_jct": jct * HOUR, "completed_jobs": 9} for jct in (10.0, 9.0, 5.0, 4.8)]
    assert best_rows(figure, rows) == {3}
    rows[0][OFF] = {"average_jct": 0.1}
    assert best_rows(figure, rows) == {2, 3}
    assert best_rows(figure, rows[:2]) == set()
    # nor what cannot be
    busy = next(each for each in FIGURES if each.key == "utilization")
    shares = [{"utilization": share, "completed_jobs": 9} for share in (1.106, 0.8, 1.0)]
    assert best_rows(busy, shares) == {2}
    # of means over seeds, what lies within their intervals
    apart = [{"average_jct": width * HOUR} for width in (0.1, 0.1, 0.1, 0.05)]
    assert best_rows(figure, [{**row, OFF: {}} for row in rows], apart) == {3}
    assert best_rows(figure, [{**row, OFF: {}} for row in rows], [{"average_jct": HOUR}] * 4) == {2, 3}
