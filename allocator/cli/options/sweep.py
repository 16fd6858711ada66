"""The options of sweeps, and the definition of a sweep that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import typer

from allocator.cli.options.groups import Given, Options, options
from allocator.cli.options.shared import DEFAULT_CLUSTER, SHARED, say
from allocator.cli.options.values import make_window, named_values, prices_of_text
from allocator.conversion import AtLeastOne
from allocator.experiments.definition import definition_of_policies, kinds_under_workload, setting_of_text
from allocator.experiments.run import Run
from allocator.experiments.workloads import Lengths
from allocator.presets import preset
from allocator.variants import Variant, read_variants
from throughputs import InputError
from throughputs.files import parse_json

MOST_SEEDS = 1_000_000


class _Swept:
    """What is run: policies, seeds, clusters, and settings.

    Options
    -------
    policies : --policies, -p NAME[:SETTING=VALUE,...],...
        Names of policies, each with settings of its own where wanted.
    seeds : SEED,...|FIRST:END
        Seeds; 0:3 is 0, 1 and 2.
    clusters : --cluster, -c TYPE:N,...
        GPUs by accelerator type; may be repeated.
    keep_jobs
        Keep the table of measured jobs of every run.
    vary : NAME=VALUE,...
        A setting with several values: of mechanism or simulator, policy.NAME, workload.NAME; may be repeated.
    generator
        gavel, shockwave: published ones, draw for draw; default: our own, with --multi-gpu what `compare` draws.
    """

    policies: str = "max_min_fairness_perf,max_min_fairness,fifo_perf"
    seeds: str = "0"
    clusters: list[str] = [DEFAULT_CLUSTER]  # noqa: RUF012
    keep_jobs: bool
    vary: list[str]
    generator: str = "gavel"


class _Running:
    """How and where the runs of a sweep are carried out.

    Options
    -------
    parallel : -j, --parallel N
        Runs at a time; all cores if omitted.
    engine
        local: processes of this machine; ray: a Ray cluster.
    address
        Of the Ray cluster; one of this machine alone if omitted.
    retry_failed
        Run points again that failed before.
    plan
        List the points and run none.
    as_json : --json
        Print JSON for scripts instead of a table.
    """

    parallel: AtLeastOne
    engine: str = "local"
    retry_failed: bool
    plan: bool
    as_json: bool


VARY, RUNNING = options(_Swept, "vary"), options(_Running)

SWEPT: Options = (
    *options(_Swept, "policies seeds clusters"),
    SHARED["gpus_per_server"],
    SHARED["throughputs"],
    *options(Run, "prices preset"),
    *options(Lengths, "slos"),
    *(SHARED[name] for name in ("settings", "world")),
    *VARY,
    *options(_Swept, "keep_jobs"),
)

DRAWN: Options = (
    *options(_Swept, "generator"),
    *options(Lengths, "multi_gpu priorities fixed_duration_seconds"),
)
"""The jobs of a sweep that draws them."""


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
        **given.some(("gpus_per_server", "keep_jobs", "world")),
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
