"""Nodes that sleep: never one that is needed, by what was known, as stated."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from allocator.cli.app import app
from allocator.predictions import SleepSettings, nodes_in_use, put_to_sleep, use_ahead
from allocator.predictions.nodes import NodeSleep, jobs_that_wait
from throughputs import InputError, Trace, write_trace

TOTAL = 12

rules = st.builds(
    SleepSettings,
    buffer=st.integers(0, 4),
    history=st.integers(1, 4),
    fall=st.sampled_from([0.0, 0.5, 1.0]),
    future=st.integers(1, 5),
    expected_fall=st.sampled_from([0.0, 1.0]),
    least=st.integers(0, 3),
    hold=st.integers(0, 6),
    start=st.integers(1, 7),
)
nodes = st.integers(0, TOTAL)
series = st.lists(st.tuples(nodes, nodes, nodes), max_size=50)


def columns(rows):
    """Nodes in use and the two forecasts."""
    used, soon, later = (np.array([row[place] for row in rows], dtype=int) for place in range(3))
    return used, soon.astype(float), later.astype(float)


def by_hand(rows, rule):
    """The rule as the page states it, bin by bin."""
    awake: list[int] = []
    held = 0
    for now, (need, soon, later) in enumerate(rows):
        kept = min(need + rule.buffer, TOTAL)
        if now < rule.start:
            awake.append(kept)
            continue
        number = awake[-1]
        past = [row[0] for row in rows[max(now - rule.history, 0) : now]]
        if number < need:
            number, held = kept, now + rule.hold
        elif len(past) == rule.history and now >= held and number - kept >= max(rule.least, 1):
            fallen = sum(past) / len(past) - need >= rule.fall
            if fallen and need - soon >= rule.expected_fall and soon >= later:
                number = kept
        awake.append(number)
    return awake


@settings(max_examples=60)
@given(series, rules)
def test_the_rule_is_that_of_the_page(rows, rule):
    made = put_to_sleep(columns(rows)[0], TOTAL, *columns(rows)[1:], rule)
    assert made.awake.tolist() == by_hand(rows, rule)
    assert (made.awake >= made.used).all()
    assert (made.awake <= TOTAL).all()


def test_figures_by_hand():
    used = np.array([8, 8, 8, 8, 4, 2, 2, 2, 2, 2, 6, 6])
    true = np.array([8, 8, 6, 3, 2, 2, 2, 2, 4, 6, 6, 6])
    soon = np.where(np.arange(12) == 3, 1.0, true)
    rule = SleepSettings(buffer=1, future=2, start=3)
    made = put_to_sleep(used, 10, soon, np.full(12, 1.0), rule, bin_seconds=7200.0)
    assert made.awake.tolist() == [9, 9, 9, 9, 5, 5, 5, 5, 5, 5, 7, 7]
    assert made.summary() == {
        "days": 1.0,
        "daily_changes": 2.0,
        "daily_wakes": 1.0,
        "mean_change": 3.0,
        "nodes_asleep": 40 / 12,
        "node_hours_asleep": 80.0,
        "utilization_before": 58 / 120,
        "utilization_after": 58 / 80,
        "forecast_smape": 10.0,
    }


@pytest.mark.parametrize("bins", [1, 20])
def test_forecasts_of_use_know_the_past_alone(bins):
    rng = np.random.default_rng(2)
    used = np.clip(60 + np.cumsum(rng.integers(-2, 3, 500)), 0, 120)
    turn = 400
    changed = np.where(np.arange(500) > turn, 7, used)
    one, other = (use_ahead(each, bins, first=200, refit_bins=60) for each in (used, changed))
    assert np.isnan(one[:200]).all()
    assert one[: turn + 1].tobytes() == other[: turn + 1].tobytes()
    true = np.array([used[now + 1 : now + 1 + bins].mean() for now in range(200, 500 - bins)])
    assert np.abs(one[200 : 500 - bins] - true).mean() < 0.75 * np.abs(used.mean() - true).mean()


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 20), st.integers(1, 9)), max_size=12))
def test_nodes_in_use_are_those_of_the_fullest_moment(rows):
    start, length, gpus = (np.array([row[place] for row in rows], dtype=int) for place in range(3))
    end = start + length
    found = nodes_in_use(start.astype(float), end.astype(float), gpus, 4, bin_seconds=5.0)
    for place, nodes in enumerate(found.tolist()):
        moments = range(5 * place, 5 * place + 5)
        held = max(int(gpus[(start <= now) & (now < end)].sum()) for now in moments)
        assert nodes == -(-held // 4)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda: put_to_sleep(np.array([1, 9]), 5, *np.zeros((2, 2))), "used:2: found 9"),
        (lambda: SleepSettings(hold=-1), "'hold': found -1"),
        (lambda: nodes_in_use(np.array([5.0]), np.array([1.0]), np.array([1]), 8), "jobs:1: found 'from 5 s to 1 s'"),
    ],
)
def test_bad_input(asked, message):
    with pytest.raises(InputError, match=message):
        asked()


def test_parts_of_gpus_count_as_such():
    """Ten jobs with a tenth of a GPU each fill one node of one GPU; the eleventh needs another."""
    for jobs, nodes in ((10, 1), (11, 2)):
        assert nodes_in_use(np.zeros(jobs), np.full(jobs, 900.0), np.full(jobs, 0.1), 1).tolist() == [nodes] * 2


def test_parts_that_fill_a_node_wait_for_no_other():
    """0.05, 0.55, 0.3 and 0.1 of a GPU, which rounding makes more than 1."""
    parts, one = np.array([0.05, 0.55, 0.3, 0.1]), np.ones(4, dtype=np.int64)
    sleep = NodeSleep(one, one, 2, np.ones(4), 1, 600.0)
    start, end = np.full(4, 700.0), np.full(4, 900.0)
    waits = [jobs_that_wait(start, end, share * parts, 1, sleep).tolist() for share in (1, 2)]
    assert waits == [[False] * 4, [True] * 4]


def test_the_command_turns_hours_asleep_into_kilowatt_hours(tmp_path):
    n = 20
    jobs = Trace(["a"] * n, [8] * n, [9.0] * n, [0.0] * (n - 1) + [8e4], duration=[3e4] * n)
    write_trace(jobs, tmp_path / "jobs.csv")
    options = "--model truth --learn 0.1 --watts 500 --json --set fall=0 --set expected_fall=0 --set history=1"
    options += " --set buffer=0 --set least=0 --set hold=0 --set future=1 --trace"
    ran = CliRunner().invoke(app, ["nodes", *options.split(), str(tmp_path / "jobs.csv")])
    figures = json.loads(ran.output)
    assert figures["energy_saved_kwh"] == pytest.approx(figures["node_hours_asleep"] / 2)
    assert figures["node_hours_asleep"] > 0
