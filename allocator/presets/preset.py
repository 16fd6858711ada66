"""What a preset is: settings of mechanism and simulator under one name, and what else belongs to a published system."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, Literal, get_args

from allocator.cluster import Cluster
from allocator.conversion import convert, kinds_of
from allocator.mechanism.deficit import DeficitQueue
from allocator.mechanism.rounds import Discipline
from allocator.mechanism.settings import MechanismSettings
from allocator.protocol import Policy
from allocator.registry import class_of, made
from allocator.simulator.rules.base import Rule, Rules, rule_of
from allocator.simulator.rules.starts import StartsTakeTime
from allocator.simulator.rules.world import completed
from throughputs import InputError
from throughputs.entry_points import entries_of
from throughputs.errors import expect, nearest_names

ENTRY_POINT_GROUP = "allocator.presets"

FairnessYardstick = Literal["isolated", "static", "themis"]
"""What rho divides a completion time by: "isolated": `fairness.isolated_jct`; "static", "themis": the time that the job
needs alone times `fairness.static_contention` or `fairness.round_contention`."""


@dataclass(frozen=True)
class Comparison:
    """What is compared under a preset where nothing else is said.

    Attributes
    ----------
    policies : their names.
    cluster, gpus_per_server : GPUs by accelerator type, and those of one server; None: 1.
    throughputs : those of a run on that cluster: "goodput", or None for the embedded table.
    drawn_cluster, drawn_gpus_per_server : where jobs are drawn and the embedded table lacks types of `cluster`.
    workload : generator of the jobs and its settings, as a sweep has them (`allocator.experiments.workloads`). With
        throughputs of jobs that choose their batch size, whatever it is, their trainings are drawn.
    jobs, mean_interarrival_seconds, seed : of the jobs that are drawn.
    labels : what the paper calls policies, by our names.
    of_embedded_throughputs : what is said where jobs are drawn and no throughputs are named.
    """

    policies: tuple[str, ...] = (
        "max_min_fairness_perf",
        "finish_time_fairness_perf",
        "min_total_duration_perf",
        "max_sum_throughput_perf",
        "max_min_fairness",
        "finish_time_fairness",
        "isolated",
        "fifo_perf",
        "fifo",
    )
    cluster: str = "v100:36,p100:36,k80:36"
    gpus_per_server: str | None = None
    throughputs: str | None = None
    drawn_cluster: str | None = None
    drawn_gpus_per_server: str | None = None
    workload: Mapping[str, Any] = field(default_factory=dict)
    jobs: int = 240
    mean_interarrival_seconds: float = 240.0
    seed: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    of_embedded_throughputs: str = ""


@dataclass(frozen=True)
class Preset:
    """Settings of mechanism and simulator under one name, and what else belongs to a published system.

    Attributes
    ----------
    name, mechanism : the settings of the mechanism, and the name.
    world : the rules of the simulated world, in the order in which they are asked; general rules that are not listed
        come first, with their usual fields.
    choice : which of the optima of a program is taken.
    fairness : the rho by which runs are compared; all that are known stay in the results.
    policies : forms that policies have in the published system, as ``module:Class`` by our names: subclasses of ours.
    policy_names : names that policies have in the published system, where they differ from ours.
    policy_settings : settings of policies by their names, where they differ from the usual ones.
    policy_settings_by_gpus : those that go with the size of the cluster: by name of the policy, then by GPUs. A cluster
        has those of the largest size that it reaches; one below all of them those of the smallest.
    world_settings : settings of mechanism and simulator by names of policies, where their published simulators differ.
    world_settings_by_gpus : those that go with the size of the cluster, as `policy_settings_by_gpus`.
    comparison : what is compared where nothing else is said.

    Raises
    ------
    InputError
        No such yardstick of fairness.
    """

    declared_in: ClassVar[str] = ENTRY_POINT_GROUP

    name: str = "default"
    mechanism: MechanismSettings = field(default_factory=MechanismSettings)
    world: Rules = ()
    choice: str = "balanced"
    fairness: FairnessYardstick = "isolated"
    policies: Mapping[str, str] = field(default_factory=dict)
    policy_names: Mapping[str, str] = field(default_factory=dict)
    policy_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    policy_settings_by_gpus: Mapping[str, Mapping[int, Mapping[str, Any]]] = field(default_factory=dict)
    world_settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    world_settings_by_gpus: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    comparison: Comparison = field(default_factory=Comparison)

    def __post_init__(self) -> None:
        known = get_args(FairnessYardstick)
        if self.fairness not in known:
            raise InputError("preset", field="fairness", found=self.fairness, expected=f"one of {', '.join(known)}")
        object.__setattr__(self, "world", completed(self.world))
        for rule in self.world:
            expect(isinstance(rule, Rule), "preset", "world", rule, "objects of subclasses of Rule, as Slow(by=0.5)")
            rule.check(self.world)
        _check_names(self.disciplines(), self.world)

    def replace(self, **changes: Any) -> Preset:
        """The same with some settings changed, each named as a field of `MechanismSettings`, its discipline or a rule.

        They hold under every policy and on every cluster, whatever `world_settings` say. Another restart penalty
        is that of every gang, unless figures by GPUs or by job type are given with it.

        Raises
        ------
        InputError
            No such setting, or a value of the wrong type.
        """
        discipline = changes.get("discipline", self.mechanism.discipline)
        discipline = convert(discipline, Discipline, source="settings", field="discipline")
        kinds = _kinds([discipline] if "discipline" in changes else self.disciplines(), self.world)
        for name, value in changes.items():
            if name not in kinds:
                raise unknown_setting(name, self, "settings")
            changes[name] = convert(value, kinds[name], source="settings", field=name)
        penalty = rule_of(self.world, StartsTakeTime).restart_penalty_seconds
        if changes.get("restart_penalty_seconds", penalty) != penalty:
            changes = {"restart_penalty_by_gpus": (), "restart_penalty_by_job_type": ()} | changes
        return dataclasses.replace(
            self,
            mechanism=_changed(self.mechanism, changes | {"discipline": _changed(discipline, changes)}),
            world=tuple(_changed(rule, changes) for rule in self.world),
            world_settings=_with_disciplines(_without(self.world_settings, changes), changes),
            world_settings_by_gpus=_without(self.world_settings_by_gpus, changes),
        )

    def kinds(self) -> Mapping[str, Any]:
        """Settings that `replace` changes, each with its type."""
        return _kinds(self.disciplines(), self.world)

    def disciplines(self) -> list[Discipline]:
        """That of the mechanism, and those of single policies."""
        own = (settings["discipline"] for settings in self.world_settings.values() if "discipline" in settings)
        return [self.mechanism.discipline, *own]

    def with_rules(self, *rules: Rule) -> Preset:
        """The same in a world that has these rules too, in place of those of the same kind, asked after all others."""
        kept = (rule for rule in self.world if type(rule) not in map(type, rules))
        return dataclasses.replace(self, world=(*kept, *rules))

    def in_run(self, policy: str, cluster: Cluster) -> Preset:
        """The preset as it is in a run of that policy on `cluster`."""
        by_gpus = _of_size(self.world_settings_by_gpus, cluster)
        changes = {**by_gpus, **self.world_settings.get(policy, {})}
        return self.replace(**changes) if changes else self

    def class_of_policy(self, name: str) -> type[Policy]:
        """The class of the policy of that name in this system; raises `InputError` where there is no such policy.

        ``NAME@default`` is the policy as it is without a preset: ``elasticflow@default`` beside ``elasticflow``.
        """
        name, usual = _as_usual(name)
        if usual or name not in self.policies:
            return class_of(name)
        module, _, kind = self.policies[name].partition(":")
        found: type[Policy] = getattr(import_module(module), kind)
        return found

    def kinds_of_policy(self, name: str) -> Mapping[str, Any]:
        """Declared types of the settings of a policy in this system, by name."""
        return kinds_of(self.class_of_policy(name))

    def make_policy(self, name: str, cluster: Cluster, **settings: Any) -> Policy:
        """The policy of that name as it is under this preset on `cluster`, with `settings` above all.

        Raises
        ------
        InputError
            No such policy or setting, or a value of the wrong type.
        """
        plain, as_usual = _as_usual(name)
        if as_usual:
            return made(class_of(plain), plain, settings)
        factory = self.class_of_policy(name)
        usual = {"choice": self.choice} if "choice" in kinds_of(factory) else {}
        return made(factory, name, usual | self.settings_of_policy(name, cluster) | settings)

    def settings_of_policy(self, name: str, cluster: Cluster) -> dict[str, Any]:
        """Settings of the policy of that name on `cluster` under this preset; empty where they are the usual ones."""
        settings = dict(self.policy_settings.get(name, {}))
        return settings | _of_size(self.policy_settings_by_gpus.get(name, {}), cluster)

    def told_of(self, policy: Policy) -> dict[str, str]:
        """What a run says of a policy that is not as this preset has it: that it is ``NAME@default``."""
        form = self.class_of_policy(policy.name) if policy.name in self.policies else type(policy)
        return {} if isinstance(policy, form) else {"policy_form": f"{policy.name}@default"}

    def as_dict(self) -> dict[str, Any]:
        """Every setting by name, ready for JSON."""
        discipline = self.mechanism.discipline
        settings = dataclasses.asdict(self.mechanism) | {"discipline": discipline.name}
        settings |= {name: getattr(discipline, name) for name in kinds_of(type(discipline))}
        for rule in self.world:
            settings |= dataclasses.asdict(rule)
        if own := [repr(rule) for rule in self.world if not type(rule).__module__.startswith("allocator.")]:
            settings["world"] = own
        return {"preset": self.name, "choice": self.choice, "fairness": self.fairness} | {
            k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()
        }


def _check_names(disciplines: Sequence[Discipline], world: Rules) -> None:
    """InputError for a setting that two owners have: by its name alone nobody could tell which is meant."""
    owners: dict[str, type] = {}
    for owner in (MechanismSettings, *map(type, disciplines), *map(type, world)):
        for name in kinds_of(owner):
            other = owners.setdefault(name, owner)
            if other is not owner:
                expected = f"another name: {other.__name__} has a setting {name}"
                raise InputError(f"rule {owner.__name__}", field=name, expected=expected)


def _kinds(disciplines: Sequence[Discipline], world: Rules) -> dict[str, Any]:
    """Settings of a preset with these disciplines and that world, each with its type."""
    owners: tuple[type, ...] = (MechanismSettings, *map(type, disciplines), *map(type, world))
    return {name: kind for owner in owners for name, kind in kinds_of(owner).items()}


def _changed(settings: Any, changes: Mapping[str, Any]) -> Any:
    """The same with those of the changes that are fields of it."""
    own = {field.name: changes[field.name] for field in dataclasses.fields(settings) if field.name in changes}
    return dataclasses.replace(settings, **own) if own else settings


def unknown_setting(name: str, chosen: Preset, source: str) -> InputError:
    """What is wrong with a name that is no setting under a preset: other presets have it, or these are the nearest."""
    presets = [Preset(), *(entry.load() for entry in entries_of(ENTRY_POINT_GROUP).values())]
    having = [other.name for other in presets if isinstance(other, Preset) and name in other.kinds()]
    near = nearest_names(name, chosen.kinds())
    hint = f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
    hint = f" of the preset {chosen.name}: {name} is one of {', '.join(having)}" if having else hint
    expected = f"a setting of mechanism or simulator{hint}; docs/simulator.md and docs/goodput.md say what they do"
    return InputError(source, found=name, expected=expected)


def _as_usual(name: str) -> tuple[str, bool]:
    """The name of a policy, and whether it is meant as it is without a preset."""
    plain, at, form = name.partition("@")
    if at and form != "default":
        raise InputError("policy", found=name, expected=f"{plain}, or {plain}@default: as it is without a preset")
    return plain, bool(at)


def _of_size(by_gpus: Mapping[int, Mapping[str, Any]], cluster: Cluster) -> dict[str, Any]:
    """Settings of the largest size that the cluster reaches, or of the smallest."""
    if not by_gpus:
        return {}
    reached = [gpus for gpus in by_gpus if gpus <= cluster.total_gpus]
    return dict(by_gpus[max(reached, default=min(by_gpus))])


def _without(settings: Mapping[Any, Mapping[str, Any]], names: Mapping[str, Any]) -> dict[Any, Mapping[str, Any]]:
    """All but those with these names."""
    return {key: {k: v for k, v in of_key.items() if k not in names} for key, of_key in settings.items()}


def _with_disciplines(
    settings: dict[Any, Mapping[str, Any]], changes: Mapping[str, Any]
) -> dict[Any, Mapping[str, Any]]:
    """Settings of policies, the changes made in the disciplines among them."""
    return {
        policy: dict(own, discipline=_changed(own["discipline"], changes)) if "discipline" in own else own
        for policy, own in settings.items()
    }


# What the simulators of Pollux (OSDI'21) and, for gangs of more than 8 GPUs, of Helios (SC'21) and Lucid (ASPLOS'23)
# take a restart to cost.
DEFAULT = Preset(
    mechanism=MechanismSettings(discipline=DeficitQueue(hysteresis_rounds=4.0)),
    world=(
        StartsTakeTime(
            restart_penalty_seconds=30.0,
            restart_penalty_by_gpus=((9, 60.0),),
            restart_when_moved=True,
            restart_delays=True,
        ),
    ),
)
