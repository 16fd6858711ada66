"""Decisions that were left to another solver are told of in one line, with the count and the reason."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

import allocator
from allocator.policies.gavel.max_min import MaxMinFairnessPerf
from allocator.results.views.fallbacks import fallbacks_told
from tests.cli.command import ran
from throughputs import TraceGenerator, write_trace

REASON = "left by first, second, which failed or missed the tolerance of the proof, to highs"


def answers():
    one = allocator.solve("max_min_fairness_perf", {"v100": {"a": 1.0}}, "v100:1")
    other = replace(one, fallbacks=("first", "second"), solver="highs")
    return one, other


def test_the_line():
    one, other = answers()
    assert fallbacks_told("mine", [one, one], 2) == ""
    assert fallbacks_told("mine", [one, other], 359) == f"mine: 1 of 359 decisions {REASON}; all proven optimal"
    ruled = replace(other, solver="", status="greedy", gap=np.nan, certified=True)
    assert fallbacks_told("mine", [other, ruled, other], 3).endswith(
        "to highs (2), greedy (1); 1 of them without a proof"
    )


def test_commands_warn(tmp_path, monkeypatch):
    usual = MaxMinFairnessPerf.allocate
    given = {"fallbacks": ("first", "second"), "solver": "highs"}
    monkeypatch.setattr(MaxMinFairnessPerf, "allocate", lambda self, state: replace(usual(self, state), **given))
    write_trace(TraceGenerator(n_jobs=2, mean_interarrival=10.0, scale_factors={1: 1.0}).generate(), tmp_path / "t.csv")
    run = f"--trace {tmp_path}/t.csv --cluster v100:2 --out {tmp_path}/out --json"
    for command in ("simulate --policy", "compare --policies"):
        done = ran(f"{command} max_min_fairness_perf {run}")
        summary = json.loads(done.out)
        count = (summary if isinstance(summary, dict) else summary[0])["fallback_decisions"]
        (line,) = [line for line in done.err.splitlines() if line.startswith("warning: ")]
        assert line == f"warning: max_min_fairness_perf: {count} of {count} decisions {REASON}; all proven optimal"
    instance = json.dumps({"cluster": {"v100": 1}, "jobs": [{"job_id": 0, "throughputs": {"v100": 1.0}}]})
    assert "1 of 1 decision " in ran("solve - --policy max_min_fairness_perf", given=instance.encode()).err
