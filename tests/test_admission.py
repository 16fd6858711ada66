"""What can be promised to one more job, and what would do where the answer is no."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import ClusterState, ThroughputMatrix, get_policy
from allocator.admission import Admission, AdmissionTest
from allocator.cli.service.admission import repair_of
from allocator.cluster import Cluster
from throughputs import InputError, ThroughputTable, Trace
from throughputs.configurations import Configurations

KEYS = [("a", 1), ("a", 2), ("a", 4), ("b", 1), ("b", 2), ("b", 8), ("slow", 16)]
TABLE = ThroughputTable(KEYS, ["a100"], [[1.0], [1.8], [3.0], [1.0], [2.0], [6.0], [9.0]])
NOBODY = Trace([], [], [], [])


def jobs(*rows: Any) -> Trace:
    """From rows, or from text: ``a 90<50, b 8<60`` are jobs of 90 and 8 steps, due at 50 and 60 s."""
    found = [each for row in rows for each in (row.split(", ") if isinstance(row, str) else [row])]
    kinds, *columns = zip(*(re.split("[ <]", row) if isinstance(row, str) else row for row in found), strict=True)
    steps, due = (list(map(float, column)) for column in columns)
    return Trace(kinds, [1] * len(found), steps, [0.0] * len(found), deadline=due)


def ask(newcomer: Any, there: Any = NOBODY, gpus: int = 4, **more: Any) -> Admission:
    most, known = more.pop("most_gpus", None), there if isinstance(there, Trace) else jobs(there)
    return AdmissionTest(known, Cluster({"a100": gpus}), TABLE, **more).ask(jobs(newcomer), most)


def test_the_smallest_number_of_gpus_that_meets_the_deadline() -> None:
    answer = ask("a 100<60")
    assert answer == Admission(True, 60.0, ((0.0, 2),), pytest.approx(100 / 1.8), answer.gpu_hours, None, None, (), 0)
    assert answer.gpu_hours == pytest.approx(2 * 100 / 1.8 / 3600)
    later = ask("a 100<1060", clock=1000.0)
    assert (later.plan, later.end) == (((1000.0, 2),), pytest.approx(1000 + 100 / 1.8))


def test_what_would_do_instead() -> None:
    there = "a 90<50"  # needs two GPUs until 50
    answer = ask("a 120<50", there)
    assert not answer.admitted
    assert answer.earliest_deadline is not None
    # Behind the other: two GPUs until 50, then up to four.
    assert answer.earliest_deadline == 60
    assert answer.end <= 60
    assert answer.fewest_gpus == 6
    assert ask("a 120<60", there).admitted
    assert not ask("a 120<59", there).admitted
    assert ask("a 120<50", there, gpus=6).admitted
    assert not ask("a 120<50", there, gpus=5).admitted
    # all are to end ten seconds before they are due, and the answer is a deadline, not an end
    early = ask("a 120<60", "a 90<60", margin_seconds=10.0)
    assert (early.admitted, early.earliest_deadline, early.end) == (False, 70, answer.end)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.floats(1, 500), st.floats(1, 300)), max_size=6),
    st.tuples(st.sampled_from("ab"), st.floats(1, 500), st.floats(1, 300)),
    st.integers(2, 12),
)
def test_what_is_promised_holds(
    there: list[tuple[str, float, float]], newcomer: tuple[str, float, float], gpus: int
) -> None:
    known = jobs(*there) if there else NOBODY
    answer = ask(newcomer, known, gpus)
    kind, steps, deadline = newcomer
    due = deadline if answer.admitted else answer.earliest_deadline
    assert due is not None
    ends = [*(start for start, _ in answer.plan[1:]), answer.end]
    rate = {0: 0.0} | {size: TABLE.rates([kind], [size], ["a100"])[0, 0] for size in TABLE.scale_factors_of(kind)}
    spans = zip(answer.plan, ends, strict=True)
    assert sum((end - start) * rate[used] for (start, used), end in spans) == pytest.approx(steps)
    assert answer.end <= due
    if not answer.admitted:
        assert due > deadline
        if answer.fewest_gpus is not None:
            assert ask(newcomer, known, answer.fewest_gpus).admitted
            assert not ask(newcomer, known, answer.fewest_gpus - 1).admitted
    for costs in ({}, {"restart_seconds": 40.0}, {"restart_seconds": 40.0, "slot_seconds": 60.0}):
        offered = ask(newcomer, known, gpus, **costs)
        if offered.earliest_deadline is not None:
            again = ask((kind, steps, offered.earliest_deadline), known, gpus, **costs)
            assert (again.admitted, again.plan, again.end) == (True, offered.plan, offered.end)
            assert offered.earliest_deadline > deadline


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["each", "repair"]), st.sampled_from([0.0, 1.0]))
def test_it_answers_as_the_policy_does(seed: int, admission: Any, margin: float) -> None:
    """All jobs come at once, the newcomer last; where the policy lets the others in, both say the same of it."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 9))
    kinds, steps = rng.choice(["a", "b"], n), 10 ** rng.uniform(1, 2.6, n)
    due = rng.uniform(20, 300, n)
    due[:-1].sort()
    answer, others_let_in = policys_answer(kinds, steps, due, admission, margin)
    there, newcomer = (
        [*zip(kinds[part], steps[part], due[part], strict=True)] for part in (slice(-1), slice(-1, None))
    )
    repair = get_policy("elasticflow", admission=admission).repair
    told = ask(newcomer[0], jobs(*there), gpus=8, margin_seconds=margin, repair=repair)
    if others_let_in:
        assert told.late == ()
        assert told.admitted == answer


