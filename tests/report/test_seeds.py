import re
from typing import Any

import numpy as np
import pytest
from scipy import stats

from allocator.report.page.seeds import Policies, half_width
from allocator.report.page.tables import differences_section
from allocator.report.terminal import differences_table
from allocator.results.shown import as_text


def run(policy: str, seed: int | None, **figures: Any) -> dict[str, Any]:
    return {"policy": policy, "cluster": "v100:8", **figures, "settings": {"preset": "default", "seed": seed}}


def test_half_width_is_that_of_students_interval() -> None:
    values = [3.0, 4.5, 5.0, 9.0]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert half_width(values) == pytest.approx((high - low) / 2)
    assert np.isnan(half_width([3.0]))
    assert np.isnan(half_width([2.0, 2.0]))


def test_runs_with_seeds_of_their_own_are_one_policy() -> None:
    runs = [run("fifo", 0, average_jct=10.0), run("srtf", 0, average_jct=5.0), run("fifo", 1, average_jct=20.0)]
    runs = [{**each, "makespan": 30.0} for each in runs]  # which no draw changes
    policies = Policies.of(runs)
    assert policies.of_run == (0, 1, 0)
    assert [summary["average_jct"] for summary in policies.summaries] == [15.0, 5.0]
    assert policies.half_widths[0] == pytest.approx({"average_jct": half_width([10.0, 20.0])})
    assert policies.half_widths[1] == {}
    assert policies.most_runs == 2
    assert policies.run_names(["fifo", "srtf"], runs) == ["fifo, seed 0", "srtf", "fifo, seed 1"]


@pytest.mark.parametrize(
    "other",
    [
        run("fifo", 0, average_jct=20.0),
        run("fifo", None, average_jct=20.0),
        run("fifo", 1, average_jct=20.0, label="fifo:age=2"),
        run("fifo", 1, average_jct=20.0) | {"cluster": "v100:16"},
    ],
)
def test_runs_that_differ_in_anything_else_stand_alone(other: dict[str, Any]) -> None:
    policies = Policies.of([run("fifo", 0, average_jct=10.0), other])
    assert policies.of_run == (0, 1)
    assert policies.half_widths == ({}, {})


def test_rows_of_the_same_part_are_averaged() -> None:
    small = [{"gpus": "1", "jobs": 4, "average_jct": 2.0}]
    both = [{"gpus": "1", "jobs": 6, "average_jct": 4.0}, {"gpus": "2-4", "jobs": 1, "average_jct": 9.0}]
    (summary,) = Policies.of([run("fifo", 0, by_size=small), run("fifo", 1, by_size=both)]).summaries
    assert summary["by_size"] == [
        {"gpus": "1", "jobs": 5.0, "average_jct": 3.0},
        {"gpus": "2-4", "jobs": 1, "average_jct": 9.0},
    ]


def test_differences_are_of_pairs_with_the_same_seed() -> None:
    fifo = [run("fifo", seed, average_jct=jct) for seed, jct in enumerate([10.0, 20.0, 40.0])]
    srtf = [run("srtf", seed, average_jct=jct) for seed, jct in ((2, 37.0), (0, 8.0), (1, 16.0))]
    runs = [*fifo, *srtf, run("las", 0, average_jct=1.0)]
    first, last = Policies.of(runs).differences(runs)
    assert (first["policy"], first["baseline"], first["pairs"], last["pairs"]) == ("srtf", "fifo", 3, 1)
    paired = stats.ttest_rel([37.0, 8.0, 16.0], [40.0, 10.0, 20.0]).confidence_interval(0.95)
    mean, half = first["mean"]["average_jct"], first["half_width"]["average_jct"]
    assert (mean - half, mean + half) == pytest.approx((paired.low, paired.high))
    assert half < Policies.of(runs).half_widths[0]["average_jct"] / 10
    assert last["mean"] == {}
    # a run that was cut short is of no pair, and one pair has no interval
    cut = [
        each | {"status": "saturated", "status_detail": "11 wait"} if each["settings"]["seed"] else each
        for each in srtf
    ]
    policies = Policies.of(fifo + cut)
    assert policies.differences(fifo + cut) == []
    # nor has its policy means of what depends on which jobs completed
    assert policies.summaries[1]["average_jct"] is None
    assert policies.half_widths[1] == {}
    assert policies.summaries[1]["status_detail"] == "seed 2, 1: 11 wait; times have no means"


def test_a_page_tells_differences_that_are_none_from_others() -> None:
    times = {"fifo": [10.0, 20.0, 40.0], "srtf": [8.0, 16.0, 37.0], "las": [40.0, 20.0, 11.0]}
    runs = [
        run(policy, seed, average_jct=3600 * jct) for policy, jcts in times.items() for seed, jct in enumerate(jcts)
    ]
    policies = Policies.of(runs)
    page = differences_section(policies, policies.differences(runs))
    srtf, las = re.findall(r"<tr data-policy.*?</tr>", page)
    assert re.search(r'class="better" data-value="-3">-3.000 <small class="interval">±2.484</small>', srtf)
    assert "better" not in las
    assert ">+0.333" in las
    assert differences_section(Policies.of(runs[:1]), []) == ""
    text = as_text([differences_table(policies.summaries, policies.differences(runs))])
    assert re.search(r"srtf +-3.000 ± 2.484\*", text)
    assert re.search(r"las +\+0.333 ± [\d.]+\n", text)
