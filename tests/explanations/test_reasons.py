"""Each reason on a cluster small enough to know it by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from allocator import Assignment, Cluster, InputError, Plan, PlanPolicy, PlanStep, explain
from allocator.explanations.reasons import REASONS
from allocator.explanations.text import explanation_text
from allocator.results.output import save_result
from tests.explanations.worlds import run_of, trace_of
from tests.simulator.worlds import SharesPolicy


def parts(result, job, **when):
    """Reasons of the first wait with their start and end, and what would have let the job run."""
    told = explain(result, job, **when)
    wait = told.waits[0]
    changes = [] if wait.moment is None else [change.text for change in wait.moment.changes]
    return [(stretch.reason, stretch.start, stretch.end) for stretch in wait.stretches], changes, told


def test_a_gang_waits_and_the_line_behind_it():
    """4 GPUs, 1 taken for 1,000 s: the gang of 4 has 3; first in first out, nobody passes it."""
    result = run_of(trace_of([1000, 500, 100], [1, 4, 1], [0, 100, 200]), "v100:4", "fifo")
    why, changes, told = parts(result, 1)
    assert why == [("gang_does_not_fit", 100.0, 1000.0)]
    assert (told.waits[0].stretches[0].least_free, told.waits[0].stretches[0].most_free) == (3.0, 3.0)
    assert changes == ["1 GPU more of v100", "a gang of 3 GPUs, as fast for its size", "no job 0 (1 GPU; ran)"]
    assert [(h.job, h.gpu_hours, h.came_later) for h in told.waits[0].holders] == [
        (0, {"v100": pytest.approx(0.25)}, False)
    ]
    assert told.waits[0].free_gpu_hours == pytest.approx(0.75)

    why, changes, told = parts(result, 2)
    assert why == [("queue_blocked", 200.0, 1000.0), ("no_gpus_free", 1000.0, 1500.0)]
    assert told.waits[0].stretches[0].text == "job 1 needs 4"
    # with one more it is the gang that runs
    assert changes == ["2 GPUs more of v100 (with 1 it waits)", "no job 1 (4 GPUs; waited, too)"]


def test_a_line_in_which_others_wait_before():
    result = run_of(trace_of([300, 300, 300], [1, 1, 1]), "v100:1", "fifo")
    assert parts(result, 1)[0] == [("no_gpus_free", 0.0, 300.0)]
    assert parts(result, 2)[0] == [("ranked_behind", 0.0, 300.0), ("no_gpus_free", 300.0, 600.0)]


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


def test_a_decision_gives_no_share():
    """The sum of throughputs is largest when two jobs of one GPU have all the time of both, and a gang of two none."""
    result = run_of(trace_of([300, 300, 100], [1, 1, 2]), "v100:2", "max_sum_throughput_perf")
    why, changes, told = parts(result, 2)
    assert why == [("no_share", 0.0, 300.0)]
    assert told.waits[0].moment.prices["v100"] > 0
    assert told.waits[0].moment.shares == {}
    assert changes == ["2 GPUs more of v100 (with 1 it waits)", "no job 1 (1 GPU; ran)"]


def test_an_order_at_events_ranks_others_before():
    """Shortest remaining time first: the long job is preempted by the short one."""
    result = run_of(trace_of([1000, 200], [1, 1], [0, 300]), "v100:1", "srtf")
    why, changes, told = parts(result, 0)
    assert why == [("ranked_behind", 300.0, 500.0)]
    assert told.waits[0].moment.policy_says == "place 2 of 2 in line"
    assert changes == ["1 GPU more of v100", "no job 1 (1 GPU; ran)"]
    (holder,) = told.waits[0].holders
    assert (holder.job, holder.came_later, holder.gpu_hours_before, holder.time_before) == (1, True, 0.0, 0.0)
    assert told.waits[0].time_before == 1.0


def test_a_quota_is_used_up():
    """Entity a may have 2 of 4 GPUs and borrows none: its third job waits beside 2 idle ones."""
    settings = {"quotas": {"a.v100": 2, "b.v100": 2}, "cohorts": "none"}
    trace = trace_of([300, 400, 500], [1, 1, 1], entity=["a"] * 3)
    result = run_of(trace, "v100:4", "quotas", policy_settings=settings, entities={"a": 1, "b": 1})
    why, changes, told = parts(result, 2)
    assert why == [("quota", 0.0, 300.0)]
    text = "entity a: 2 GPUs of v100 in use, a quota of 2, and 1 more cannot be borrowed"
    assert told.waits[0].stretches[0].text == told.waits[0].moment.policy_says == text
    assert told.waits[0].free_gpu_hours == pytest.approx(600 / 3600)
    assert changes == ["no job 1 (1 GPU; ran)"]  # more GPUs are no larger quota


def test_a_pool_is_closed_to_it():
    """The second job may run on v100 only, where the first one is; k80 idles."""
    rates = np.array([[1.0, 0.0], [1.0, 0.0]])
    result = run_of(trace_of([500, 100], [1, 1]), "v100:1,k80:1", "fifo_perf", rates)
    why, changes, told = parts(result, 1)
    assert why == [("no_gpus_free", 0.0, 500.0)]
    assert list(told.types) == ["v100"]
    assert changes == ["1 GPU more of v100", "leave to run on k80, as fast as on v100", "no job 0 (1 GPU; ran)"]


def test_no_type_can_run_it():
    result = run_of(trace_of([300, 100], [1, 8]), "v100:4", "fifo_perf")
    why, changes, told = parts(result, 1)
    assert (why, changes, told.status) == ([("excluded", 0.0, 300.0)], [], "unserved")
    assert explain(result).unserved == 1


def test_a_job_is_rejected():
    """It arrives at 50 s, and is sent away when the policy looks next, at the end of a slot of 80 s."""
    result = run_of(trace_of([500, 500], [1, 1], [0, 50]), "v100:1", Picky(), slot_seconds=80)
    why, _, told = parts(result, 1)
    assert why == [("rejected", 50.0, 80.0)]
    assert told.status == "rejected"


def test_it_came_in_the_middle_of_a_round():
    result = run_of(trace_of([500, 100], [1, 1], [0, 130]), "v100:2", "max_min_fairness_perf")
    assert parts(result, 1)[0] == [("next_round", 130.0, 200.0)]


def test_the_policy_has_not_been_asked():
    """Decisions are at least 500 s apart, and jobs without one get no idle GPUs."""
    settings = {"recompute_interval_seconds": 500, "idle_fill": "off", "decide_early_when_idle": False}
    result = run_of(trace_of([1000, 100], [1, 1], [0, 100]), "v100:2", "max_min_fairness_perf", **settings)
    assert parts(result, 1)[0] == [("undecided", 100.0, 500.0)]


class Picky(PlanPolicy):
    """Runs the first job, and sends all others away."""

    name = "picky"

    def plan(self, state, memory):  # noqa: ARG002
        return Plan.until_next_event(Assignment.of([0], [0], [1]), np.arange(1, state.n_jobs))


class Lazy(PlanPolicy):
    """Runs the first job only."""

    name = "lazy"

    def plan(self, state, memory):  # noqa: ARG002
        return Plan.until_next_event(Assignment.of([0], [0], [1]))


def test_the_policy_left_gpus_idle():
    result = run_of(trace_of([300, 100], [1, 1]), "v100:2", Lazy())
    why, _, told = parts(result, 1)
    assert why == [("left_out", 0.0, 300.0)]
    assert told.waits[0].moment.redecided is None  # the policy is known by its object only, and has no decisions


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


def test_a_start_that_takes_longer_than_a_round_is_over_with_it():
    """150 s in rounds of 100 s; of whom it goes on in the next round no further start is made."""
    result = run_of(trace_of([300, 300], [1, 1]), "v100:1", "fifo", restart_penalty_seconds=150.0)
    parts = [(part.kind, part.start, part.end) for part in explain(result, 1, since=0).intervals]
    assert parts == [("waiting", 0.0, 400.0), ("starting", 400.0, 500.0), ("running", 500.0, 800.0)]


def test_a_gang_that_nothing_can_run_is_nobody_to_wait_behind():
    result = run_of(trace_of([300, 300, 300], [8, 1, 1]), "v100:1", "fifo")
    assert parts(result, 2)[0] == [("no_gpus_free", 0.0, 300.0)]


def test_what_a_job_was_promised_and_had():
    """A half of the only GPU for 100 s, a third from then on; it ran in two of the first five rounds."""
    result = run_of(trace_of([500, 500, 500], [1, 1, 1], [0, 0, 50]), "v100:1", "max_min_fairness_perf")
    (wait,) = explain(result, 0, at=500).waits
    moment = wait.moment
    assert (moment.time, moment.decision, moment.active, moment.waiting) == (500.0, 1, 3, 2)
    assert moment.shares == {"v100": pytest.approx(1 / 3)}
    assert (moment.promised, moment.received) == (pytest.approx(50 + 400 / 3), 200.0)
    assert wait.time_before == 0.4
    # who arrives at that very instant is there
    first = explain(result, 1, at=0).waits[0].moment
    assert (first.active, first.waiting, first.promised) == (2, 1, 0.0)
    told = explain(result)
    assert [(job.job, job.waited) for job in told.longest] == [(2, 950.0), (0, 900.0), (1, 800.0)]
    assert told.waited == 950.0 + 900.0 + 800.0
    assert (told.longest[1].start, told.longest[1].end) == (100.0, 400.0)


def test_what_is_said_of_a_job():
    """Three of four waits are told in full; who ran in the second, by the share of its time that it had had."""
    result = run_of(trace_of([500, 500, 500], [1, 1, 1], [0, 0, 50]), "v100:1", "max_min_fairness_perf")
    said = list(explanation_text(explain(result, 0, since=0)))
    lines = [part for part in said if isinstance(part, str)]
    assert [line for line in lines if "Waited" in line] == [
        "[bold]Waited 300 s, from 100 s to 400 s[/]",
        "[bold]Waited 200 s, from 500 s to 700 s[/]",
        "[bold]Waited 200 s, from 800 s to 1,000 s[/]",
    ]
    assert "1 shorter wait, 200 s in all:" in lines
    assert lines[-1] == "  1,100 s to 1,300 s: it had received its share of time"
    assert "     200 s  it had received its share of time" in lines  # of the first wait, before the shorter reason
    assert lines.index("     200 s  it had received its share of time") < lines.index(
        "     100 s  others came before it"
    )
    assert "  share of its time: 33.3 % of v100; it had had 200 s of 183 s that decisions had promised" in lines
    _, table, _ = (part for part in said if not isinstance(part, str))
    columns = {str(column.header): list(column.cells) for column in table.columns}
    assert columns["job"] == ["1", "2"]
    assert columns["of its time"] == ["40 %", "22 %"]
    assert columns["arrived"] == ["before", "later"]
    assert str(table.caption).splitlines() == [
        "2 jobs in all: 1 came later than it, 0 had had more of their time on GPUs",
        "0.0 of 0.1 GPU h were free",
    ]


def test_a_job_that_nothing_can_run_does_not_count_as_waiting():
    told = explain(run_of(trace_of([300, 100], [1, 8]), "v100:4", "fifo_perf"))
    assert (told.jobs, told.unserved, told.waited, told.longest) == (1, 1, 0.0, ())


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


def test_of_many_gpus_more_the_fewest_are_found():
    result = run_of(trace_of([300, 300], [15, 16]), "v100:20", "fifo")
    assert parts(result, 1)[1][0] == "11 GPUs more of v100 (with 10 it waits)"


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


def test_free_gpus_are_counted_by_server():
    """Two servers of 4 with 3 taken on each: a gang of 2 has 2 GPUs, 1 on each; placement does not wait for better."""
    cluster = Cluster({"v100": 8}, {"v100": 4})
    result = run_of(trace_of([500, 500, 500, 500], [3, 3, 2, 2]), cluster, "fifo")
    told = explain(result, 3)
    free = told.waits[0].moment.free["v100"]
    assert (free.gpus, free.servers, free.largest) == (0.0, 0, 0)
    assert sorted(len(text.split()) for text in result.rounds["gpus"][result.rounds["round"] == 0]) == [2, 3, 3]


def test_every_reason_has_a_meaning_and_a_line_in_the_docs():
    from pathlib import Path

    page = (Path(__file__).resolve().parents[2] / "docs" / "explain.md").read_text()
    assert all(f"`{reason}`" in page for reason in REASONS)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"job": 7}, "explain: field 'job': found 7, expected the id of a job, 0 to 1"),
        ({"job": 0, "at": -5.0}, "expected a time at which job 0 was there, 0 to 300 s"),
        ({"job": 0, "since": 500.0}, "expected a time at which job 0 was there, 0 to 300 s"),
        ({"job": 0, "since": 50.0, "until": 20.0}, "expected at least `since`, 50 s"),
        ({"job": 0, "at": 5.0, "until": 20.0}, "expected no `since` and `until` beside it"),
        ({"at": 5.0}, "expected the id of a job, where a time is given"),
    ],
)
def test_questions_without_an_answer(asked, message):
    result = run_of(trace_of([300, 300], [1, 1]), "v100:2", "fifo")
    with pytest.raises(InputError) as error:
        explain(result, **asked)
    assert message.removeprefix("explain: ") in str(error.value)


def test_a_run_without_jobs():
    result = run_of(trace_of([], []), "v100:1", "fifo")
    assert explain(result).longest == ()
    with pytest.raises(InputError, match="expected a run with jobs"):
        explain(result, 0)


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("timeline", lambda rows: rows[:0], "field 'round': found 'rounds', expected those of timeline.parquet"),
        ("shares", lambda rows: pd.concat([rows, rows]), "field 'decision': found 'another order', expected that of"),
        ("shares", lambda rows: rows.assign(job_id=9), "field 'job_id': found 9, expected below 2"),
    ],
)
def test_tables_that_do_not_belong_together(tmp_path, table, change, message):
    save_result(run_of(trace_of([300, 300], [1, 1]), "v100:1", "max_min_fairness"), tmp_path)
    path = tmp_path / f"{table}.parquet"
    change(pd.read_parquet(path)).to_parquet(path)
    with pytest.raises(InputError) as error:
        explain(tmp_path, 1)
    assert message in str(error.value)


def test_files_of_two_runs_are_not_taken_for_one(tmp_path, monkeypatch):
    """Where a second run into a folder is cut short, no summary says that the files are those of a run."""
    save_result(run_of(trace_of([300, 300], [1, 1]), "v100:1", "fifo"), tmp_path)
    monkeypatch.setattr("allocator.results.output.rates_table", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_result(run_of(trace_of([300], [1]), "v100:1", "fifo"), tmp_path)
    with pytest.raises(InputError, match=r"found 'no summary.json'"):
        explain(tmp_path)


def test_a_job_that_never_waited():
    result = run_of(trace_of([300], [1]), "v100:1", "fifo")
    told = explain(result, 0)
    assert (told.waits, told.waited) == ((), 0.0)
    assert explain(result).longest == ()
    assert result.explain(0).as_dict() == told.as_dict()


def test_shares_of_a_policy_of_ones_own_are_explained_from_the_result():
    """No name leads to it, so nothing is decided anew, but the decisions are there."""

    def all_to_the_first(state):
        return np.eye(state.n_jobs, 1)

    result = run_of(trace_of([200, 200], [1, 1]), "v100:1", SharesPolicy(all_to_the_first))
    assert parts(result, 1)[0] == [("no_share", 0.0, 200.0)]


def test_a_job_waits_for_its_time_beside_gpus_that_are_left_idle_on_purpose():
    """Two jobs on one GPU: a half of the time each, and of that the half that the other loses by it."""
    result = run_of(trace_of([200, 200], [1, 1]), "v100:1", "max_min_fairness_strategy_proof_perf")
    assert {share for decision in result.decisions[:1] for share in decision[2].shares[:, 0].round(6).tolist()} == {
        0.25
    }
    reasons = {reason for reason, *_ in parts(result, 0)[0] + parts(result, 1)[0]}
    assert "share_met" in reasons
    assert "gang_does_not_fit" not in reasons


def test_nodes_that_were_drained(tmp_path):
    """A gang of 2 would have had both GPUs from 300 s on, but for the node that was drained from 200 s to 600 s."""
    import pandas as pd

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


def test_without_rounds_a_job_waits_while_it_has_no_share_of_anything():
    """All the time goes to the jobs of one GPU until they are through; both types at once are no wait."""
    result = run_of(trace_of([300, 300, 100], [1, 1, 2]), "v100:2", "max_sum_throughput_perf", ideal=True)
    told = explain(result, 2)
    assert {reason for wait in told.waits for reason in wait.reasons} <= {"no_share"}
    shared = run_of(trace_of([300, 300], [1, 1]), "v100:1,k80:1", "max_min_fairness_perf", [[2, 1], [2, 1]], ideal=True)
    assert explain(shared).longest == ()
    assert explain(shared, 0).waits == ()
