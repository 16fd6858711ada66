"""Findings say what the results say: figures are theirs, and words follow when the figures change."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import findings
from benchmarks.findings.words import Paired, compared, few, listed, paired, plus_minus
from throughputs import InputError

HOUR = 3600.0
POSITIVE = st.floats(0.1, 1e3)


# Words


@given(POSITIVE, POSITIVE)
def test_comparisons_are_true(figure, base):
    words = compared(figure, base, more="longer", less="shorter")
    if words == "about the same":
        assert figure == pytest.approx(base, rel=0.0051)
    else:
        percent = float(words.split()[0])
        assert words.endswith("% longer") == (figure > base)
        assert base * (1 + (percent if figure > base else -percent) / 100) == pytest.approx(figure, abs=0.0051 * base)


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=2, max_size=6))
def test_agreement_counts_draws_on_the_side_of_the_mean(figures):
    pair = Paired(*zip(*figures, strict=True))
    same = sum((a < b) == (pair.means[0] < pair.means[1]) for a, b in figures)
    number = few(len(figures))
    assert pair.agreement() == (
        f"in each of the {number} draws" if same == len(figures) else f"in {few(same)} of {number} draws"
    )
    mean, half_width = pair.difference()
    assert ("no more than draws" in pair.on_same_jobs()) == (abs(mean) <= half_width)


def test_intervals_are_in_words():
    assert plus_minus([1.0, 2.0, 3.0], digits=2) == "2.00 \N{PLUS-MINUS SIGN} 2.48"
    assert plus_minus([7200.0], unit=HOUR) == "2.0"
    assert Paired([1.0], [2.0]).on_same_jobs() == "in the one draw that was made"
    assert (listed(["a"]), listed(["a", "b", "c"])) == ("a", "a, b and c")


def test_pairs_are_of_runs_that_both_completed():
    runs = pd.DataFrame(
        [
            ("a", 0, "completed", 1.0),
            ("b", 0, "completed", 2.0),
            ("a", 1, "completed", 9.0),
            ("b", 1, "saturated", 0.1),
        ],
        columns=["policy", "seed", "status", "jct"],
    )
    assert paired(runs, value="jct", series="policy", first="a", second="b").means == (1.0, 2.0)
    with pytest.raises(InputError, match="a, c"):
        paired(runs, value="jct", series="policy", first="a", second="c")


# Findings, from results made up so that either side is true


def loaded(hours: dict[str, float], *, seeds: int = 3, **figures: dict[str, float]) -> pd.DataFrame:
    """Runs at two loads; hours by policy at the heavier one, other figures by policy too."""
    rng = np.random.default_rng(5)
    rows = []
    for seed in range(seeds):
        noise = rng.normal(0, 0.1)
        for policy, mean in hours.items():
            for load, part in ((0.2, 0.8), (0.8, 1.0)):
                more = {name: values[policy] + 0.01 * noise for name, values in figures.items()}
                jct = HOUR * (part * mean + noise)
                rows.append({"policy": policy, "seed": seed, "status": "completed", "jobs_per_hour": load,
                             "submitted_jobs": 10 * load, "average_jct": jct, "makespan": 3 * jct,
                             "average_jct_weight_5": jct, "average_jct_weight_1": 2 * jct, **more})  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("aware", "words"), [(15.0, "25 % shorter than without"), (25.0, "25 % longer than without")])
def test_attained_service_follows_the_runs(aware, words):
    hours = {"gandiva": 18.0, "max_min_fairness": 20.0, "max_min_fairness_perf": aware, "max_min_fairness_packed": 14.0}
    first, second, *_ = findings.las_multi_gpu(loaded(hours))
    assert words in first
    assert f"{aware:.1f} \N{PLUS-MINUS SIGN}" in first or f"{aware - 0.1:.1f}" in first
    assert "at 0.8 jobs per hour" in first
    assert second.startswith(f"It is {'shorter' if aware < 20 else 'longer'} in each of the three draws")
    assert ("since types differ" in second) == (aware < 20)


def test_saturation_is_told():
    results = loaded({"gandiva": 1.0, "max_min_fairness": 2.0, "max_min_fairness_perf": 1.0,
                      "max_min_fairness_packed": 1.0})  # fmt: skip
    assert "No policy saturates" in " ".join(findings.las_multi_gpu(results))
    heavy = (results["policy"] == "max_min_fairness") & (results["jobs_per_hour"] == 0.8)
    text = " ".join(findings.las_multi_gpu(results.assign(status=results["status"].where(~heavy, "saturated"))))
    assert "can no longer keep up: `max_min_fairness` at 0.8" in text
    assert "at 0.2 jobs per hour, the largest load that all policies bear" in text


@pytest.mark.parametrize("sign", [1, -1])
def test_the_other_findings_after_the_first_paper_follow_too(sign):
    hours = {"finish_time_fairness": 20.0, "finish_time_fairness_perf": 20.0 - 4 * sign}
    rho = {"finish_time_fairness": 2.0, "finish_time_fairness_perf": 2.0 - 0.5 * sign}
    unfair = {"finish_time_fairness": 0.5, "finish_time_fairness_perf": 0.5 - 0.2 * sign}
    text = " ".join(findings.finish_time_fairness(loaded(hours, worst_rho=rho, unfair_fraction=unfair)))
    assert f"is {'lower' if sign > 0 else 'higher'} with throughputs" in text
    assert f"20 % {'shorter' if sign > 0 else 'longer'} with throughputs" in text
    spans = {"fifo": 90.0, "min_total_duration": 20.0, "min_total_duration_perf": 20.0 - 4 * sign}
    text = " ".join(findings.makespan(loaded({**spans, "min_total_duration_packed": 15.0})))
    assert f"20 % {'shorter' if sign > 0 else 'longer'} than without" in text
    assert "longest that of `fifo`, 270 h" in text
    weights = {"max_min_fairness": 20.0, "max_min_fairness_perf": 20.0 - 4 * sign}
    first, *_ = findings.priorities(loaded(weights))
    assert f"20 % {'shorter' if sign > 0 else 'longer'} than without" in first


def compared_policies(shockwave: float) -> pd.DataFrame:
    """Three draws in which Shockwave's figures are this multiple of 1, and those of the others 1 to 3."""
    rows = []
    for seed in (1, 2, 25):
        for label, figure in (("Shockwave", shockwave), ("OSSP", 1.0), ("Gavel", 2.0), ("MST", 3.0)):
            rows.append({"label": label, "seed": seed, "status": "completed", "makespan": figure * HOUR,
                         "average_jct": figure * HOUR, "worst_rho_static": figure, "cpu_seconds": 1.0,
                         "unfair_fraction_static": figure / 10})  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("multiple", "words"), [(0.5, "the fewest of all policies"), (2.5, "two of the other policies")]
)
def test_planning_is_praised_only_where_it_is_better(multiple, words):
    text = " ".join(findings.shockwave_canonical(compared_policies(multiple)))
    assert words in text
    assert f"% {'below' if multiple < 1 else 'above'} that of OSSP" in text
    beaten = re.search(r"No policy is better in all four figures in any draw( but .*?)?\.", text)
    assert beaten is not None
    assert (beaten[1] is None) == (multiple < 1)
    of_load = [compared_policies(multiple).assign(contention=at, gpus=gpus) for at, gpus in ((1.5, 16), (3.0, 64))]
    assert words in " ".join(findings.shockwave_contention(pd.concat(of_load)))
    first, *_ = findings.shockwave_scale(pd.concat(of_load))
    assert f"on {'two' if multiple < 1 else 'none'} of two clusters" in first


