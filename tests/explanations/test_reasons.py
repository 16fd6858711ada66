"""Each reason on a cluster small enough to know it by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from allocator import Assignment, InputError, Plan, PlanPolicy, PlanStep, explain
from allocator.results.output import save_result
from tests.explanations.worlds import run_of, trace_of
from tests.simulator.worlds import SharesPolicy


def parts(result, job, **when):
    """Reasons of the first wait with their start and end, and what would have let the job run."""
    told = explain(result, job, **when)
    wait = told.waits[0]
    changes = [] if wait.moment is None else [change.text for change in wait.moment.changes]
    return [(stretch.reason, stretch.start, stretch.end) for stretch in wait.stretches], changes, told


class First(PlanPolicy):
    """Runs the first job, and sends all others away, or leaves them out."""

    name = "first"

    def __init__(self, picky):
        self.picky = picky

    def plan(self, state, memory):  # noqa: ARG002
        away = [np.arange(1, state.n_jobs)] if self.picky else []
        return Plan.until_next_event(Assignment.of([0], [0], [1]), *away)


def case(reasons, seconds, gpus, job=-1, arrivals=None, cluster="v100:1", policy="fifo", changes=None, **settings):
    columns = {name: settings.pop(name) for name in ("entity",) if name in settings}
    return reasons, job % len(gpus), trace_of(seconds, gpus, arrivals, **columns), cluster, policy, settings, changes


QUOTAS = {"quotas": {"a.v100": 2, "b.v100": 2}, "cohorts": "none"}
LATE = {"recompute_interval_seconds": 500, "idle_fill": "off"}
FAIR = "max_min_fairness_perf"
EXACT = {"solver": "highs"}  # shares to the last digit, so that turns of jobs that are owed the same are known
CASES = {
    "a gang that does not fit": case(
        "100 gang_does_not_fit 1000", [1000, 500, 100], [1, 4, 1], 1, [0, 100, 200], "v100:4",
        changes=["1 GPU more of v100", "a gang of 3 GPUs, as fast for its size", "no job 0 (1 GPU; ran)"],
    ),
    "nobody passes it in the line": case(
        "200 queue_blocked 1000 no_gpus_free 1500", [1000, 500, 100], [1, 4, 1], 2, [0, 100, 200], "v100:4",
        changes=["2 GPUs more of v100 (with 1 it waits)", "no job 1 (4 GPUs; waited, too)"],
    ),
    "others wait before": case("0 ranked_behind 300 no_gpus_free 600", [300] * 3, [1] * 3),
    "the first in the line": case("0 no_gpus_free 300", [300] * 3, [1] * 3, 1),
    "behind a gang that nothing can run": case("0 no_gpus_free 300", [300] * 3, [8, 1, 1]),
    "two jobs of one GPU are worth more": case(
        "0 no_share 300", [300, 300, 100], [1, 1, 2], cluster="v100:2", policy="max_sum_throughput_perf",
        changes=["1 GPU more of v100", "no job 1 (1 GPU; ran)"],
    ),
    "a shorter one preempts": case(
        "300 ranked_behind 500", [1000, 200], [1, 1], 0, [0, 300], policy="srtf",
        changes=["1 GPU more of v100", "no job 1 (1 GPU; ran)"],
    ),
    "a quota is used up": case(
        "0 quota 300", [300, 400, 500], [1] * 3, cluster="v100:4", policy="quotas", entity=["a"] * 3,
        policy_settings=QUOTAS, entities={"a": 1, "b": 1}, changes=["no job 1 (1 GPU; ran)"],
    ),
    "a pool is closed": case(
        "0 no_gpus_free 500", [500, 100], [1, 1], cluster="v100:1,k80:1", policy="fifo_perf",
        rates=np.array([[1.0, 0.0], [1.0, 0.0]]),
        changes=["1 GPU more of v100", "leave to run on k80, as fast as on v100", "no job 0 (1 GPU; ran)"],
    ),
    "no type can run it": case("0 excluded 300", [300, 100], [1, 8], cluster="v100:4", policy="fifo_perf", changes=[]),
    "sent away at the end of a slot of 80 s": case(
        "50 rejected 80", [500, 500], [1, 1], 1, [0, 50], policy=First(True), slot_seconds=80
    ),
    "left out by the policy": case("0 left_out 300", [300, 100], [1, 1], cluster="v100:2", policy=First(False)),
    "it came in the middle of a round": case("130 next_round 200", [500, 100], [1, 1], 1, [0, 130], "v100:2", FAIR),
    "decisions are 500 s apart": case("100 undecided 500", [1000, 100], [1, 1], 1, [0, 100], "v100:2", FAIR, **LATE),
    "the fewest of many GPUs more": case(
        "0 gang_does_not_fit 300", [300, 300], [15, 16], cluster="v100:20",
        changes=["11 GPUs more of v100 (with 10 it waits)", "a gang of 4 GPUs, as fast for its size",
                 "no job 0 (15 GPUs; ran)"],
    ),
    "who runs stays where others are owed as much": case(
        "300 ranked_behind 400", [300, 300, 200, 200], [1] * 4, 3, [100, 100, 300, 300], "v100:2", FAIR,
        changes=["2 GPUs more of v100 (with 1 it waits)"],
    ),
    "who ended with a round is gone": case(
        "100 share_met 200", [100, 400, 200], [1, 1, 2], 1, cluster="v100:2", policy=FAIR,
        changes=["1 GPU more of v100", "no job 2 (2 GPUs; ran)"], **LATE,
    ),
    "no name leads to the policy": case(
        "0 no_share 200", [200, 200], [1, 1], policy=SharesPolicy(lambda state: np.eye(state.n_jobs, 1))
    ),
}  # fmt: skip
"""When a wait began, and each reason with its end; what would have let the job run."""


@pytest.mark.parametrize("name", CASES)
def test_reasons_and_what_would_have_let_it_run(name):
    reasons, job, trace, cluster, policy, settings, changes = CASES[name]
    (wait, *_) = explain(run_of(trace, cluster, policy, **settings), job).waits
    start, *bounds = reasons.split()
    said = [word for stretch in wait.stretches for word in (stretch.reason, f"{stretch.end:g}")]
    assert (f"{wait.start:g}", said) == (start, bounds)
    if changes is not None:
        assert [change.text for change in (wait.moment.changes if wait.moment else ())] == changes


def test_figures_of_waits():
    def told(name, *job):
        _, usual, trace, cluster, policy, settings, _ = CASES[name]
        return explain(run_of(trace, cluster, policy, **settings), *(job or (usual,)))

    (wait,) = told("a gang that does not fit").waits
    assert (wait.stretches[0].least_free, wait.stretches[0].most_free) == (3.0, 3.0)
    assert [(h.job, h.gpu_hours, h.came_later) for h in wait.holders] == [(0, {"v100": pytest.approx(0.25)}, False)]
    assert wait.free_gpu_hours == pytest.approx(0.75)
    assert told("nobody passes it in the line").waits[0].stretches[0].text == "job 1 needs 4"
    moment = told("two jobs of one GPU are worth more").waits[0].moment
    assert (moment.prices["v100"] > 0, moment.shares) == (True, {})
    (wait,) = told("a shorter one preempts").waits
    assert wait.moment.policy_says == "place 2 of 2 in line"
    (holder,) = wait.holders
    assert (holder.job, holder.came_later, holder.gpu_hours_before, holder.time_before) == (1, True, 0.0, 0.0)
    assert wait.time_before == 1.0
    wait = told("a quota is used up").waits[0]
    text = "entity a: 2 GPUs of v100 in use, a quota of 2, and 1 more cannot be borrowed"
    assert wait.stretches[0].text == wait.moment.policy_says == text
    assert wait.free_gpu_hours == pytest.approx(600 / 3600)
    assert list(told("a pool is closed").types) == ["v100"]
    assert told("sent away at the end of a slot of 80 s").status == "rejected"
    trace = trace_of([500, 500], [1, 1], [0, 50], deadline=[np.nan, 400.0])
    said = str(explain(run_of(trace, "v100:1", First(True)), 1))
    assert "turned away at once" in said
    assert said.endswith("350 s after its arrival; on the GPUs that it asks for it needs 0.14 h.")
    # the policy has no name, and is asked all the same
    assert told("left out by the policy").waits[0].moment.redecided
    # who can never run does not count as waiting
    assert told("no type can run it").status == "unserved"
    everybody = told("no type can run it", None)
    assert (everybody.jobs, everybody.unserved, everybody.waited, everybody.longest) == (1, 1, 0.0, ())


def test_two_jobs_take_turns_on_one_gpu():
    """Shares of a half: who has just run has had its share, and at the very beginning nobody is owed anything."""
    result = run_of(trace_of([300, 300], [1, 1]), "v100:1", "max_min_fairness_perf", hysteresis_rounds=0.0)
    assert parts(result, 1, since=0, until=600)[0] == [("ranked_behind", 0.0, 100.0)]
    why, _, _ = parts(result, 0, at=150)
    assert why == [("share_met", 100.0, 200.0)]
    moment = explain(result, 1, at=0).waits[0].moment
    assert moment.shares == {"v100": pytest.approx(0.5)}
    assert (moment.promised, moment.received, moment.owed) == (0.0, 0.0, 0.0)
    assert moment.ahead == {"v100": 1}
    assert [c.text for c in moment.changes] == ["1 GPU more of v100", "no job 0 (1 GPU; ran)"]


def test_starts_take_their_time():
    """A start costs 30 s, in rounds and at events; of the life of a job that is neither waiting nor running."""
    for policy in ("max_min_fairness_perf", "srtf"):
        result = run_of(trace_of([300, 300], [1, 1]), "v100:1", policy, restart_penalty_seconds=30.0)
        for job in range(2):
            told = explain(result, job, since=0)
            starts = [part for part in told.intervals if part.kind == "starting"]
            assert starts
            assert {part.seconds for part in starts} == {30.0}
            assert told.started == result.jobs["restart_gpu_seconds"][job]
            assert told.waited == pytest.approx(result.jobs["queueing_time"][job])
            assert told.ran == pytest.approx(300.0)


def test_a_start_that_takes_longer_than_a_round_goes_on_in_the_next():
    """150 s in rounds of 100 s; 50 s of it are made in the next round."""
    result = run_of(trace_of([300, 300], [1, 1]), "v100:1", "fifo", restart_penalty_seconds=150.0)
    parts = [(part.kind, part.start, part.end) for part in explain(result, 1, since=0).intervals]
    assert parts == [("waiting", 0.0, 500.0), ("starting", 500.0, 650.0), ("running", 650.0, 950.0)]


def test_what_a_job_was_promised_and_had():
    """A half of the only GPU for 100 s, a third from then on; it ran in two of the first five rounds."""
    result = run_of(trace_of([500, 500, 500], [1, 1, 1], [0, 0, 50]), "v100:1", FAIR, policy_settings=EXACT)
    (wait,) = explain(result, 0, at=500).waits
    moment = wait.moment
    assert (moment.time, moment.decision, moment.active, moment.waiting) == (500.0, 1, 3, 2)
    assert moment.shares == {"v100": pytest.approx(1 / 3)}
    assert (moment.promised, moment.received) == (pytest.approx(50 + 400 / 3), 200.0)
    assert wait.time_before == 0.4
    assert [(holder.job, holder.gpu_hours_before, holder.came_later) for holder in wait.holders] == [
        (1, pytest.approx(200 / 3600), False), (2, pytest.approx(100 / 3600), True),
    ]  # fmt: skip
    # of its waits the longest is told
    assert [(each.start, each.end) for each in explain(result, 0).waits] == [(100.0, 400.0)]
    # who arrives at that very instant is there
    first = explain(result, 1, at=0).waits[0].moment
    assert (first.active, first.waiting, first.promised) == (2, 1, 0.0)
    told = explain(result)
    assert [(job.job, job.waited) for job in told.longest] == [(2, 950.0), (0, 900.0), (1, 800.0)]
    assert told.waited == 950.0 + 900.0 + 800.0
    assert (told.longest[1].start, told.longest[1].end) == (100.0, 400.0)


def test_gpus_are_held_up_to_the_end_of_the_round():
    """The job that ran is through at 150 s, its round at 200 s."""
    result = run_of(trace_of([150, 100], [1, 1], [0, 120]), "v100:1", "max_min_fairness_perf")
    (wait,) = explain(result, 1).waits
    assert (wait.start, wait.end, wait.free_gpu_hours) == (120.0, 200.0, 0.0)
    assert wait.usable_gpu_hours == pytest.approx(80 / 3600)
    (holder,) = wait.holders
    assert holder.total_gpu_hours == pytest.approx(80 / 3600)
    assert holder.time_before == 1.0


def test_a_smaller_gang_is_slower():
    """On one GPU the job of 100 s would take 200 s, longer than that of 150 s which came before it then."""
    for last, helps in ((150, False), (250, True)):
        _, changes, _ = parts(run_of(trace_of([50, 100, last], [1, 2, 1]), "v100:2", "srtf"), 1)
        assert ("a gang of 1 GPU, as fast for its size" in changes) is helps


def test_shares_without_rounds_count_as_time():
    """Half of a GPU for 100 s is 50 s; then the other job has all of it."""
    result = run_of(
        trace_of([300, 100], [1, 1], [0, 100]),
        "v100:1",
        SharesPolicy(lambda state: np.array([[0.5]] if state.n_jobs == 1 else [[0.0], [1.0]])),
        ideal=True,
    )
    moment = explain(result, 0, at=150).waits[0].moment
    assert (moment.time, moment.promised, moment.received) == (100.0, 50.0, 50.0)


def test_nodes_that_were_drained(tmp_path):
    """A gang of 2 would have had both GPUs from 300 s on, but for the node that was drained from 200 s to 600 s."""
    result = run_of(trace_of([300, 100], [1, 2]), "v100:2", Waits(600.0))
    save_result(result, tmp_path)
    in_use = pd.DataFrame({"time": [-5.0, 200.0, 600.0], "v100": [2, 1, 2]})
    in_use.to_parquet(tmp_path / "capacity.parquet")
    why, _, told = parts(tmp_path, 1)
    assert why == [
        ("gang_does_not_fit", 0.0, 200.0),
        ("no_gpus_free", 200.0, 300.0),
        ("capacity_lost", 300.0, 600.0),
    ]
    assert told.waits[0].usable_gpu_hours == pytest.approx((200 * 2 + 400) / 3600)


class Waits(PlanPolicy):
    """Runs the second job from a certain time on only, as if a node had not been there before."""

    name = "waits"

    def __init__(self, until):
        self.until = until

    def plan(self, state, memory):  # noqa: ARG002
        jobs = [i for i, job in enumerate(state.throughputs.jobs) if job == 0 or state.clock >= self.until]
        rows = Assignment.of(jobs, [0] * len(jobs), state.scale_factors[jobs])
        left = self.until - state.clock
        return Plan((PlanStep(rows, left if left > 0 else np.inf),))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"job": 7}, "'job' 7 0 1"),
        ({"job": 0, "at": -5.0}, "0 300"),
        ({"job": 0, "since": 50.0, "until": 20.0}, "since 50"),
        ({"job": 0, "at": 5.0, "until": 20.0}, "since until"),
    ],
)
def test_questions_without_an_answer(asked, words):
    result = run_of(trace_of([300, 300], [1, 1]), "v100:2", "fifo")
    with pytest.raises(InputError) as error:
        explain(result, **asked)
    assert [word for word in words.split() if word not in str(error.value)] == [], error.value


def test_jobs_of_one_name_are_told_apart_by_their_place():
    names, dates = ["40396_7", "8", "8"], np.datetime64("2025-03-03T08:00", "us") + np.zeros(3, dtype="m8[s]")
    trace = replace(trace_of([300] * 3, [1] * 3), trace_id=np.array(names, dtype=object), arrival_date=dates)
    result = run_of(trace, "v100:1", "fifo")
    assert [explain(result, name).job for name in ("8:1", "8:2")] == [1, 2]
    for name, hint in {"8": "2 jobs.*8:1 to 8:2", "40396": "did you mean '40396_7'", "8:3": "trace_id"}.items():
        with pytest.raises(InputError, match=hint):
            explain(result, name)
    with pytest.raises(InputError, match=r"found '2025-03-03T07:59:55.*, 2025-03-03T08:00:00"):
        explain(result, 1, at=-5.0)


def test_runs_in_which_nobody_waited():
    empty = run_of(trace_of([], []), "v100:1", "fifo")
    assert explain(empty).longest == ()
    with pytest.raises(InputError, match="expected a run with jobs"):
        explain(empty, 0)
    told = run_of(trace_of([300], [1]), "v100:1", "fifo").explain(0)
    assert (told.waits, told.waited) == ((), 0.0)
