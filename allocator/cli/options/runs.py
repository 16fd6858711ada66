"""The options of runs, and the runs that they stand for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import numpy as np

from allocator.cli.options.groups import Given, Options, options
from allocator.cli.options.shared import (
    SHARED,
    say,
    warn,
)
from allocator.cli.options.values import (
    make_accelerator,
    make_cluster,
    make_window,
    named_values,
    prices_of_text,
    told_of_throughputs,
    unused_columns,
    without_setting,
)
from allocator.cluster import cluster_texts
from allocator.conversion import convert_text, kinds_of
from allocator.experiments.run import Materials, Run
from allocator.experiments.workloads import Recorded
from allocator.plugins import rule_of_text
from allocator.presets import preset
from allocator.presets.preset import DEFAULT, unknown_setting
from allocator.protocol.policy import Need
from allocator.protocol.views import Views
from allocator.simulator.rules.starts import constant_restart_penalty
from throughputs import InputError
from throughputs.errors import did_you_mean
from throughputs.goodput.trainings import Trainings

if TYPE_CHECKING:
    from allocator.presets import Preset
    from allocator.protocol import Policy
    from allocator.variants import Variant
    from throughputs import ThroughputTable, Trace

POLICY_PREFIX = "policy."


class _Settings:
    """Settings of mechanism and simulator that have options of their own; all others are given by ``--set``.

    Options
    -------
    round_seconds : --round SECONDS
        Length of a round; the preset's if omitted.
    slot_seconds : --slot SECONDS
        Length of a slot: least time between decisions at events, and of a slot of policies that plan in slots; the
        preset's if omitted.
    recompute_interval_seconds : --recompute-interval SECONDS
        Least time between two decisions of the policy.
    restart_penalty_seconds : --restart-penalty SECONDS
        What it costs a gang to start, whatever its size; 0: nothing; the preset's if omitted.
    ideal
        No rounds: every job gets exactly its shares at every moment.
    unconsolidated_throughputs : --unconsolidated
        Gangs spread over servers go at the throughput that the table has for that.
    max_waiting_jobs : --max-waiting JOBS
        Stop as saturated when more jobs wait than that.
    max_clock_seconds : --max-clock SECONDS
        Stop as saturated when the simulated clock passes this.
    """


SETTINGS = {option.name: option for option in options(_Settings, kinds=DEFAULT.kinds())}

_OF_JOBS = "time_unit_seconds predictions default_limit_hours preload whole_gpus slos entities_by"

RUN: Options = (
    SHARED["throughputs"],
    *options(Run, "cluster"),
    SHARED["gpus_per_server"],
    SHARED["accelerator"],
    *options(Run, "preset"),
    *SETTINGS.values(),
    *options(Run, "window start prices entities profiling_percentage reference_models seed"),
    SHARED["time_unit_seconds"],
    *options(Recorded, _OF_JOBS.partition(" ")[2]),
    *(SHARED[name] for name in ("solver", "choice", "settings", "world")),
)
"""Cluster, throughputs, settings and workload of one or more simulations."""


def recorded_jobs(given: Given, trace: str) -> Recorded:
    """The jobs of a file, with what was given of them."""
    return Recorded(trace=trace, **given.some(_OF_JOBS.split()))


def runs_of(given: Given, variants: Sequence[Variant], jobs: Recorded, option: str = "--policy") -> list[Run]:
    """A run of the jobs for each of the policies, which `option` names, all else being equal.

    Raises
    ------
    InputError
        Anything that no run can be made of, as far as the options say it.
    """
    named = preset(given.get("preset", "default"))
    chosen = [replace(variant, name=named.policy_names.get(variant.name, variant.name)) for variant in variants]
    names = [variant.name for variant in chosen]
    changes, of_policies = _settings(given, names)
    throughputs = given.get("throughputs")
    accelerator = make_accelerator(given.get("accelerator"), throughputs, [given["cluster"]])
    cluster = make_cluster(given["cluster"], given.get("gpus_per_server"), accelerator)
    gpus, servers = cluster_texts(cluster)
    world = tuple(map(rule_of_text, given.get("world", ())))
    usual = named.replace(**changes)
    own_of = [variant.typed_settings(option, usual) for variant in chosen]
    runs = [
        Run(
            "trace",
            variant.name,
            gpus,
            seed=given.get("seed", 0),
            gpus_per_server=servers,
            policy_settings=settings,
            workload=jobs,
            throughputs=throughputs,
            accelerator=accelerator,
            window=make_window(given.get("window")),
            prices=prices_of_text(given.get("prices")),
            preset=named.name,
            settings=changes,
            world=world,
            name=variant.run_label or "",
            **given.some(("start", "entities", "profiling_percentage", "reference_models")),
        )
        for variant, settings in zip(variants, _policy_settings(names, own_of, given, usual, of_policies), strict=True)
    ]
    for run in runs:
        run.make_policy()
    if runs[0].estimation is not None and not any(Need.COLOCATION in run.make_policy().needs for run in runs):
        expected = "a policy under which jobs share GPUs, such as max_min_fairness_packed"
        raise InputError("--profiling-percentage, --reference-models", found=", ".join(names), expected=expected)
    return runs


def on_usual_cluster(given: Given, *, drawn: bool = False) -> Given:
    """The same with the cluster of the preset, where there is none, and with the throughputs that go with it.

    Where jobs are `drawn` and nothing is said of throughputs, that may be another one.
    """
    usual = preset(given.get("preset", "default")).comparison
    if "cluster" in given:
        return given
    if drawn and usual.drawn_cluster is not None and "throughputs" not in given:
        found = {"cluster": usual.drawn_cluster, "gpus_per_server": usual.drawn_gpus_per_server}
    else:
        found = {"cluster": usual.cluster, "gpus_per_server": usual.gpus_per_server, "throughputs": usual.throughputs}
    return Given({name: value for name, value in found.items() if value is not None} | given)


def say_of_jobs(runs: Sequence[Run], materials: Materials, given: Given) -> None:
    """Say what is not used of the jobs of runs, and where nobody said what matters."""
    run, cluster = runs[0], runs[0].gpus
    assert run.recorded is not None
    as_read = replace(run, workload=replace(run.recorded, preload=False, slos=False))
    trace = materials.jobs_of(as_read)(materials.n_jobs(run))
    owned = run.entities is not None or given.get("entities_by") is not None
    policies = [run.make_policy() for run in runs]
    of_accounts = any(Views.account in policy.needs for policy in policies)
    for line in unused_columns(trace, cluster, given.get("entities_by"), by_name=owned, of_accounts=of_accounts):
        say(line)
    for line in (*said_of_lengths(policies, trace), *_said_of_nodes(run, materials.speeds_of(run))):
        say(line)


def warn_of_models(path: Path, runs: Sequence[Run], trace: Trace, table: ThroughputTable | Trainings) -> None:
    """Warn where the trace of a file needs throughputs."""
    elastic, given = (
        any(Need.CONFIGURATIONS in run.make_policy().needs for run in runs),
        runs[0].throughputs is not None,
    )
    warn(told_of_throughputs(path, trace, table, runs[0].gpus, given=given, elastic=elastic))


def _said_of_nodes(run: Run, table: ThroughputTable | Trainings) -> Iterator[str]:
    """That every GPU is a node of its own, where steps depend on nodes and nobody said so."""
    cluster = run.gpus
    alone = set(cluster.gpus_per_server.values()) == {1} and cluster.total_gpus > 1
    if isinstance(table, Trainings) and run.gpus_per_server is None and alone:
        line = "each GPU is a node of its own, so all synchronisation is across nodes"
        yield f"{cluster.title}: {line} (--gpus-per-server {cluster.accelerators[0]}:4)"


def said_of_lengths(policies: Sequence[Policy], trace: Trace) -> Iterator[str]:
    """Where policies that go by predictions have none."""
    names = dict.fromkeys(policy.name for policy in policies if Need.PREDICTIONS in policy.needs)
    without = int(np.count_nonzero(np.isnan(trace.predicted_seconds)))
    if names and without:
        lacking = "the jobs" if without == len(trace) else f"{without} of {len(trace)} jobs"
        line = f"{trace.source}: for {', '.join(names)} {lacking} have no predicted length, so their true one counts"
        yield f"{line} (--default-limit HOURS, or a column predicted_seconds)"


def _settings(given: Given, policies: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Settings of the preset that have options of their own or are set by ``--set``; and those of policies, as text."""
    chosen = preset(given.get("preset", "default"))
    known, kinds = chosen.kinds(), chosen.kinds_of_policy
    changes = given.some(SETTINGS)
    if "restart_penalty_seconds" in changes:
        changes |= constant_restart_penalty(changes["restart_penalty_seconds"])
    of_policies = {}
    for name, text in named_values("--set", given.get("settings", ())).items():
        if name.startswith(POLICY_PREFIX):
            of_policies[name.removeprefix(POLICY_PREFIX)] = text
        elif name in known:
            changes[name] = convert_text(text, known[name], source="--set", field=name)
        else:
            having = dict.fromkeys(each for each in policies if name in kinds(each))
            if not having:
                raise unknown_setting(name, chosen, "--set")
            expected = f"{POLICY_PREFIX}{name}, as it is a setting of {', '.join(having)}"
            raise InputError("--set", found=name, expected=expected)
    return changes, of_policies