def policys_answer(kinds: Any, steps: Any, due: Any, admission: str, margin: float) -> tuple[bool, bool]:
    """Whether `elasticflow` lets in the last job, and all the others."""
    n, cluster = len(kinds), Cluster({"a100": 8})
    ways = Configurations.from_table(TABLE, list(kinds), cluster.accelerators)
    state = ClusterState(
        cluster,
        ThroughputMatrix(TABLE.rates(kinds, [1] * n, ["a100"]), range(n), ["a100"]),
        configurations=ways,
        steps_remaining=steps,
        slo_seconds=due,
    )
    policy = get_policy("elasticflow", admission=admission, margin_seconds=margin)
    rejected = set(policy.plan(state, policy.new_memory()).rejected.tolist())
    return n - 1 not in rejected, not rejected - {n - 1}


def test_bad_questions() -> None:
    cluster = Cluster({"a100": 4})
    with pytest.raises(InputError, match="one accelerator type"):
        AdmissionTest(NOBODY, Cluster({"a100": 4, "t4": 1}), TABLE)
    for name, value in (("slot_seconds", -1.0), ("restart_seconds", np.inf), ("clock", np.nan)):
        with pytest.raises(InputError, match=name):
            AdmissionTest(NOBODY, cluster, TABLE, **{name: value})
    test = AdmissionTest(NOBODY, cluster, TABLE)
    for newcomer in (NOBODY, jobs("a 1<nan"), jobs("a 1<9, a 1<9")):
        with pytest.raises(InputError, match="one job with a deadline"):
            test.ask(newcomer)
    with pytest.raises(InputError, match="'c'"):
        test.ask(jobs("c 1<9"))


@pytest.mark.parametrize(
    ("name", "own", "rounds"),
    [
        ("elasticflow", {}, 0),
        ("elasticflow", {"admission": "repair", "repair_rounds": 3}, 3),
        ("elasticflow_mip", {}, 10),
        ("elasticflow_mip", {"repair_rounds": 0}, 0),
        ("edf_admission", {}, 0),
    ],
)
def test_a_service_is_asked_as_its_policy_decides(name: str, own: dict[str, Any], rounds: int) -> None:
    policy = get_policy(name, **own)
    found = repair_of(policy.settings())
    assert found.rounds == rounds
    assert name != "elasticflow" or found == policy.repair or not rounds
