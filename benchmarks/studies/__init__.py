"""Studies that are sweeps: the runs of each are in the TOML file of its name, what is drawn of them is here.

After D. Narayanan et al., OSDI 2020; P. Zheng et al., NSDI 2023 (``shockwave_*``); and of schedulers that choose GPUs
and batch sizes (``goodput*``). ``notebooks`` has a notebook for each, with further pictures and what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from allocator.presets import preset
from allocator.studies.study import Options, Study, against_load, side_by_side
from allocator.studies.tables import Shown
from allocator.sweep import Sweep

FOLDER = Path(__file__).resolve().parent
HOUR, PERCENT = 3600.0, 0.01

JCT = {"average JCT, h": Shown("average_jct", ".2f", HOUR)}
TAIL = JCT | {"p99 JCT, h": Shown("p99_jct", ".2f", HOUR)}
PREEMPTIONS = {"preemptions": Shown("preemptions", ".0f")}
UNFAIR = {"unfair jobs, %": Shown("unfair_fraction", ".1f", PERCENT)}
FAIRNESS = {
    "makespan, h": Shown("makespan", ".2f", HOUR),
    **JCT,
    "worst rho": Shown("worst_rho_static", ".2f"),
    "unfair jobs (rho above 1.05), %": Shown("unfair_fraction_static", ".1f", PERCENT),
}


def sweep_of(name: str, *, small: bool = False) -> Sweep:
    """The sweep of a study, in full or on its small setting."""
    return Sweep.from_toml(FOLDER / f"{name}.toml", small=small)


def _sweeps(name: str, options: Options) -> list[Sweep]:
    return [sweep_of(name, small=options.quick)]


def _on_gpus(results: pd.DataFrame) -> pd.DataFrame:
    """Names of policies as in the paper, GPUs of a cluster of one type, and jobs per GPU."""
    gpus = results["cluster"].str.partition(":")[2].astype(int)
    labels = results["policy"].replace(dict(preset("shockwave").comparison.labels))
    return results.assign(label=labels, gpus=gpus, contention=results["submitted_jobs"] / gpus)


def _in_cases(results: pd.DataFrame) -> pd.DataFrame:
    """A label for the preset and the case of a run."""
    return results.assign(setting=results["preset"] + ", " + results["case"])


def _estimated(results: pd.DataFrame) -> pd.DataFrame:
    """What is profiled in per cent, and how many reference models there are; the rest knows all throughputs."""
    references = results["reference_models"].map("{:.0f} references".format, na_action="ignore")
    profiled = 100 * results["profiling_percentage"]
    runs = results["policy"].where(profiled.isna(), results["policy"] + ", " + results["case"])
    return results.assign(run=runs, profiled=profiled, references=references)


def _timed(results: pd.DataFrame) -> pd.DataFrame:
    """How a decision was taken."""
    return results.assign(path=results["policy_solver"].map({"ecos": "cvxpy + ECOS"}).fillna("this library"))


def _planned(results: pd.DataFrame) -> pd.DataFrame:
    """The rule of a plan, what it forecasts, and jobs per GPU."""
    rules = results["policy_fairness_rows"].str.replace("_", " ")
    return _on_gpus(results).assign(rule=rules, forecast=results["policy_forecast"])


Derived = Callable[[pd.DataFrame], pd.DataFrame]


def _swept(name: str, by: str, shown: Mapping[str, Shown], derived: Derived | None = None, draw: Any = None) -> Study:
    runs = partial(_sweeps, name)
    return Study(sweep_of(name).description, runs, tuple(by.split()), shown, draw or against_load, derived)


logarithmic = partial(against_load, logarithmic=True)
STUDIES = {
    name: _swept(name, *definition)
    for name, definition in {
        "las_single_gpu": ("jobs_per_hour policy", JCT),
        "las_multi_gpu": ("jobs_per_hour policy", JCT),
        "finish_time_fairness": (
            "jobs_per_hour policy",
            JCT | {"worst rho": Shown("worst_rho")} | UNFAIR,
        ),
        "makespan": (
            "submitted_jobs policy",
            {"makespan, h": Shown("makespan", ".1f", HOUR), **JCT},
            None,
            logarithmic,
        ),
        "priorities": (
            "jobs_per_hour policy",
            {f"JCT of weight {w}, h": Shown(f"average_jct_weight_{w}", ".2f", HOUR) for w in (5, 1)},
        ),
        "hierarchical": (
            "submitted_jobs policy case",
            {"total normalised throughput": Shown("total_normalised_throughput")},
        ),
        "mechanism_fidelity": ("jobs_per_hour setting", JCT, _in_cases),
        "estimation": ("jobs_per_hour run", JCT, _estimated),
        "policy_runtimes": (
            "submitted_jobs policy path",
            {"one decision, ms": Shown("decision_seconds", ".2f", 1e-3)},
            _timed,
            logarithmic,
        ),
        "restarts": (
            "hysteresis_rounds policy restart_penalty_seconds mean_interarrival_seconds",
            JCT | UNFAIR | PREEMPTIONS,
        ),
        "shockwave_canonical": ("label", FAIRNESS, _on_gpus, side_by_side),
        "shockwave_contention": ("contention label", FAIRNESS, _on_gpus),
        "shockwave_scale": ("gpus label", FAIRNESS, _on_gpus),
        "shockwave_tradeoff": (
            "policy_fairness_exponent label policy_makespan_weight",
            FAIRNESS,
            _on_gpus,
        ),
        "shockwave_fairness_rows": (
            "contention rule forecast",
            {"fair plans, %": Shown("fair_plans", ".1f", PERCENT), **FAIRNESS},
            _planned,
        ),
        "goodput": ("mean_interarrival_seconds policy", TAIL | PREEMPTIONS),
        "goodput_adaptivity": ("policy case", TAIL, None, side_by_side),
        "goodput_scale": ("gpus policy", TAIL, _on_gpus),
        "goodput_sia": ("case", TAIL | PREEMPTIONS, None, side_by_side),
    }.items()
}