def _policy_settings(
    names: Sequence[str],
    own_of: Sequence[Mapping[str, Any]],
    given: Given,
    chosen: Preset,
    shared: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Settings of each policy: of ``--solver`` and ``--choice`` and `shared`, as far as it has them, below its own.

    Each of `shared`, which are text, must be one of some policy.
    """
    known = {name: chosen.kinds_of_policy(name) for name in names}
    for setting in shared:
        if not any(setting in settings for settings in known.values()):
            listed = sorted({setting for settings in known.values() for setting in settings})
            whose = ", ".join(dict.fromkeys(names))
            named = f"policy.NAME, a setting of {whose}{did_you_mean(setting, listed)}: one of {', '.join(listed)}"
            expected = named if listed else "a setting of the preset: the policies have none"
            raise InputError("--set", found=f"{POLICY_PREFIX}{setting}", expected=expected)
    of_all = given.some(("choice", "slot_seconds", "solver"))
    for setting in ("solver", "choice"):
        if setting in of_all and not any(setting in settings for settings in known.values()):
            raise without_setting(setting, of_all[setting], list(dict.fromkeys(names)))
    takers = [name for name in names if _takes(chosen.class_of_policy(name), given.get("solver"))]
    made = []
    for name, own in zip(names, own_of, strict=True):
        settings = dict(of_all)
        # A solver of other programs is for the other policies, if there are any.
        if takers and name not in takers:
            settings.pop("solver", None)
        for setting, text in shared.items():
            if setting in known[name]:
                field = POLICY_PREFIX + setting
                settings[setting] = convert_text(text, known[name][setting], source="--set", field=field)
        made.append({key: value for key, value in (settings | dict(own)).items() if key in known[name]})
    return made


def _takes(policy: type[Policy], solver: str | None) -> bool:
    """Whether a policy asks solvers, and that of ``--solver`` is one of them as far as it says so."""
    kind = kinds_of(policy).get("solver")
    return kind is not None and (get_origin(kind) is not Literal or solver in get_args(kind))