def frame(columns: str, *rows: tuple[object, ...]) -> pd.DataFrame:
    """Rows for each of three seeds, all completed."""
    found = pd.concat([pd.DataFrame(rows, columns=columns.split()).assign(seed=seed) for seed in range(3)])
    return found.assign(status="completed")


@pytest.mark.parametrize(("long", "words"), [(1.10, "grows with"), (1.01, "does not here")])
def test_rounds_are_compared_with_the_ideal(long, words):
    columns, jct = "preset case jobs_per_hour average_jct", {"ideal": 1.0, "360 s": 1.02, "2880 s": long}
    rows = [(preset, case, load, jct[case]) for preset in ("default", "gavel") for case in jct for load in (0.2, 0.8)]
    first, second, *_ = findings.mechanism_fidelity(frame(columns, *rows))
    assert "2.0 \N{PLUS-MINUS SIGN} 0.0 % above" in first
    assert f"{100 * long - 100:.1f} \N{PLUS-MINUS SIGN} 0.0 % above" in first
    assert words in second


@pytest.mark.parametrize("sign", [1, -1])
def test_restarts_pay_only_where_they_do(sign):
    rows = []
    for policy, part in (("finish_time_fairness_perf", 1.0), ("isolated", 2.0)):
        for h, change in ((0.0, 0.0), (4.0, -0.05 * sign * part), (16.0, -0.06 * sign * part)):
            long_waits = 0.5 * (h == 16.0 and sign > 0 and policy == "isolated")
            rows += [(policy, h, cost, 720.0, 1.0 + cost / 30 * change, 2.0 + change + long_waits, 0.3 + change,
                      1000 - 30 * h) for cost in (0.0, 30.0, 120.0)]  # fmt: skip
    columns = "policy hysteresis_rounds restart_penalty_seconds mean_interarrival_seconds average_jct worst_rho "
    high = frame(f"{columns} unfair_fraction preemptions", *rows)
    high = high.assign(p99_jct=high["average_jct"], average_rho=high["worst_rho"])
    low = high.assign(mean_interarrival_seconds=1800.0, average_jct=1.0, preemptions=1)
    first, second, fair, most, chosen, free, _ = findings.restarts(pd.concat([low, high]))
    words, rho = ("shorter", "falls") if sign > 0 else ("longer", "rises")
    assert "With h = 4 rounds, 88 to 88 % of the preemptions are left" in first
    assert f"average JCT is 5.0 to 10.0 % {words}, where a start costs 30 s (two policies, means over three" in first
    assert f"shorter in {6 if sign > 0 else 0} of 6 pairs" in first
    assert f"gain is largest under `{'isolated' if sign > 0 else 'finish_time_fairness_perf'}`" in second
    assert f"costs 120 s JCT is 20.0 to 40.0 % {words}, and where it costs 0 s unchanged: what is gained" in second
    assert f"falls under {'both' if sign > 0 else 'none of two'} policies" in fair
    assert f"from 30 to {25 if sign > 0 else 35} % under `finish_time_fairness_perf`" in fair
    assert f"{rho} from 2.00 to {1.95 if sign > 0 else 2.05:.2f}" in fair
    assert ("but the worst rho of `isolated` rises from 2.00 to 2.38" in most) == (sign > 0)
    assert f"shortest of all h under {'both' if sign > 0 else 'none of two'} policies" in most
    assert f"{10 if sign > 0 else 0} of 10 means are better than without and " in chosen
    assert ("and none is worse" in chosen) == (sign > 0)
    assert ("rises from 30 to 35 % under `finish_time_fairness_perf`" in free) == (sign < 0)


