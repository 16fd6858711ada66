"""Average JCT of Lucid's three forms by score budget, and CPU time of a large run."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.lucid.setting import BUDGETS, BUSY, CROWDED, FORMS, Setting

LARGE = 24_000


def measure(*, quick: bool, console: Console) -> list[dict[str, Any]]:
    """One row per form and score budget: average JCT over the draws; and per form CPU time of one large run."""
    jobs, seeds, large = (100, (0,), 300) if quick else (600, (0, 1, 2), LARGE)
    drawn = [Setting.drawn(jobs, seed, CROWDED) for seed in seeds]
    setting, rows = Setting.drawn(large, 0, BUSY), []
    for form in FORMS:
        with console.status(form):
            for budget in BUDGETS:
                means = [one.run(form, score_budget=budget).jobs["jct"].mean() for one in drawn]
                rows.append({"form": form, "jobs": jobs, "score_budget": budget, "hours": float(np.mean(means)) / 3600})
            started = time.process_time()
            run = setting.run(form)
            seconds = time.process_time() - started
            rows.append({"form": form, "jobs": large, "seconds": seconds, "policy_calls": run.policy_calls})
    return rows


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    shown = Table(title="Lucid: average JCT by score budget, and CPU time of a large run")
    for name in ("form", "jobs", *(f"budget {budget}, h" for budget in BUDGETS), "large run, jobs", "CPU, s"):
        shown.add_column(name, justify="left" if name == "form" else "right")
    for form in dict.fromkeys(row["form"] for row in rows):
        own = [row for row in rows if row["form"] == form]
        means, large = [row for row in own if "hours" in row], next(row for row in own if "seconds" in row)
        cells = [f"{row['hours']:.2f}" for row in means]
        shown.add_row(form, f"{means[0]['jobs']:,}", *cells, f"{large['jobs']:,}", f"{large['seconds']:.1f}")
    return shown
