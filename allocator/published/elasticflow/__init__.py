"""The simulator that came with ElasticFlow (Gu et al., ASPLOS 2023, public artifact)."""

from collections.abc import Mapping
from typing import Any

from allocator.mechanism.settings import MechanismSettings
from allocator.presets.preset import Comparison, Preset
from allocator.published.elasticflow.world import DecisionsCostTime, Ends, SlotsThatSpare
from allocator.simulator.rules.general import BatchSizes

# What a decision costs jobs that have GPUs, in the loops of the policies that are charged.
_CHARGED: Mapping[str, Any] = {"overhead": "running", "overhead_reuses_groups": True}

# Jobs with a fixed number of GPUs run for as long as their trace says.
_FIXED: Mapping[str, Any] = {"gang_rates": "duration"}

# The most GPUs that ElasticFlow gives a job, by job type; what is not named here has the columns of the table.
_MOST_GPUS: Mapping[str, int] = {
    "bert (batch size 64)": 8,
    "bert (batch size 128)": 16,
    "bert (batch size 384)": 16,
    "cifar10 (batch size 2048)": 16,
    "cifar10 (batch size 4096)": 16,
    "deepspeech2 (batch size 32)": 32,
    "deepspeech2 (batch size 320)": 32,
    "gpt2 (batch size 128)": 16,
    "gpt2 (batch size 256)": 32,
    "inception3 (batch size 64)": 16,
    "inception3 (batch size 128)": 32,
    "ncf (batch size 32768)": 1,
    "resnet50 (batch size 64)": 32,
    "vgg16 (batch size 64)": 32,
    "yolov3 (batch size 64)": 4,
}

_PLANNER: Mapping[str, Any] = {
    "levels": "all",
    "slot_seconds": 60.0,
    "whole_seconds": True,
    "learn_costs": False,
    "margin_seconds": 0.0,
}

_ELASTIC: Mapping[str, Any] = {**_PLANNER, "most_gpus": _MOST_GPUS}

# Names in secs. 6.1 and 6.4 of the paper; the programs are ours.
LABELS: Mapping[str, str] = {
    "elasticflow": "ElasticFlow",
    "elasticflow_no_admission": "EDF + Elastic Scaling",
    "elasticflow_mip": "ElasticFlow, by programs",
    "edf": "EDF",
    "edf_admission": "EDF + Admission Control",
    "tiresias": "Tiresias",
    "gandiva_time_slicing": "Gandiva",
    "themis": "Themis",
    "chronus": "Chronus",
}

_HERE = "allocator.published.elasticflow"

ELASTICFLOW = Preset(
    "elasticflow",
    MechanismSettings(placement="anew"),
    (
        SlotsThatSpare(slot_seconds=60.0),
        Ends(ends="second"),
        DecisionsCostTime(overhead_doubling_seconds=2.0, overhead_restart_decisions="slot"),
        BatchSizes("off"),
    ),
    world_settings={
        "elasticflow": {**_CHARGED, "ends": "slot", "late_jobs_wait": True, "deadlines_judged_by": "training"},
        "elasticflow_no_admission": {**_CHARGED, "ends": "slot", "late_jobs_wait": True},
        "edf": {"slot_spares_last_end": True},
        "edf_admission": {**_CHARGED, "slot_spares_last_end": True},
        "tiresias": {
            **_FIXED,
            "overhead": "starts",
            "overhead_delays_end": "restarts",
            "slot_spares_last_arrival": True,
        },
        "gandiva_time_slicing": {
            **_FIXED,
            "overhead": "active",
            "overhead_while_arrivals": True,
            "slot_spares_last_arrival": True,
        },
        "themis": {"ends": "slot", "slot_grid": True},
    },
    world_settings_by_gpus={
        1: {"overhead_base_seconds": 2.0, "overhead_restart_seconds": 27.0},
        256: {"overhead_base_seconds": 7.0, "overhead_restart_seconds": 47.0},
    },
    policies={
        "elasticflow": f"{_HERE}.deadlines:ListedElasticFlow",
        "elasticflow_no_admission": f"{_HERE}.deadlines:ListedElasticFlowNoAdmission",
        "edf": f"{_HERE}.deadlines:ListedEarliestDeadlineFirst",
        "edf_admission": f"{_HERE}.deadlines:ListedEarliestDeadlineFirstAdmission",
        "tiresias": f"{_HERE}.baselines:PublishedTiresias",
        "gandiva_time_slicing": f"{_HERE}.baselines:PublishedGandiva",
        "themis": f"{_HERE}.baselines:PublishedThemis",
    },
    policy_names={
        "ef-accessctrl": "elasticflow",
        "ef": "elasticflow_no_admission",
        "edf-accessctrl": "edf_admission",
        "dlas-gpu": "tiresias",
        "gandiva": "gandiva_time_slicing",
    },
    policy_settings={
        "elasticflow": _ELASTIC,
        "elasticflow_no_admission": _ELASTIC,
        "edf": _PLANNER,
        "edf_admission": _PLANNER,
        "tiresias": {"promote_after": None},
        # leases are as short as slots
        "themis": {"lease_seconds": 1.0},
    },
    comparison=Comparison(
        labels=LABELS,
        policies=(
            "elasticflow",
            "elasticflow_no_admission",
            "edf",
            "edf_admission",
            "tiresias",
            "gandiva_time_slicing",
            "themis",
        ),
        cluster="a100:128",
        drawn_cluster="v100:32",
        drawn_gpus_per_server="v100:8",
        workload={"generator": "deadlines"},
        jobs=195,
        mean_interarrival_seconds=200.0,
    ),
)