@pytest.mark.parametrize("sign", [1, -1])
def test_choosing_gpus_is_compared_with_what_was_asked_for(sign):
    rows = []
    for gap, base in ((240.0, 3600.0), (900.0, 1800.0)):
        for policy, part in (
            ("sia", 0.52), ("pollux", 0.5), ("optimus", 0.6), ("tiresias", 1.0), ("max_min_fairness_perf", 1.0),
        ):  # fmt: skip
            factor = part if sign > 0 or part == 1.0 else 1.0 / part
            rows.append((policy, gap, factor * base, 30 if policy == "optimus" else 10))
    first, types, left, asked, calm, paper = findings.goodput(
        frame("policy mean_interarrival_seconds average_jct preemptions", *rows)
    )
    best, share, words = ("pollux", "50", "shorter") if sign > 0 else ("optimus", "67", "longer")
    assert f"JCT under `{best}` is {0.5 if sign > 0 else 1 / 0.6:.2f}" in first
    assert f"{share} % {words} than under `max_min_fairness_perf`, in each of the three draws" in first
    assert f"under `sia` is {'4.0 % longer' if sign > 0 else '3.8 % shorter'} than under `pollux`" in types
    assert f"JCT is {'20 % longer than' if sign > 0 else 'about the same as'} under `{best}`" in left
    assert f"with {3.0 if sign > 0 else 1.0} times the preemptions" in left
    assert "JCT is about the same as under `max_min_fairness_perf`" in asked
    assert f"of `{best}` gives {share} % {words}" in calm
    assert "0.68 h under Pollux" in paper


