"""The options of a simulation, and how one is put together from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import numpy as np
import typer

from allocator.cli.options.shared import (
    AcceleratorOption,
    ChoiceOption,
    ClusterOption,
    PredictionsOption,
    PresetOption,
    PricesOption,
    ServersOption,
    SettingOption,
    SolverOption,
    ThroughputsOption,
    TimeUnitOption,
    WholeGpusOption,
    warn,
)
from allocator.cli.options.unused import unused_columns
from allocator.cli.options.values import (
    make_accelerator,
    make_cluster,
    make_prices,
    make_table,
    make_window,
    named_values,
    only_table,
    read_jobs,
    told_of_throughputs,
    without_setting,
)
from allocator.conversion import convert_text, kinds_of
from allocator.plugins import rule_of_text
from allocator.presets import preset
from allocator.presets.preset import unknown_setting
from allocator.protocol.entities import Entities
from allocator.protocol.policy import Need
from allocator.recorded import recorded_schedule
from allocator.results.deadlines import assign_slos
from allocator.simulator.arrivals import preload
from allocator.simulator.engine import simulate
from allocator.simulator.rules.starts import constant_restart_penalty
from throughputs import InputError
from throughputs.errors import did_you_mean
from throughputs.estimator.believed import Estimation
from throughputs.goodput.trainings import Trainings

if TYPE_CHECKING:
    from allocator.cluster import Cluster
    from allocator.presets import Preset
    from allocator.protocol import Policy
    from allocator.report.progress import Advance
    from allocator.results.result import SimulationResult
    from allocator.variants import Variant
    from throughputs import ThroughputTable, Trace

SLO_STREAM = 6
POLICY_PREFIX = "policy."

RoundOption = Annotated[
    float | None, typer.Option("--round", help="Length of a round; the preset's if omitted.", metavar="SECONDS")
]
SlotOption = Annotated[
    float | None,
    typer.Option(
        "--slot",
        help="Length of a slot: least time between decisions at events, and of a slot of policies that plan in slots; "
        "the preset's if omitted.",
        metavar="SECONDS",
    ),
]
RecomputeOption = Annotated[
    float | None,
    typer.Option("--recompute-interval", help="Least time between two decisions of the policy.", metavar="SECONDS"),
]
IdealOption = Annotated[
    bool, typer.Option("--ideal", help="No rounds: every job gets exactly its shares at every moment.")
]
RestartPenaltyOption = Annotated[
    float | None,
    typer.Option(
        "--restart-penalty",
        help="What it costs a gang to start, whatever its size; 0: nothing; the preset's if omitted.",
        metavar="SECONDS",
        min=0,
    ),
]
WorldOption = Annotated[
    list[str] | None,
    typer.Option(
        "--world",
        help="A rule of your own for the simulated world, with its fields; may be given several times.",
        metavar="FILE.py:RULE(NAME=VALUE)",
    ),
]
UnconsolidatedOption = Annotated[
    bool,
    typer.Option(
        "--unconsolidated", help="Gangs spread over servers go at the throughput that the table has for that."
    ),
]
WindowOption = Annotated[
    str | None,
    typer.Option(
        "--window",
        help="Measure the jobs FIRST to END-1 only and stop when they have completed; later ones load the cluster.",
        metavar="FIRST:END",
    ),
]
PreloadOption = Annotated[
    bool, typer.Option("--preload", help="Start with a full cluster: the first jobs of the trace arrive at once.")
]
SlosOption = Annotated[
    bool, typer.Option("--slos", help="Draw a deadline for jobs without one: 1.2, 2 or 10 times the duration.")
]
MaxWaitingOption = Annotated[
    int | None,
    typer.Option("--max-waiting", help="Stop as saturated when more jobs wait than that.", metavar="JOBS"),
]
MaxClockOption = Annotated[
    float | None,
    typer.Option("--max-clock", help="Stop as saturated when the simulated clock passes this.", metavar="SECONDS"),
]
RunSeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        help="Seed of everything that is drawn at random; if omitted 0, and for jobs that are drawn the preset's.",
        min=0,
    ),
]
ProfilingOption = Annotated[
    float | None,
    typer.Option(
        "--profiling-percentage",
        help="Policies that pack estimate what jobs do in pairs, from this part of the profile of each, 0 to 1.",
        metavar="PART",
    ),
]
ReferencesOption = Annotated[
    int | None,
    typer.Option("--reference-models", help="They estimate from so many job types profiled in full.", metavar="COUNT"),
]
EntitiesOption = Annotated[
    Path | None,
    typer.Option(
        "--entities",
        help="Entities that the jobs of the trace name in a column entity (TOML, JSON, CSV, Parquet).",
        metavar="FILE",
    ),
]
EntitiesByOption = Annotated[
    str | None,
    typer.Option(
        "--entities-by",
        help="Users or partitions of the trace become entities, of equal weight, or as the file of --entities says.",
        metavar="user|partition",
    ),
]


@dataclass(frozen=True)
class RunOptions:
    """Cluster, throughputs, settings and workload of one or more simulations."""

    throughputs: ThroughputsOption = None
    cluster: ClusterOption = None
    gpus_per_server: ServersOption = None
    accelerator: AcceleratorOption = None
    time_unit: TimeUnitOption = None
    predictions: PredictionsOption = None
    preset: PresetOption = "default"
    round_seconds: RoundOption = None
    slot_seconds: SlotOption = None
    recompute_interval: RecomputeOption = None
    restart_penalty: RestartPenaltyOption = None
    ideal: IdealOption = False
    unconsolidated: UnconsolidatedOption = False
    window: WindowOption = None
    preload: PreloadOption = False
    whole_gpus: WholeGpusOption = False
    slos: SlosOption = False
    prices: PricesOption = None
    entities: EntitiesOption = None
    entities_by: EntitiesByOption = None
    profiling_percentage: ProfilingOption = None
    reference_models: ReferencesOption = None
    max_waiting: MaxWaitingOption = None
    max_clock: MaxClockOption = None
    seed: RunSeedOption = None
    solver: SolverOption = None
    choice: ChoiceOption = None
    settings: SettingOption = None
    world: WorldOption = None

    def runs(self, policies: Sequence[Variant], option: str = "--policy") -> Runs:
        """What these policies, which `option` names, run with."""
        return Runs(self._on_usual_cluster(), tuple(policies), option)

    def on_cluster_of_drawn_jobs(self) -> RunOptions:
        """The same where jobs are drawn and nothing is said of cluster and throughputs."""
        usual = preset(self.preset).comparison
        if usual.drawn_cluster is None or self.cluster is not None or self.throughputs is not None:
            return self
        servers = self.gpus_per_server or usual.drawn_gpus_per_server
        return replace(self, cluster=usual.drawn_cluster, gpus_per_server=servers)

    def _on_usual_cluster(self) -> RunOptions:
        """The same with the cluster of the preset, where there is none, and with the throughputs that go with it."""
        if self.cluster is not None:
            return self
        usual = preset(self.preset).comparison
        throughputs = self.throughputs or (None if usual.throughputs is None else Path(usual.throughputs))
        servers = self.gpus_per_server or usual.gpus_per_server
        return replace(self, cluster=usual.cluster, gpus_per_server=servers, throughputs=throughputs)


class Runs:
    """Simulations of several policies over one workload, all else being equal.

    Attributes
    ----------
    preset, cluster, table, entities, seed : what the options say.
    policies : the policies, in the order of the variants.
    """

    def __init__(self, options: RunOptions, variants: tuple[Variant, ...], option: str) -> None:
        self.options, self.seed = options, options.seed or 0
        self.entities = None if options.entities is None else Entities.parse(options.entities)
        named = preset(options.preset).policy_names
        chosen = tuple(replace(variant, name=named.get(variant.name, variant.name)) for variant in variants)
        names = [variant.name for variant in chosen]
        mine, own = _own_settings(options, names)
        self.preset = _preset(options, mine)
        accelerator = make_accelerator(options.accelerator, options.throughputs)
        assert options.cluster is not None
        self.cluster: Cluster = make_cluster(options.cluster, options.gpus_per_server, accelerator)
        own_of = [variant.typed_settings(option, self.preset) for variant in chosen]
        self.policies: list[Policy] = _policies(names, own_of, options, self.preset, self.cluster, own)
        self.table: ThroughputTable | Trainings = make_table(options.throughputs, self.policies, accelerator)
        self.window, self.prices = make_window(options.window), make_prices(options.prices)
        if self.estimation is not None and not any(Need.COLOCATION in policy.needs for policy in self.policies):
            expected = "a policy under which jobs share GPUs, such as max_min_fairness_packed"
            raise InputError("--profiling-percentage, --reference-models", found=", ".join(names), expected=expected)

    @property
    def throughput_table(self) -> ThroughputTable:
        """The table, where nothing else will do.

        Raises
        ------
        InputError
            ``--throughputs`` names trainings.
        """
        return only_table(self.table, self.options.throughputs)

    def read(self, path: Path) -> Trace:
        """The trace of a file, with the unit of time of ``--time-unit``; with a warning where it needs throughputs."""
        options = self.options
        trace = read_jobs(path, time_unit=options.time_unit, predictions=options.predictions)
        elastic = any(Need.CONFIGURATIONS in policy.needs for policy in self.policies)
        given = options.throughputs is not None
        warn(told_of_throughputs(path, trace, self.table, self.cluster, given=given, elastic=elastic))
        return trace

    def workload(self, trace: Trace) -> Trace:
        """The trace as ``--whole-gpus``, ``--entities-by``, ``--slos`` and ``--preload`` ask; says what is not used."""
        if self.options.whole_gpus:
            trace = trace.with_whole_gpus()
        if self.options.entities_by is not None:
            trace = trace.owned_by(self.options.entities_by)
            if self.options.entities is None:
                self.entities = Entities.named(trace.entity, trace.source)
        for line in unused_columns(trace, self.cluster, self.options.entities_by, by_name=self.entities is not None):
            typer.echo(line, err=True)
        self._say_lengths(trace)
        self._say_nodes()
        if self.entities is not None and not any(trace.entity):
            expected = "jobs that name their entities, in a column entity"
            raise InputError(trace.source, field="entity", found="none", expected=expected)
        if self.options.slos:
            # A stream of its own, so that nothing else changes with the draw.
            trace = assign_slos(trace, np.random.default_rng([self.seed, SLO_STREAM]))
        return preload(trace, self.cluster) if self.options.preload else trace

    def _say_nodes(self) -> None:
        """Say that every GPU is a node of its own, where steps depend on nodes and nobody said so."""
        alone = set(self.cluster.gpus_per_server.values()) == {1} and self.cluster.total_gpus > 1
        if isinstance(self.table, Trainings) and self.options.gpus_per_server is None and alone:
            kind = self.cluster.accelerators[0]
            line = "each GPU is a node of its own, so all synchronisation is across nodes"
            typer.echo(f"{self.cluster.title}: {line} (--gpus-per-server {kind}:4)", err=True)

    def _say_lengths(self, trace: Trace) -> None:
        """Say where policies that go by predictions have none."""
        names = dict.fromkeys(policy.name for policy in self.policies if Need.PREDICTIONS in policy.needs)
        without = int(np.count_nonzero(np.isnan(trace.predicted_seconds)))
        if names and without:
            lacking = "the jobs" if without == len(trace) else f"{without} of {len(trace)} jobs"
            line = (
                f"{trace.source}: for {', '.join(names)} {lacking} have no predicted length, so their true one counts"
            )
            typer.echo(f"{line} (a column predicted_seconds, or --predictions FILE)", err=True)

    @cached_property
    def estimation(self) -> Any:
        """How policies that pack come to know pairs of jobs; None where they know them."""
        part, models = self.options.profiling_percentage, self.options.reference_models
        return None if part is None and models is None else Estimation(1.0 if part is None else part, models)

    def simulate(self, workload: Trace, policy: Policy, progress: Advance, **more: Any) -> SimulationResult:
        """One run; `more` are further arguments of `allocator.simulate`."""
        return simulate(
            workload,
            self.cluster,
            policy,
            self.table,
            preset=self.preset,
            seed=self.seed,
            window=self.window,
            prices=self.prices,
            entities=self.entities,
            estimation=self.estimation if Need.COLOCATION in policy.needs else None,
            progress=progress,
            **more,
        )

    def recorded(self, workload: Trace) -> SimulationResult | None:
        """The schedule that the trace records, if it does; says where it does not fit the cluster."""
        if np.isnan(workload.recorded_end_seconds).all() or isinstance(self.table, Trainings):
            return None
        try:
            result = recorded_schedule(
                workload,
                self.cluster,
                self.table,
                preset=self.preset,
                window=self.window,
                prices=self.prices,
                entities=self.entities,
            )
        except InputError as error:
            typer.echo(f"the recorded schedule is left out: {error}", err=True)
            return None
        if result.status_detail:
            typer.echo(f"left out of the recorded schedule: {result.status_detail}", err=True)
        most, gpus = int(result.timeline["busy_gpus"].max()), self.cluster.total_gpus
        if most > gpus:
            typer.echo(f"the recorded schedule has up to {most} GPUs in use, {self.cluster} has {gpus}", err=True)
        return result


def _own_settings(options: RunOptions, policies: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """What ``--set`` says, as text: settings of the preset, and of policies."""
    chosen = preset(options.preset)
    known, kinds = chosen.kinds(), chosen.kinds_of_policy
    changes, policy = {}, {}
    for name, text in named_values("--set", options.settings or ()).items():
        if name.startswith(POLICY_PREFIX):
            policy[name.removeprefix(POLICY_PREFIX)] = text
        elif name in known:
            changes[name] = text
        else:
            having = dict.fromkeys(each for each in policies if name in kinds(each))
            if not having:
                raise unknown_setting(name, chosen, "--set")
            expected = f"{POLICY_PREFIX}{name}, as it is a setting of {', '.join(having)}"
            raise InputError("--set", found=name, expected=expected)
    return changes, policy


def _preset(options: RunOptions, changed: dict[str, str]) -> Preset:
    """Preset of ``--preset`` with the settings that have options of their own and those that are `changed`."""
    own = {
        "round_seconds": options.round_seconds,
        "slot_seconds": options.slot_seconds,
        "recompute_interval_seconds": options.recompute_interval,
        **({} if options.restart_penalty is None else constant_restart_penalty(options.restart_penalty)),
        "ideal": options.ideal or None,
        "unconsolidated_throughputs": options.unconsolidated or None,
        "max_waiting_jobs": options.max_waiting,
        "max_clock_seconds": options.max_clock,
    }
    chosen = preset(options.preset).replace(**{name: value for name, value in own.items() if value is not None})
    kinds, own_rules = chosen.kinds(), map(rule_of_text, options.world or ())
    return chosen.replace(
        **{name: convert_text(text, kinds[name], source="--set", field=name) for name, text in changed.items()}
    ).with_rules(*own_rules)


def _policies(
    names: Sequence[str],
    own_of: Sequence[Mapping[str, Any]],
    options: RunOptions,
    preset: Preset,
    cluster: Cluster,
    own: dict[str, str],
) -> list[Policy]:
    """The policies with the settings of the preset on `cluster`, of ``--solver`` and ``--choice``, and `own` above all.

    A policy is given the settings that it has; each of `own`, which are text, must be one of some policy. Those in
    `own_of` are of the policy at that place alone, and above these.
    """
    known = {name: preset.kinds_of_policy(name) for name in names}
    for setting in own:
        if not any(setting in settings for settings in known.values()):
            listed = sorted({setting for settings in known.values() for setting in settings})
            named = f"policy. before a setting{did_you_mean(setting, listed)}: one of {', '.join(listed)}"
            expected = named if listed else "a setting of the preset: the policies have none"
            raise InputError("--set", found=f"{POLICY_PREFIX}{setting}", expected=expected)
    for setting, value in (("solver", options.solver), ("choice", options.choice)):
        if value is not None and not any(setting in settings for settings in known.values()):
            raise without_setting(setting, value, list(dict.fromkeys(names)))
    takers = [name for name in names if _takes(preset.class_of_policy(name), options.solver)]
    policies = []
    for name, its_own in zip(names, own_of, strict=True):
        settings: dict[str, Any] = {}
        if options.choice is not None:
            settings["choice"] = options.choice
        if options.slot_seconds is not None:
            settings["slot_seconds"] = options.slot_seconds
        # A solver of other programs is for the other policies, if there are any.
        if options.solver is not None and (name in takers or not takers):
            settings["solver"] = options.solver
        for setting, text in own.items():
            if setting in known[name]:
                field = POLICY_PREFIX + setting
                settings[setting] = convert_text(text, known[name][setting], source="--set", field=field)
        settings |= its_own
        own_settings = {key: value for key, value in settings.items() if key in known[name]}
        policies.append(preset.make_policy(name, cluster, **own_settings))
    return policies


def _takes(policy: type[Policy], solver: str | None) -> bool:
    """Whether a policy asks solvers, and that of ``--solver`` is one of them as far as it says so."""
    kind = kinds_of(policy).get("solver")
    return kind is not None and (get_origin(kind) is not Literal or solver in get_args(kind))
