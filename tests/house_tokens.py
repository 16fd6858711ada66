"""Tokens of code, and the table of docs/architecture.md on what capabilities cost."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

CAPABILITIES = {
    "goodput: jobs that choose batch size and GPUs": (
        "throughputs/goodput formulations/goodput allocator/policies/goodput allocator/simulator/goodput "
        "allocator/published/pollux"
    ),
    "pairs on the same GPUs: programs, Lucid, what is known of pairs": (
        "formulations/packed formulations/packing.py formulations/floors allocator/policies/lucid "
        "allocator/published/lucid throughputs/colocation throughputs/estimator"
    ),
    "deadlines: admission, and plans slot by slot": (
        "formulations/deadlines allocator/policies/deadlines allocator/published/elasticflow "
        "allocator/results/deadlines.py allocator/admission.py"
    ),
    "Shockwave's plans, and jobs whose batch size changes": (
        "formulations/shockwave allocator/policies/shockwave allocator/published/shockwave throughputs/training"
    ),
    "lease terms: Chronus": "formulations/leases allocator/policies/chronus allocator/published/chronus",
    "programs of thousands of distinct jobs, by prices": "formulations/prices",
    "programs to read and to write, other solvers, rows of one's own": (
        "formulations/statements formulations/stated formulations/composed formulations/reference"
    ),
    "why a job waited": "allocator/explanations",
    "what if": "allocator/experiments/whatif",
    "lengths predicted at submission, nodes that may sleep": "allocator/predictions throughputs/predict",
    "guarantees of an allocation, and of a log": "allocator/audit",
    "studies": "allocator/studies",
    "real jobs: service, journal, requests": (
        "allocator/runtime/decisions allocator/runtime/door allocator/runtime/records"
    ),
    "this machine, Slurm and Ray below the service; trainers of Ray": "allocator/runtime/adapters allocator/ray",
    "page and metrics of the service": "allocator/runtime/page",
    "an environment for agents, and the check of policies": "allocator/environment allocator/testing",
}
"""The files and folders that would go with each."""


def tokens(text: str) -> int:
    """Those that do something: no comments, docstrings and imports."""
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        described = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom) or described:
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    nothing = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    read = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type not in nothing and token.start[0] not in left_out for token in read)


def tokens_below(place: str) -> int:
    """Of a module, or of all modules in a folder, by path from the root."""
    path = ROOT / place
    return sum(tokens(each.read_text()) for each in ([path] if path.suffix else path.rglob("*.py")))


def capabilities() -> str:
    """Thousands of tokens of each."""
    rows = ["| capability | thousands | where |", "|---|---|---|"]
    for name, places in CAPABILITIES.items():
        count = round(sum(map(tokens_below, places.split())) / 1000)
        rows.append(f"| {name} | {count} | {', '.join(f'`{place}`' for place in places.split())} |")
    return "\n".join(rows)