@pytest.mark.parametrize("sign", [1, -1])
def test_sharing_under_a_score_is_compared_with_orders_and_between_budgets(sign):
    rows = [(order, np.nan, HOUR * part) for order, part in
            (("fifo", 4.0), ("sjf", 2.5), ("srtf", 2.1), ("qssf", 2.5), ("tiresias", 2.4))]  # fmt: skip
    for form, at_2 in (("lucid, as published", 2.2), ("lucid", 2.5 - 0.5 * sign), ("lucid_program", 2.0)):
        rows += [(form, budget, HOUR * at_2 * part) for budget, part in ((0.0, 1.2), (2.0, 1.0), (4.0, 1 + 0.2 * sign))]
    waits = {"lucid": (1.0, 6.0), "fifo": (2.0, 6.0 + 2.0 * sign)}
    groups = [(name, "vc1", 8 * (k + 1), size, 10, 10 * HOUR, 10 * HOUR * wait * (2 - k)) for name in waits
              for k in range(2) for size, wait in zip(("up to 8 GPUs", "more"), waits[name], strict=True)]  # fmt: skip
    first, best, budgets, limit, pairs, clusters, sizes, paper = findings.lucid(
        frame("policy score_budget average_jct", *rows),
        frame("policy virtual_cluster gpus size jobs jct queueing", *groups),
    )
    assert f"under `lucid` is {2.5 - 0.5 * sign:.2f} \N{PLUS-MINUS SIGN} 0.00 h, 20 % " in first
    assert f"20 % {'shorter' if sign > 0 else 'longer'} than under `qssf`" in first
    assert "the best of the orders is `srtf` with 2.10 h" in best
    assert "budgets of 0, 2 and 4 give average JCT of 2.64, 2.20 and" in budgets
    assert f"is 20 % {'longer' if sign > 0 else 'shorter'} under the published rules" in limit
    assert ("JCT about the same as under `lucid`" if sign > 0 else "JCT 33 % shorter than under `lucid`") in pairs
    assert f"of 8 GPUs jobs wait 7.00 h under `lucid` and {8 + 2 * sign:.2f} h under `fifo`" in clusters
    assert "up to 8 GPUs wait 0.50 times as long under `lucid` as under `fifo`, the 60 of 120 with more" in sizes
    assert ("smaller jobs pass" in sizes) == (sign < 0)
    assert "1.3 times shorter than under Tiresias" in paper


@pytest.mark.parametrize("sign", [1, -1])
def test_what_may_be_chosen_is_compared_with_nothing(sign):
    rows = [
        (policy, case, 3600.0 * part**sign, starts)
        for policy in ("sia", "pollux")
        for case, part, starts in (("all adaptive", 0.5, 30), ("half rigid", 0.8, 9), ("all scale GPUs", 1.0, 9),
                                   ("all rigid", 1.0, 3))
    ]  # fmt: skip
    first, half, scaled, other, price = findings.goodput_adaptivity(frame("policy case average_jct preemptions", *rows))
    share = "50 % shorter" if sign > 0 else "100 % longer"
    assert f"is {0.5**sign:.2f} \N{PLUS-MINUS SIGN} " in first
    assert f"{share} than where all are rigid, in each of the three draws" in first
    assert f"it is {'20 % shorter' if sign > 0 else '25 % longer'} than with all of them" in half
    assert "JCT is about the same beside rigid ones" in scaled
    assert f"figures is {share}" in other
    assert "30 preemptions where all jobs are adaptive and 3 where" in price


