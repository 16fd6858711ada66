"""The contract between policies and the rest: what a policy sees, what it answers, and how a job is known."""

from allocator.protocol.allocation import Allocation
from allocator.protocol.assignment import Assignment
from allocator.protocol.decision import Decision
from allocator.protocol.jobs import JobTable
from allocator.protocol.plan import Plan, PlanStep, UpcomingRounds
from allocator.protocol.policy import Need, PlanPolicy, Policy, SharePolicy, Trigger
from allocator.protocol.state import ClusterState
from allocator.protocol.views import View, Views

__all__ = [
    "Allocation",
    "Assignment",
    "ClusterState",
    "Decision",
    "JobTable",
    "Need",
    "Plan",
    "PlanPolicy",
    "PlanStep",
    "Policy",
    "SharePolicy",
    "Trigger",
    "UpcomingRounds",
    "View",
    "Views",
]
