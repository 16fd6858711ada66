"""What the notebooks find, in words: sentences whose figures, and whose "less" and "more", come from the runs.

    from benchmarks import findings

    findings.show(findings.las_single_gpu(results))

A function for each notebook takes its results and gives three to six sentences: what is seen, by how much, why, and
what the paper reported. They are made anew with every run, so that they are true of the pictures above them. The first
sentence says the most; docs/notebooks.md has it in its table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.findings.deadline_policies import deadlines
from benchmarks.findings.dynamic import (
    shockwave_canonical,
    shockwave_contention,
    shockwave_fairness_rows,
    shockwave_scale,
    shockwave_tradeoff,
)
from benchmarks.findings.goodput import goodput
from benchmarks.findings.goodput_studies import goodput_adaptivity, goodput_scale, goodput_sia
from benchmarks.findings.heterogeneity import (
    finish_time_fairness,
    las_multi_gpu,
    las_single_gpu,
    makespan,
    priorities,
)
from benchmarks.findings.hysteresis import restarts
from benchmarks.findings.mechanics import estimation, hierarchical, mechanism_fidelity, policy_runtimes
from benchmarks.findings.packing import lucid

if TYPE_CHECKING:
    from IPython.display import Markdown

__all__ = [
    "HEADING",
    "deadlines",
    "estimation",
    "finish_time_fairness",
    "goodput",
    "goodput_adaptivity",
    "goodput_scale",
    "goodput_sia",
    "hierarchical",
    "las_multi_gpu",
    "las_single_gpu",
    "lucid",
    "makespan",
    "mechanism_fidelity",
    "policy_runtimes",
    "priorities",
    "restarts",
    "shockwave_canonical",
    "shockwave_contention",
    "shockwave_fairness_rows",
    "shockwave_scale",
    "shockwave_tradeoff",
    "show",
]

HEADING = "## Findings"
"""How the text of a notebook starts, on a line of its own."""


def show(sentences: Sequence[str]) -> Markdown:
    """The sentences under their heading, for the last cell of a notebook: the first by itself, the rest below it.

    Empty ones, which a run gave no reason to say, are left out.
    """
    from IPython.display import Markdown

    first, *rest = sentences
    return Markdown(f"{HEADING}\n\n{first}\n\n{' '.join(filter(None, rest))}")
