"""Decisions that were left to another solver are told of in one line, with the count and the reason."""

from __future__ import annotations

import json
from dataclasses import replace

from allocator.policies.gavel.programs import MaxMinFairnessPerf
from tests.cli.command import ran
from throughputs import TraceGenerator, write_trace

REASON = "left by first, second, which failed or missed the tolerance of the proof, to highs"


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