@pytest.mark.parametrize("sign", [1, -1])
def test_settings_of_sia_are_compared_with_those_published(sign):
    parts = {"as published": 1.0, "power -1": 1.1**sign, "power 1": 1.2, "every 300 s": 1.3, "every 600 s": 1.6}
    rows = [(case, 3600.0 * part, 20 if case == "as published" else 5) for case, part in parts.items()]
    first, others, powers, starts, paper = findings.goodput_sia(frame("case average_jct preemptions", *rows))
    assert "verage JCT is 60 % longer with decisions every 600 s than with one every 60 s (1.00" in first
    assert "30 % longer every 300 s" in others
    assert f"{'10 % longer' if sign > 0 else '9.1 % shorter'} with power -1, 20 % longer with power 1" in powers
    assert f"{'-0.5' if sign > 0 else 'power -1'} is the best on these draws" in powers
    assert "20 as published, 5 with decisions every 600 s" in starts
    assert "12 %" in paper


def test_time_of_decisions_is_said_of_the_largest_cluster():
    rows = [(policy, gpus, 3600.0 * part) for gpus in (16, 32) for policy, part in (("sia", 0.9), ("pollux", 1.0))]
    names = ("sia", "pollux", "optimus", "max_sum_throughput_perf")
    decisions = [(name, gpus, 1e-3 * gpus * (k + 1)) for k, name in enumerate(names) for gpus in (64, 128)]
    texts = findings.goodput_scale(
        frame("policy gpus average_jct", *rows), frame("policy gpus decision_seconds", *decisions)
    )
    assert (
        "about 64 jobs on 128 GPUs takes 128 ms of processor time, 2.0 times that about 32 jobs on 64 GPUs" in texts[0]
    )
    assert "`max_sum_throughput_perf` with 512 ms; `pollux` takes 256 ms" in texts[1]
    assert "on 32 GPUs JCT under `sia` is 10 % shorter than under `pollux`" in texts[3].replace("On", "on")


@pytest.mark.parametrize(("worst", "words"), [(1.02, "costs little"), (1.2, "Estimates cost:")])
def test_estimates_are_compared_with_what_is_known(worst, words):
    known = "max_min_fairness_packed"
    rows = [("max_min_fairness_perf", 2.0, None, None, None), (known, 1.0, None, None, None)]
    for part, references, error in ((0.1, 4, 0.2), (0.1, 26, 0.05), (1.0, 4, 0.1), (1.0, 26, 0.0)):
        run = f"{known}, {part:.0%}, {references} references"
        rows.append((run, worst if error == 0.2 else 1.001, part, references, error))
    results = frame("run average_jct profiling_percentage reference_models estimation_error", *rows)
    text = " ".join(findings.estimation(results.assign(jobs_per_hour=0.7)))
    assert words in text
    assert f"(10%, 4 references) is {100 * worst - 100:.1f}" in text or "(10%, 4 references) average JCT" in text
    assert "50 % shorter than without sharing" in text
    assert "More reference models are worth more than more profiling." in text  # 0.05 beside 0.1


def test_entities_are_compared_with_their_weights():
    shares = {"throughput_share_entity_1": 0.1, "throughput_share_entity_2": 0.3, "throughput_share_entity_3": 0.6}
    rows = [(policy, case, total) for case in ("fairness", "fifo")
            for policy, total in (("max_min_fairness_water_filling", 9.0),
                                  ("max_min_fairness_water_filling_perf", 10.8))]  # fmt: skip
    results = frame("policy case total_normalised_throughput", *rows).assign(submitted_jobs=18, **shares)
    text = " ".join(findings.hierarchical(results))
    assert "10.0 \N{PLUS-MINUS SIGN} 0.0, 30.0 \N{PLUS-MINUS SIGN} 0.0 and 60.0 \N{PLUS-MINUS SIGN} 0.0 %" in text
    assert "within 10.0 percentage points" in text
    assert "20.0 \N{PLUS-MINUS SIGN} 0.0 % more with `fairness`" in text


