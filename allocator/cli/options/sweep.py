"""The options of sweeps, and the definition of a sweep that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from allocator.cli.options.groups import Given, Options, option, options, parameter_of
from allocator.cli.options.shared import DEFAULT_CLUSTER, SHARED, JsonOption, SettingOption, option_parameters, say
from allocator.cli.options.values import make_window, named_values, prices_of_text
from allocator.experiments.definition import definition_of_policies, kinds_under_workload, setting_of_text
from allocator.experiments.run import Run
from allocator.experiments.workloads import Lengths
from allocator.presets import preset
from allocator.variants import Variant, read_variants
from throughputs import InputError
from throughputs.files import parse_json

MOST_SEEDS = 1_000_000
DEFAULT_POLICIES = "max_min_fairness_perf,max_min_fairness,fifo_perf"

PoliciesOption = Annotated[
    str,
    option(
        "--policies",
        "-p",
        "Names of policies, each with settings of its own where wanted.",
        "NAME[:SETTING=VALUE,...],...",
    ),
]
SeedsOption = Annotated[str, option("--seeds", "Seeds; 0:3 is 0, 1 and 2.", "SEED,...|FIRST:END")]
ClustersOption = Annotated[
    list[str], option("--cluster", "-c", "GPUs by accelerator type; may be repeated.", "TYPE:N,...")
]
GeneratorOption = Annotated[
    str,
    option(
        "--generator",
        "gavel, shockwave: published ones, draw for draw; default: our own, with --multi-gpu what `compare` draws.",
    ),
]
TraceOption = Annotated[Path, option("--trace", "Jobs as they were submitted.", "FILE")]
VaryOption = Annotated[
    list[str] | None,
    option(
        "--vary",
        "A setting with several values: of mechanism or simulator, policy.NAME, workload.NAME; may be repeated.",
        "NAME=VALUE,...",
    ),
]
KeepOption = Annotated[bool, option("--keep-jobs", "Keep the table of measured jobs of every run.")]
EveryOption = Annotated[bool, option("--every-point", "Run points beyond saturation too.")]
OutOption = Annotated[Path, option("--out", "Folder of the sweep; run again to continue.", "DIR")]
JobsOption = Annotated[int | None, option("-j", "--parallel", "Runs at a time; all cores if omitted.", "N", min=1)]

SWEPT: Options = (
    parameter_of("policies", PoliciesOption, DEFAULT_POLICIES),
    parameter_of("seeds", SeedsOption, "0"),
    parameter_of("clusters", ClustersOption, [DEFAULT_CLUSTER]),
    SHARED["gpus_per_server"],
    SHARED["throughputs"],
    *options(Run, "prices preset"),
    *options(Lengths, "slos"),
    *option_parameters(settings=SettingOption, vary=VaryOption),
    parameter_of("keep_jobs", KeepOption, False),
)
"""What is run: policies, seeds, clusters, workload and settings."""

DRAWN: Options = (
    parameter_of("generator", GeneratorOption, "gavel"),
    *options(Lengths, "multi_gpu priorities fixed_duration_seconds"),
)
"""The jobs of a sweep that draws them."""

EngineOption = Annotated[str, option("--engine", "local: processes of this machine; ray: a Ray cluster.")]
AddressOption = Annotated[str | None, option("--address", "Of the Ray cluster; one of this machine alone if omitted.")]
RetryOption = Annotated[bool, option("--retry-failed", "Run points again that failed before.")]
PlanOption = Annotated[bool, option("--plan", "List the points and run none.")]

RUNNING: Options = (
    parameter_of("parallel", JobsOption, None),
    parameter_of("engine", EngineOption, "local"),
    parameter_of("address", AddressOption, None),
    parameter_of("retry_failed", RetryOption, False),
    parameter_of("plan", PlanOption, False),
    parameter_of("as_json", JsonOption, False),
)
"""How and where the runs of a sweep are carried out."""


def definition(given: Given, kind: str, **more: Any) -> dict[str, Any]:
    """A definition as a TOML file would hold it; `more` are loads, and what only this kind of sweep has."""
    variants = read_variants(given["policies"], "--policies")
    return {
        "kind": kind,
        "policies": definition_of_policies(variants, "--policies", preset(given.get("preset", "default"))),
        "seeds": _seeds(given["seeds"]),
        "clusters": given["clusters"],
        "workload": workload_given(given),
        "settings": settings_given(given, variants),
        "vary": varied(given, variants),
        **given.some(("gpus_per_server", "keep_jobs")),
        **more,
    }


def workload_given(given: Given) -> dict[str, Any]:
    """What was said of the jobs, as a definition has it."""
    return given.some(kinds_under_workload()) | (
        {"prices": prices_of_text(given["prices"])} if "prices" in given else {}
    )


def settings_given(given: Given, variants: Sequence[Variant]) -> dict[str, Any]:
    """The preset, and what ``--set`` says, typed."""
    kinds, named = _kinds(given, variants), named_values("--set", given.get("settings", ()))
    typed = {name: setting_of_text(name, text, kinds, "--set") for name, text in named.items()}
    return {"preset": given.get("preset", "default")} | typed


def varied(given: Given, variants: Sequence[Variant]) -> dict[str, list[Any]]:
    """Values of ``--vary`` by name of the setting: a JSON list, or values separated by commas."""
    kinds = _kinds(given, variants)

    def values(name: str, text: str) -> list[Any]:
        if text.startswith("["):
            return list(parse_json(text, "--vary")) if text.endswith("]") else [text]
        return [setting_of_text(name, part.strip(), kinds, "--vary") for part in text.split(",")]

    return {name: values(name, text) for name, text in named_values("--vary", given.get("vary", ())).items()}


def _kinds(given: Given, variants: Sequence[Variant]) -> list[Mapping[str, Any]]:
    chosen = preset(given.get("preset", "default"))
    return [chosen.kinds_of_policy(variant.name) for variant in variants]


def stopped(out: Path) -> NoReturn:
    """Say where an interrupted sweep is, and end with the status of that."""
    say(f"stopped; what had finished is in {out}, run the same command again to continue")
    raise typer.Exit(130)


def numbers(option: str, text: str) -> Any:
    """Numbers of ``--rates``, ``--jobs`` and ``--load``: a list, or FIRST:LAST:COUNT."""
    expected = "numbers as in 0.4,0.8,1.2, or FIRST:LAST:COUNT as in 0.4:6:15"
    try:
        if ":" in text:
            first, last, count = text.split(":")
            return {"first": float(first), "last": float(last), "count": int(count)}
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(option, found=text, expected=expected) from None


def _seeds(text: str) -> list[int]:
    try:
        if ":" not in text:
            return [int(part) for part in text.split(",")]
        first, end = map(int, text.split(":"))
    except ValueError:
        raise InputError("--seeds", found=text, expected="whole numbers as in 0,1,2 or 0:3") from None
    if end - first > MOST_SEEDS:
        raise InputError("--seeds", found=text, expected=f"at most {MOST_SEEDS:,} seeds")
    return list(range(first, end))


def window(text: str) -> list[int]:
    """First and end of ``--window``."""
    return list(make_window(text) or ())
