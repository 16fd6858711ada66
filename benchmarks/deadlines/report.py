"""Tables of the studies: rows for files and screens, and those of docs/deadlines.md in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from benchmarks.deadlines.published import CLUSTER_RATIOS, TESTBED_RATIOS
from benchmarks.deadlines.saturation import ADMISSIONS, BOUND, WORLDS
from benchmarks.deadlines.studies import AS_PUBLISHED

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = (
    "label",
    "case",
    "cluster",
    "submitted_jobs",
    "seed",
    "status",
    "status_detail",
    "deadline_ratio",
    "admitted",
    "rejected",
    "late",
    "average_jct",
    "best_effort_average_jct",
    "cluster_efficiency",
    "wasted_gpu_hours",
    "cpu_seconds",
)

_SHOWN: Mapping[str, str] = {
    "label": "policy",
    "case": "case",
    "cluster": "cluster",
    "submitted_jobs": "jobs",
    "seed": "seed",
    "deadline_ratio": "in time",
    "admitted": "admitted",
    "rejected": "rejected",
    "late": "late",
    "cluster_efficiency": "cluster efficiency",
    "cpu_seconds": "CPU s",
}

_LEAST_WIDTH: Mapping[str, int] = {"label": 11, "cluster": 7}
"""Characters that columns have at least, however narrow the screen is."""


def rows_of(study: str, results: pd.DataFrame) -> list[dict[str, Any]]:
    """The runs of a study with the figures that matter, ready for JSON."""
    rows = results.reindex(columns=list(_COLUMNS)).astype(object)
    return [{"study": study, **row} for row in rows.where(rows.notna(), None).to_dict("records")]


def tables(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """A table for each study."""
    return Group(*(_table(study, rows) for study in dict.fromkeys(row["study"] for row in rows)))


def _table(study: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    own = [row for row in rows if row["study"] == study]
    names = [name for name in _SHOWN if name != "case" or any(_cell(name, row) != "-" for row in own)]
    shown = Table(title=f"Deadlines, {study}", box=SIMPLE_HEAD, padding=0, show_edge=False)
    for name in names:
        # on narrow screens words are folded, figures never
        words = name in ("label", "case", "cluster")
        shown.add_column(
            _SHOWN[name],
            justify="left" if words else "right",
            overflow="fold",
            no_wrap=not words,
            min_width=_LEAST_WIDTH.get(name),
        )
    for row in own:
        shown.add_row(*(_cell(name, row) for name in names))
    return shown


def _cell(name: str, row: Mapping[str, Any]) -> str:
    value = row[name]
    if value is None:
        return row["status"] if name == "deadline_ratio" else "-"
    if name in ("label", "case", "cluster"):
        return str(value)
    digits = {"deadline_ratio": 3, "cluster_efficiency": 3, "cpu_seconds": 1}.get(name, 0)
    return f"{value:.{digits}f}"


CLUSTER_POLICIES: Mapping[str, str] = {
    "elasticflow": AS_PUBLISHED,
    "elasticflow_no_admission": "elasticflow_no_admission",
    "edf": "edf",
    "edf_admission": "edf_admission",
    "tiresias": "tiresias",
    "gandiva_time_slicing": "gandiva_time_slicing",
    "themis": "themis",
    "chronus": "chronus",
}
"""Columns of the table of ten clusters: policies, and what the study calls them."""


def markdown_of_clusters(results: pd.DataFrame, names: Sequence[str] = tuple(CLUSTER_RATIOS)) -> str:
    """Shares of jobs in time on the ten clusters beside those of figure 8b, a row for each cluster."""
    head = ["trace", "jobs", *(f"`{name}`" for name in CLUSTER_POLICIES)]
    lines = [_line(head), _line(["---"] * len(head))]
    return "\n".join([*lines, *(row_of_cluster(results, name) for name in names)])


def row_of_cluster(results: pd.DataFrame, name: str) -> str:
    """One row of that table: measured / published; a run that is not there, or did not complete, is a dash."""
    rows = results[results["case"] == name]
    jobs = "-" if rows.empty else f"{int(rows['submitted_jobs'].iloc[0]):,}"
    cells = [_beside(rows, label, CLUSTER_RATIOS[name].get(policy)) for policy, label in CLUSTER_POLICIES.items()]
    return _line([name, jobs, *cells])


def markdown_of_seconds(results: pd.DataFrame, names: Sequence[str] = tuple(CLUSTER_RATIOS)) -> str:
    """CPU seconds of the runs on the ten clusters, a row for each cluster; and of all runs of a policy or a cluster.

    A run that is not there is a dash.
    """
    head = ["trace", *(f"`{name}`" for name in CLUSTER_POLICIES), "all policies"]
    lines = [_line(head), _line(["---"] * len(head))]
    for name in (*names, None):
        here = results if name is None else results[results["case"] == name]
        seconds = here.groupby("label")["cpu_seconds"].sum()
        cells = [f"{seconds[label]:,.0f}" if label in seconds.index else "-" for label in CLUSTER_POLICIES.values()]
        lines.append(_line([name or "together", *cells, f"{seconds.sum():,.0f}" if len(seconds) else "-"]))
    return "\n".join(lines)


def _beside(rows: pd.DataFrame, label: str, published: float | None) -> str:
    done = rows[(rows["label"] == label) & (rows["status"] == "completed")]
    measured = "-" if done.empty else f"{done['deadline_ratio'].iloc[0]:.3f}"
    return measured if published is None else f"{measured} / {published:.3f}"


def markdown_of_policies(results: pd.DataFrame, *, testbed: bool = False) -> str:
    """A row for each policy: in time (and on the published testbed), admitted, late, cluster efficiency, mean JCT."""
    head = [
        "policy",
        "in time",
        *(["testbed"] if testbed else []),
        "admitted",
        "late",
        "cluster efficiency",
        "mean JCT (h)",
    ]
    lines = [_line(head), _line(["---"] * len(head))]
    for row in results.to_dict("records"):
        known = TESTBED_RATIOS.get(row["policy"])
        published = ["-" if known is None else f"{known:.3f}"] if testbed else []
        figures = ["-"] * 5
        if row["status"] == "completed":
            figures = [
                f"{row['deadline_ratio']:.3f}",
                f"{row['admitted']:.0f}",
                f"{row['late']:.0f}",
                f"{row['cluster_efficiency']:.4f}",
                f"{row['average_jct'] / 3600:.2f}",
            ]
        lines.append(_line([row["label"], figures[0], *published, *figures[1:]]))
    return "\n".join(lines)


def markdown_by_case(results: pd.DataFrame, cases: Sequence[str], *, hours: bool = False) -> str:
    """Jobs in time, a row for each policy and a column for each case; with `hours` also the mean JCT of best effort."""
    lines = [_line(["policy", *cases]), _line(["---"] * (len(cases) + 1))]
    for label in dict.fromkeys(results["label"]):
        rows = results[results["label"] == label].set_index("case")
        cells = [f"{rows.loc[case, 'deadline_ratio']:.3f}" for case in cases]
        if hours:
            jct = [rows.loc[case, "best_effort_average_jct"] / 3600 for case in cases]
            cells = [f"{cell}, {mean:.1f} h" for cell, mean in zip(cells, jct, strict=True)]
        lines.append(_line([label, *cells]))
    return "\n".join(lines)


def markdown_of_ablation(results: pd.DataFrame) -> str:
    """Jobs in time, in brackets those that were let in and are late; by who loses time by decisions, and by GPUs."""
    sizes = sorted({int(cluster.split(":")[1]) for cluster in results["cluster"]})
    head = ["policy", "decisions cost", *(f"{gpus} GPUs" for gpus in sizes)]
    lines = [_line(head), _line(["---"] * len(head))]
    of_world = results["case"].fillna("")
    for label in dict.fromkeys(results["label"]):
        for world in dict.fromkeys(of_world[results["label"] == label]):
            rows = results[(results["label"] == label) & (of_world == world)]
            found = {int(row["cluster"].split(":")[1]): row for row in rows.to_dict("records")}
            cells = [f"{found[gpus]['deadline_ratio']:.3f} ({found[gpus]['late']:.0f})" for gpus in sizes]
            lines.append(_line([label, world or "-", *cells]))
    return "\n".join(lines)


def markdown_of_saturation(results: pd.DataFrame) -> str:
    """Jobs that were let in, and in brackets those of them that were late; a row for each cluster."""
    of_world = results["case"].fillna("")
    columns = [(BOUND, ""), *((label, world) for world in WORLDS for label in ADMISSIONS)]
    head = ["cluster", "offered", *(f"{label}, {world}" if world else label for label, world in columns)]
    lines = [_line(head), _line(["---"] * len(head))]
    for cluster in [*dict.fromkeys(results["cluster"]), None]:
        here = results["cluster"].notna() if cluster is None else results["cluster"] == cluster
        cells = []
        for label, world in columns:
            rows = results[here & (results["label"] == label) & (of_world == world)]
            late = f" ({rows['late'].sum():.0f})" if world else ""
            cells.append(f"{rows['admitted'].sum():,.0f}{late}")
        offered = results[here & (results["label"] == BOUND)]["submitted_jobs"].sum()
        lines.append(_line([cluster or "together", f"{offered:,.0f}", *cells]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
