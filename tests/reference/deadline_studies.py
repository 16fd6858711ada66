"""Tables of docs/deadlines.md from the studies of deadlines, whose runs are kept (`benchmarks.deadlines.FOLDER`).

Figures of studies that take minutes are recorded in `RECORDED`, for tests that compare them with the document.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from benchmarks.deadlines import (
    FOLDER,
    SWEEPS,
    Inputs,
    markdown_by_case,
    markdown_of_ablation,
    markdown_of_clusters,
    markdown_of_policies,
    markdown_of_saturation,
    markdown_of_seconds,
    run_study,
    simulated,
)
from tests.conftest import _data_root

ROOT = Path(__file__).resolve().parents[2]
FULL = ROOT / FOLDER / "full"

RECORDED = Path(__file__).with_name("deadline_studies.csv")

_COLUMNS = (
    "study", "label", "case", "cluster", "submitted_jobs", "seed", "deadline_ratio", "admitted", "late",
    "best_effort_average_jct", "policy", "status", "average_jct", "cluster_efficiency", "cpu_seconds",
)  # fmt: skip

TIGHTNESS = ("0.5", "0.75", "1", "1.25", "1.5", "2")
BEST_EFFORT = ("0.1", "0.5", "0.9")

OF_RECORDED: dict[str, Callable[[pd.DataFrame], str]] = {
    "ablation": lambda rows: markdown_of_ablation(rows[rows["submitted_jobs"] == rows["submitted_jobs"].max()]),
    "tightness": lambda rows: markdown_by_case(rows, TIGHTNESS),
    "best_effort": lambda rows: markdown_by_case(rows, BEST_EFFORT, hours=True),
    "saturation": markdown_of_saturation,
    "end_to_end": markdown_of_policies,
    "clusters": markdown_of_clusters,
}
"""Tables of studies by name, from their rows."""


def recorded(study: str) -> pd.DataFrame:
    """The rows of a study as they were recorded."""
    rows = pd.read_csv(RECORDED, dtype={"case": str})
    return rows[rows["study"] == study]


def record(study: str, folder: Path = FULL) -> None:
    """Keep the rows of a study, in place of those of before."""
    made = run_study(study, folder, inputs=_inputs(folder)).assign(study=study).reindex(columns=list(_COLUMNS))
    others = pd.read_csv(RECORDED, dtype={"case": str}) if RECORDED.exists() else made.iloc[:0]
    rows = pd.concat([others[others["study"] != study], made.round({"cpu_seconds": 2})])
    rows.to_csv(RECORDED, index=False, float_format="%.10g", lineterminator="\n")


def on_32_gpus(folder: Path, admission: str, world: str) -> dict[str, object]:
    """Summary of one run of the study `ablation`, made anew."""
    (point,) = (
        point
        for sweep in SWEEPS["ablation"](_inputs(folder), small=False)
        for point in sweep.points()
        if (point.policy, point.cluster, point.case) == ("elasticflow@default", "a100:32", world)
        and point.policy_settings.get("admission", "each") == admission
    )
    return simulated(point).summary()


def table_of(study: str) -> str:
    """The table of a study, from its rows as they were recorded."""
    return OF_RECORDED[study](recorded(study))


def table_of_cluster_seconds() -> str:
    """CPU seconds of the recorded runs on ten clusters."""
    return markdown_of_seconds(recorded("clusters"))


def _inputs(folder: Path) -> Inputs:
    found = Inputs.found(folder / "inputs", _data_root())
    if not found.public:
        raise FileNotFoundError("elasticflow/traces: the public traces of ElasticFlow (docs/contributing.md)")
    return found
