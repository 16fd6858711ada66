"""Pages of the Python interface: one for each object that most people need, one for each other room.

mkdocstrings fills them from docstrings.
"""

from __future__ import annotations

import json
from importlib import import_module

from allocator import _HOME

OBJECTS = {
    "What is known": "Cluster read_cluster Trace read_trace ThroughputMatrix load_throughputs default_table read_table "
    "Entities Entity Estimation InputError",
    "One decision": "solve Allocation AdmissionTest",
    "Runs and their comparison": "simulate Run compare whatif SimulationResult Summary recorded_schedule explain "
    "write_report",
    "Policies": "get_policy list_policies register ProgramPolicy ConstrainedPolicy ConvexPolicy SharePolicy "
    "OrderPolicy PlanPolicy Policy",
    "What policies read and say": "ClusterState View Need Trigger UpcomingRounds Assignment Plan PlanStep Decision",
}
"""The names of `allocator`, in the order of use."""

ROOMS = {
    "allocator.protocol": (
        "Policies and what they read",
        "The contract between policies and the worlds that ask them.",
    ),
    "allocator.testing": ("Checking a policy", "What every policy does, as a check for your own."),
    "allocator.audit": ("Audit", "Properties of an allocation, and why each job runs where it runs."),
    "allocator.sweep": ("Sweeps", "Many runs, kept one by one."),
    "allocator.data": ("Public data sets", "Downloads by name, verified."),
    "allocator.lease": ("Leases", "What a training script needs to be stopped and to go on."),
    "throughputs": ("Throughputs and traces", "What is known of speed, and of jobs."),
    "throughputs.training": ("Jobs that change", "Profiles, true courses and forecasts."),
    "throughputs.estimator": ("Estimated co-location", "What pairs of jobs do, from few measurements."),
    "formulations": ("Programs", "The polytope, objectives, solutions with their certificates."),
    "formulations.columns": ("Programs over configurations", "Columns of any number of GPUs."),
}
"""Modules whose public names are listed, with a title and a line on what they are."""


def pages() -> dict[str, str | bytes]:
    """Addresses and content: an overview, and a page for each object and each room."""
    names = {name: group for group, listed in OBJECTS.items() for name in listed.split()}
    made: dict[str, str | bytes] = {
        f"reference/allocator/{name}.md": f"# {name}\n\n*{group}*\n\n::: {_HOME[name]}.{name}\n    options:\n"
        "      show_root_heading: false\n"
        for name, group in names.items()
    }
    made |= {f"reference/{name}.md": _page(name, *about) for name, about in ROOMS.items()}
    rows = [f"| [`{name}`]({name}.md) | {about} |" for name, (_, about) in ROOMS.items()]
    listed = [
        f"| {group} | {', '.join(f'[`{name}`](allocator/{name}.md)' for name in text.split())} |"
        for group, text in OBJECTS.items()
    ]
    parts = [_OVERVIEW, "| `import allocator` | |", "|---|---|", *listed, "", "| module | |", "|---|---|", *rows, ""]
    made["reference/index.md"] = "\n".join(parts)
    return made


def _page(name: str, title: str, about: str) -> str:
    """The page of a room, without what has a page of its own."""
    own = " ".join(OBJECTS.values()).split()
    members = [each for each in import_module(name).__all__ if each not in own]
    options = f"    options:\n      show_root_toc_entry: false\n      members: {json.dumps(members)}\n"
    return f"# {title}\n\n{about}\n\n::: {name}\n{options}"


_OVERVIEW = """# The Python interface

Made from docstrings. Their examples run in the tests. What is not listed here is not meant for use from outside, and
may change.
"""