@pytest.mark.parametrize("plain", [True, False])
def test_times_of_decisions_are_those_measured(plain):
    names = ("max_min_fairness_perf", "max_min_fairness_water_filling_perf", "max_min_fairness_packed")
    rows = [(name, "this library", n, n * 1e-5) for name in names for n in (32, 256)]
    rows += [(names[0], "cvxpy + ECOS", n, n * 4e-5) for n in (32, 256)] * plain
    text = " ".join(findings.policy_runtimes(frame("policy path submitted_jobs decision_seconds", *rows)))
    assert "about 256 jobs takes 2.6 ms" in text
    assert ("takes 4.0 times as long for 256 jobs" in text) == plain
    assert "to the power of 1.0" in text


@pytest.mark.parametrize(("width", "words"), [(30.0, "no recommendation"), (1.0, "the weights matter more")])
def test_weights_are_weighed_against_the_draws(width, words):
    columns = "label draws makespan average_jct unfair unfair_width worst_rho_static k exponent"
    own = [(8.0, 10.0, "0", "1"), (6.0, 20.0, "1", "3"), (9.0, 25.0, "0", "3")]
    rows = [("Shockwave", 3, span, 2.0, unfair, width, 2.0, k, exponent) for span, unfair, k, exponent in own]
    rows.append(("Gavel", 3, 9.0, 2.0, 22.0, width, 2.0, "nan", "nan"))
    text = " ".join(findings.shockwave_tradeoff(pd.DataFrame(rows, columns=columns.split())))
    assert "Two of three combinations" in text
    assert "from 6.00 h with 20.0 % to 8.00 h with 10.0 %" in text
    assert "Gavel has the fewest unfair jobs, 22.0 %; two of the three combinations have fewer, at best 10.0 %" in text
    assert words in text


def test_a_rule_that_changes_nothing_is_said_to_change_nothing():
    variants = {("published", "oracle"): ("as published", 0.1), ("own finish", "oracle"): ("own finish", 0.1),
                ("off", "oracle"): ("off", 0.1), ("published", "causal"): ("causal forecast", 0.3)}  # fmt: skip
    rows = [(rule, forecast, load, f"{load:g} jobs per GPU", variant, unfair, 0.02 * (rule == "own finish"))
            for (rule, forecast), (variant, unfair) in variants.items() for load in (0.5, 3.75)]  # fmt: skip
    columns = "rule forecast contention case variant unfair_fraction_static fair_plans"
    text = " ".join(findings.shockwave_fairness_rows(frame(columns, *rows)))
    assert "at most 0.0 percentage points with the other rule and 0.0 without any" in text
    assert "up to 20.0 points: what is known of the jobs matters more" in text


@pytest.mark.parametrize("late", [0, 2])
def test_promises_that_are_broken_are_counted(late):
    ratios = {"elasticflow, published": 0.7, "elasticflow, ours": 0.9, "edf": 0.1, "tiresias": 0.4, "chronus": 0.5,
              "edf_admission": 0.3, "elasticflow_no_admission": 0.35}  # fmt: skip
    ends = frame("label deadline_ratio late", *((label, ratio, late / 2) for label, ratio in ratios.items()))
    tight = frame("label deadline_ratio case", *((label, 0.5 * ("elastic" in label), "0.5") for label in ratios))
    parts = frame("label deadline_ratio case", *((label, ratio, "nothing") for label, ratio in ratios.items()))
    text = " ".join(findings.deadlines(ends, tight, parts.assign(cluster="v100:16", submitted_jobs=20)))
    assert "completes 90 \N{PLUS-MINUS SIGN} 0 % of the jobs by their deadlines as it is here and 70" in text
    assert "`chronus`, 50 % (means over three draws" in text
    assert ("none is late" in text) == (late == 0)
    assert "none has any, since" in text
    assert (
        "10 % in time, with admission 30 %, with elastic numbers of GPUs but no admission 35 %, and with both 90 %"
        in text
    )
    one = ends[ends["seed"] == 0]
    assert (
        "one trace, so no intervals"
        in findings.deadlines(one, tight, parts.assign(cluster="v100:16", submitted_jobs=20))[0]
    )


def test_a_notebook_shows_them_under_a_heading():
    shown = findings.show(["First.", "Second.", "Third."])
    assert shown.data == "## Findings\n\nFirst.\n\nSecond. Third."
