"""Scheduling policies for GPU clusters as programs over a throughput matrix: solve, simulate, compare.

>>> import pandas as pd, allocator
>>> speeds = pd.DataFrame({"v100": [4.0, 2.0], "k80": [1.0, 1.0]}, index=["resnet", "lstm"])
>>> answer = allocator.solve("max_min_fairness_perf", speeds, "v100:1,k80:1")
>>> answer.status
'optimal'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allocator.admission import AdmissionTest
    from allocator.api import load_throughputs, solve
    from allocator.cluster import Cluster
    from allocator.cluster_spec import read_cluster
    from allocator.experiments.compare import compare
    from allocator.experiments.run import Run
    from allocator.experiments.whatif import whatif
    from allocator.explanations.explain import explain
    from allocator.policies.base.constrained import ConstrainedPolicy
    from allocator.policies.base.convex import ConvexPolicy
    from allocator.policies.base.ordering import OrderPolicy
    from allocator.policies.base.programs import ProgramPolicy
    from allocator.protocol import (
        Allocation,
        Assignment,
        ClusterState,
        Decision,
        Need,
        Plan,
        PlanPolicy,
        PlanStep,
        Policy,
        SharePolicy,
        Trigger,
        UpcomingRounds,
        View,
    )
    from allocator.protocol.entities import Entities, Entity
    from allocator.recorded import recorded_schedule
    from allocator.registry import get_policy, list_policies, register
    from allocator.report.html import write_report
    from allocator.results.result import SimulationResult
    from allocator.results.summary import Summary
    from allocator.simulator.engine import simulate
    from throughputs import InputError, ThroughputMatrix, Trace, default_table, read_table, read_trace
    from throughputs.estimator.believed import Estimation

__all__ = [
    "AdmissionTest",
    "Allocation",
    "Assignment",
    "Cluster",
    "ClusterState",
    "ConstrainedPolicy",
    "ConvexPolicy",
    "Decision",
    "Entities",
    "Entity",
    "Estimation",
    "InputError",
    "Need",
    "OrderPolicy",
    "Plan",
    "PlanPolicy",
    "PlanStep",
    "Policy",
    "ProgramPolicy",
    "Run",
    "SharePolicy",
    "SimulationResult",
    "Summary",
    "ThroughputMatrix",
    "Trace",
    "Trigger",
    "UpcomingRounds",
    "View",
    "compare",
    "default_table",
    "explain",
    "get_policy",
    "list_policies",
    "load_throughputs",
    "read_cluster",
    "read_table",
    "read_trace",
    "recorded_schedule",
    "register",
    "simulate",
    "solve",
    "whatif",
    "write_report",
]

# Names are imported at first use, so that `import allocator` stays quick.
_HOME = {
    "AdmissionTest": "allocator.admission",
    "Allocation": "allocator.protocol",
    "Assignment": "allocator.protocol",
    "Cluster": "allocator.cluster",
    "ClusterState": "allocator.protocol",
    "ConstrainedPolicy": "allocator.policies.base.constrained",
    "ConvexPolicy": "allocator.policies.base.convex",
    "Decision": "allocator.protocol",
    "Entities": "allocator.protocol.entities",
    "Entity": "allocator.protocol.entities",
    "Estimation": "throughputs.estimator.believed",
    "InputError": "throughputs",
    "Need": "allocator.protocol",
    "OrderPolicy": "allocator.policies.base.ordering",
    "Plan": "allocator.protocol",
    "PlanPolicy": "allocator.protocol",
    "PlanStep": "allocator.protocol",
    "Policy": "allocator.protocol",
    "ProgramPolicy": "allocator.policies.base.programs",
    "Run": "allocator.experiments.run",
    "SharePolicy": "allocator.protocol",
    "SimulationResult": "allocator.results.result",
    "Summary": "allocator.results.summary",
    "ThroughputMatrix": "throughputs",
    "Trace": "throughputs",
    "Trigger": "allocator.protocol",
    "UpcomingRounds": "allocator.protocol",
    "View": "allocator.protocol",
    "compare": "allocator.experiments.compare",
    "default_table": "throughputs",
    "explain": "allocator.explanations.explain",
    "get_policy": "allocator.registry",
    "list_policies": "allocator.registry",
    "load_throughputs": "allocator.api",
    "read_cluster": "allocator.cluster_spec",
    "read_table": "throughputs",
    "read_trace": "throughputs",
    "recorded_schedule": "allocator.recorded",
    "register": "allocator.registry",
    "simulate": "allocator.simulator.engine",
    "solve": "allocator.api",
    "whatif": "allocator.experiments.whatif",
    "write_report": "allocator.report.html",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("cluster-allocator")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'allocator' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
