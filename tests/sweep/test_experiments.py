"""One run in Python: comparisons, products of changes, workloads of one's own, and the page that shows them."""

from __future__ import annotations

import re
from dataclasses import replace

import pandas as pd
import pytest

import allocator
from allocator import Run, compare, explain, simulate, solve
from allocator.experiments import workloads
from allocator.experiments.run import sweep
from allocator.presets import preset
from allocator.sweep import Sweep
from tests.sweep.sweep_definitions import DOCS, TINY, static, timeless
from throughputs import InputError, Trace, default_table, entry_points


def page(what: str) -> str:
    """The one piece of code of the page that has these words."""
    text = DOCS.read_text()
    (code,) = [each for each in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL) if what in each]
    return code


TWO = Trace(["a", "b"], [1, 1], [600.0, 300.0], [0.0, 0.0], duration=[600.0, 300.0])
"""Of one GPU each: on one GPU, with starts of 30 s, 630 and 960 s in their order, 330 and 960 s the shorter first."""


def test_runs_of_a_trace_side_by_side(tmp_path):
    run = Run("trace", "fcfs", "gpu:1", workload=TWO)
    assert run.result().jobs["jct"].tolist() == [630.0, 960.0]
    ran = compare(sweep(run, policy=["fcfs", "srtf"]), out=tmp_path)
    assert ran.table["average_jct"].tolist() == [795.0, 645.0]
    assert pd.read_csv(tmp_path / "srtf" / "jobs.csv")["jct"].tolist() == [960.0, 330.0]
    assert (ran.failed, ran.notes) == ([], [])
    twice = [replace(run, name="once"), replace(run, name="twice")]
    assert [row["label"] for row in compare(twice).summaries] == ["once", "twice"]
    with pytest.raises(InputError, match="'fcfs'"):
        compare([run, run])


def test_a_policy_is_named_where_one_is_expected():
    named = allocator.simulate(TWO, "gpu:1", "fcfs:backfill=easy")
    made = allocator.simulate(TWO, "gpu:1", allocator.get_policy("fcfs", backfill="easy"))
    assert timeless(dict(named.summary())) == timeless(dict(made.summary()))
    assert named.settings["policy_settings"]["backfill"] == "easy"
    with pytest.raises(InputError, match="fcfs,srtf"):
        allocator.simulate(TWO, "gpu:1", "fcfs,srtf")


def test_a_product_of_changes_varies_the_last_fastest():
    runs = sweep(Run("static", "fifo", TINY, 5), seed=[0, 1], policy=["fifo", "srtf"])
    assert [(run.seed, run.policy) for run in runs] == [(0, "fifo"), (0, "srtf"), (1, "fifo"), (1, "srtf")]
    assert len({run.key for run in runs}) == 4


@pytest.mark.published
def test_a_field_of_another_workload_is_refused_by_name():
    with pytest.raises(InputError) as caught:
        workloads.workload({"generator": "deadlines", "priorities": True})
    assert caught.value.field == "workload.priorities"
    assert all(word in str(caught.value) for word in ("gavel", "shockwave", "default", "deadlines"))
    # what is as usual says nothing
    assert workloads.workload({"generator": "deadlines", "priorities": False}).generator == "deadlines"


def test_the_runs_of_the_page(capsys):
    exec(compile(page("compare(runs)"), "sweeps.md", "exec"), {"__name__": "page"})
    assert capsys.readouterr().out.count("srtf") == 2


def test_the_workload_of_the_page(monkeypatch):
    """Three jobs a night are at 0 s, seven are on three days; a sweep knows its field, and no other generator does."""
    made: dict[str, type] = {}
    exec(compile(page("class Nightly"), "sweeps.md", "exec", dont_inherit=True), made)
    declared = {"allocator.workloads": {"nightly": entry_points.Entry(given=made["Nightly"])}}
    monkeypatch.setattr(entry_points, "_given", declared)
    own = static(jobs=[7], seeds=[0], workload={"generator": "nightly", "jobs_per_night": 3})
    (run,) = Sweep.from_dict(own).points()
    assert run.result().jobs["arrival_time"].tolist() == [0.0] * 3 + [86400.0] * 3 + [172800.0]
    assert run.specification()["workload"]["jobs_per_night"] == 3
    for jobs in ({"generator": "nightly", "jobs_per_night": 0}, {"generator": "default", "jobs_per_night": 3}):
        with pytest.raises(InputError, match=r"workload\.jobs_per_night"):
            Sweep.from_dict(static(workload=jobs))


def test_policies_side_by_side_on_jobs_of_a_frame():
    log = pd.DataFrame({"submit": [0, 0, 60], "duration": [3600.0, 60.0, 600.0], "gpus": [8, 8, 4]})
    free = preset("default").replace(restart_penalty_seconds=0.0)
    ran = compare(log, {"a100": 8}, ["fifo", "srtf"], settings={"restart_penalty_seconds": 0.0})
    assert ran._repr_html_().count("<tr>") == 1 + len(ran.results)
    assert ran.table[["policy", "seed"]].to_numpy().tolist() == [["fifo", 0], ["srtf", 0]]
    assert ran.table["average_jct"].tolist() == [simulate(log, "a100:8", policy, preset=free).summary().average_jct
                                                 for policy in ("fifo", "srtf")]  # fmt: skip
    assert "srtf" in str(ran)
    for wrong, named in ({"policies": "fiffo"}, "fifo"), ({"cluster": "a100"}, "cluster"):
        with pytest.raises(InputError) as error:
            compare(log, **({"cluster": "a100:8", "policies": "fifo"} | wrong))
        assert named in str(error.value)
        assert "--" not in str(error.value)


def test_what_python_answers_can_be_read(capsys):
    trace = Trace(["job"] * 2, [1, 1], [3600.0] * 2, [0.0] * 2, trace_id=["first", "second"])
    result = simulate(trace, "v100:1", "fifo", [[1.0], [1.0]])
    speeds = {"v100": {"resnet": 4.0, "lstm": 2.0}}
    for answer, words in (
        (trace, "2 jobs first second scale_factor"),
        (solve("max_min_fairness", speeds, "v100:1"), "resnet lstm v100 0.500 optimal"),
        (explain(result), "second waited"),
        (explain(result, "second"), "first waited fifo"),
    ):
        print(answer)
        said = capsys.readouterr().out
        assert [word for word in words.split() if word not in said.lower()] == []
        assert "array(" not in said


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"policies": [allocator.get_policy("fifo")]}, "policies.*names of policies.*register"),
        ({"policies": "fifo", "sede": 3}, "sede.*seed"),
        ({"policies": "fifo", "out": __file__}, "out.*a folder"),
        ({"policies": "fifo", "throughputs": default_table()}, "throughputs.*write_table"),
        ({"policies": "fifo", "world": "rules.py:Slow"}, "world.*Slow"),
    ],
)
def test_what_compare_cannot_be_told(given, told):
    with pytest.raises(InputError, match=told):
        allocator.compare(Trace(["A3C"], [1], [100.0], [0.0]), "v100:1", **given)


def test_jobs_of_a_table_that_are_left_out_are_told():
    table = pd.DataFrame({"submit": [0, 60, 70], "duration": [3600, -1, float("nan")], "gpus": [1, 1, 1]})
    with pytest.warns(UserWarning, match="of 3 jobs .* 2 are left out"):
        compared = allocator.compare(table, "a100:1", "fifo")
    assert compared.table["jobs"].tolist() == [1]
