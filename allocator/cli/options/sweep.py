"""The options of sweeps, and the definition of a sweep that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

from allocator.cli.options.shared import (
    DEFAULT_CLUSTER,
    JsonOption,
    PresetOption,
    ServersOption,
    SettingOption,
    ThroughputsOption,
)
from allocator.cli.options.values import make_prices, make_window, named_values
from allocator.presets import preset
from allocator.sweep.definition.settings import setting_of_text
from allocator.variants import read_variants
from throughputs import InputError
from throughputs.files import parse_json

MOST_SEEDS = 1_000_000
DEFAULT_POLICIES = "max_min_fairness_perf,max_min_fairness,fifo_perf"

PoliciesOption = Annotated[
    str,
    typer.Option(
        "--policies",
        "-p",
        help="Names of policies, each with settings of its own where wanted.",
        metavar="NAME[:SETTING=VALUE,...],...",
    ),
]
SeedsOption = Annotated[str, typer.Option("--seeds", help="Seeds; 0:3 is 0, 1 and 2.", metavar="SEED,...|FIRST:END")]
ClustersOption = Annotated[
    list[str], typer.Option("--cluster", "-c", help="GPUs by accelerator type; may be repeated.", metavar="TYPE:N,...")
]
GeneratorOption = Annotated[
    str, typer.Option("--generator", help="gavel, shockwave: published ones, draw for draw; default: our own.")
]
MultiOption = Annotated[bool, typer.Option("--multi-gpu", help="Gangs of 1, 2, 4 and 8 GPUs, as published.")]
PrioritiesOption = Annotated[bool, typer.Option("--priorities", help="Weight 5 for a fifth of the jobs.")]
SlosOption = Annotated[bool, typer.Option("--slos", help="A deadline for every job: 1.2, 2 or 10 durations.")]
TraceOption = Annotated[Path, typer.Option("--trace", help="Jobs as they were submitted.", metavar="FILE")]
LoadOption = Annotated[
    str,
    typer.Option(
        "--load",
        help="How many times as often as in the trace jobs arrive; a deadline moves with the arrival of its job.",
        metavar="FACTOR,...|FIRST:LAST:COUNT",
    ),
]
PreloadOption = Annotated[bool, typer.Option("--preload", help="Start with a full cluster.")]
DurationOption = Annotated[
    float | None, typer.Option("--duration", help="The same duration for every job, alone.", metavar="SECONDS")
]
PricesOption = Annotated[
    str | None,
    typer.Option(
        "--prices", help="Dollars per GPU hour: a file of histories, or constants.", metavar="FILE|TYPE:PRICE,..."
    ),
]
VaryOption = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        help="A setting with several values: of mechanism or simulator, policy.NAME, workload.NAME; may be repeated.",
        metavar="NAME=VALUE,...",
    ),
]
KeepOption = Annotated[bool, typer.Option("--keep-jobs", help="Keep the table of measured jobs of every run.")]
EveryOption = Annotated[bool, typer.Option("--every-point", help="Run points beyond saturation too.")]
OutOption = Annotated[Path, typer.Option("--out", help="Folder of the sweep; run again to continue.", metavar="DIR")]
JobsOption = Annotated[
    int | None, typer.Option("-j", "--parallel", help="Runs at a time; all cores if omitted.", metavar="N", min=1)
]
EngineOption = Annotated[str, typer.Option("--engine", help="local: processes of this machine; ray: a Ray cluster.")]
AddressOption = Annotated[
    str | None, typer.Option("--address", help="Of the Ray cluster; one of this machine alone if omitted.")
]
RetryOption = Annotated[bool, typer.Option("--retry-failed", help="Run points again that failed before.")]
PlanOption = Annotated[bool, typer.Option("--plan", help="List the points and run none.")]


@dataclass(frozen=True)
class DefinitionOptions:
    """What is run: policies, seeds, clusters, workload and settings."""

    policies: PoliciesOption = DEFAULT_POLICIES
    seeds: SeedsOption = "0"
    clusters: ClustersOption = field(default_factory=lambda: [DEFAULT_CLUSTER])
    gpus_per_server: ServersOption = None
    slos: SlosOption = False
    throughputs: ThroughputsOption = None
    prices: PricesOption = None
    preset: PresetOption = "default"
    settings: SettingOption = None
    vary: VaryOption = None
    keep_jobs: KeepOption = False

    def definition(self, kind: str, jobs: Mapping[str, Any]) -> dict[str, Any]:
        """A definition as a TOML file would hold it, without its loads; `jobs` is what the workload says of them."""
        variants = read_variants(self.policies, "--policies")
        chosen = preset(self.preset)
        kinds = [chosen.kinds_of_policy(variant.name) for variant in variants]
        fixed = named_values("--set", self.settings or ())
        varied = named_values("--vary", self.vary or ())
        return {
            "kind": kind,
            "policies": [
                {"name": variant.name, **own} if (own := variant.typed_settings("--policies", chosen)) else variant.name
                for variant in variants
            ],
            "seeds": _seeds(self.seeds),
            "clusters": self.clusters,
            **({"gpus_per_server": self.gpus_per_server} if self.gpus_per_server else {}),
            "workload": {**jobs, **self._workload()},
            "settings": {"preset": self.preset}
            | {name: setting_of_text(name, text, kinds, "--set") for name, text in fixed.items()},
            "vary": {name: values_of_text(name, text, kinds) for name, text in varied.items()},
            "keep_jobs": self.keep_jobs,
        }

    def _workload(self) -> dict[str, Any]:
        workload: dict[str, Any] = {
            "slos": self.slos,
            "throughputs": None if self.throughputs is None else str(self.throughputs),
        }
        return workload if self.prices is None else workload | {"prices": prices_of_text(self.prices)}


@dataclass(frozen=True)
class DrawnOptions:
    """The jobs of a sweep that draws them."""

    generator: GeneratorOption = "gavel"
    multi_gpu: MultiOption = False
    priorities: PrioritiesOption = False
    duration: DurationOption = None

    def workload(self, *, preload: bool = False) -> dict[str, Any]:
        """What a definition says of them."""
        return {
            "generator": self.generator,
            "multi_gpu": self.multi_gpu,
            "priorities": self.priorities,
            "preload": preload,
            "fixed_duration_seconds": self.duration,
        }


@dataclass(frozen=True)
class RunningOptions:
    """How and where the runs of a sweep are carried out."""

    parallel: JobsOption = None
    engine: EngineOption = "local"
    address: AddressOption = None
    retry_failed: RetryOption = False
    plan: PlanOption = False
    as_json: JsonOption = False

    def checked_engine(self) -> Literal["local", "ray"]:
        """Engine of ``--engine``."""
        if self.engine not in ("local", "ray"):
            raise InputError("--engine", found=self.engine, expected="local or ray")
        return "ray" if self.engine == "ray" else "local"


def prices_of_text(text: str) -> str | dict[str, float]:
    """Prices of ``--prices`` as a definition has them: the name of a file, or dollars by accelerator type."""
    if ":" not in text or Path(text).exists():
        return text
    constant = make_prices(text)  # says what is wrong with them
    assert constant is not None
    names = constant.accelerators
    return dict(zip(names, constant.price_at(0.0, names).tolist(), strict=True))


def stopped(out: Path) -> NoReturn:
    """Say where an interrupted sweep is, and end with the status of that."""
    typer.echo(f"stopped; what had finished is in {out}, run the same command again to continue", err=True)
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
        if ":" in text:
            first, end = map(int, text.split(":"))
            if end - first > MOST_SEEDS:
                raise InputError("--seeds", found=text, expected=f"at most {MOST_SEEDS:,} seeds")
            return list(range(first, end))
        return [int(part) for part in text.split(",")]
    except InputError:
        raise
    except ValueError:
        raise InputError("--seeds", found=text, expected="whole numbers as in 0,1,2 or 0:3") from None


def window(text: str) -> list[int]:
    """First and end of ``--window``."""
    return list(make_window(text) or ())


def values_of_text(name: str, text: str, kinds: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Values of ``--vary``: a JSON list, or values separated by commas."""
    if text.startswith("["):
        return list(parse_json(text, "--vary")) if text.endswith("]") else [text]
    return [setting_of_text(name, part.strip(), kinds, "--vary") for part in text.split(",")]
