"""Small runs as rows of text: name | jobs | cluster | policy | settings | figures that were reckoned by hand.

Jobs are ``arrival:steps x GPUs / rates``, as in ``100`` or ``20:30x2/1,0.5@slo=2``; clusters ``v100:8/4``, with the
GPUs of a server; settings as behind ``--set``, or an option of `simulate`. Figures are columns of the jobs or, with a
dot, of another table; numbers may be sums, ``-`` is nan, ``...`` ends what is looked at. An indented line goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from allocator.cluster import Cluster
from allocator.conversion import convert_text, kinds_of
from allocator.presets import Preset, preset
from allocator.presets.preset import DEFAULT
from allocator.protocol import Policy, Trigger
from allocator.published.chronus import WaitingCounts
from allocator.published.elasticflow.world import DecisionsCostTime, Ends, SlotsThatSpare
from allocator.published.gavel.world import IdleTime, RoundLength
from allocator.published.lucid.world import SecondsCountedDown, SharedGpus
from allocator.published.pollux.world import SlotsOfTheClock, StartsThatServe
from allocator.published.shockwave.world import RoundedBatchSizes, ShortRoundsStartFree, UnnoticedEnds
from allocator.registry import get_policy
from allocator.results.result import SimulationResult
from allocator.simulator import simulate
from allocator.simulator.rules.base import Rules
from allocator.simulator.rules.general import BatchSizes, Slots
from allocator.simulator.rules.starts import StartsTakeTime, StoppingCostsWork
from tests.simulator.event_policies import EVENT_POLICIES
from tests.simulator.worlds import SharesPolicy
from throughputs import Trace
from throughputs.prices import PriceTable

JOB = re.compile(r"(?:([\d.]+):)?([\d.e]+)(?:x(\d+))?(?:/([-\d.,]+))?((?:@\w+=[\d.]+)*)")


def rows(text: str) -> list[Any]:
    """Parameters of a test, one for each row."""
    lines = re.sub(r"\n +", " ", text).splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in lines if line and line[0] != "#"]
    return [pytest.param(*row[1:], id=row[0]) for row in cells]


def trace_of(text: str) -> tuple[Trace, np.ndarray | None]:
    """The jobs, and their rates where any are given."""
    found = [JOB.fullmatch(job).groups() for job in text.split()]  # type: ignore[union-attr]
    arrival, steps, gpus, rates, more = zip(*found, strict=True) if found else [()] * 5
    extra = [dict(pair.split("=") for pair in each.split("@")[1:]) for each in more]
    columns = {name: [float(each.get(name, "nan")) for each in extra] for each in extra for name in each}
    weights = columns.pop("priority_weight", None)
    if weights is not None:
        columns["priority_weight"] = weights
    trace = Trace(
        ["job"] * len(steps), [int(n or 1) for n in gpus], [float(n) for n in steps], [float(n or 0) for n in arrival],
        **columns,
    )  # fmt: skip
    given = [[float(rate) for rate in each.split(",")] if each else None for each in rates]
    if not any(given):
        return trace, None
    width = max(len(each or ()) for each in given)
    return trace, np.array([each or [1.0] * width for each in given])


def cluster_of(text: str) -> Cluster:
    servers = {part.split(":")[0]: int(part.split("/")[1]) for part in text.split(",") if "/" in part}
    return Cluster(Cluster.parse(re.sub(r"/\d+", "", text)).gpus, servers or None)


def policy_of(text: str) -> Policy:
    """``shares A/B`` by job, in types; with ``!`` nobody has more; a policy of these tests; or a registered one."""
    kind, _, rest = text.partition(" ")
    if kind in ("shares", "shares!"):
        given = [[float(share) for share in row.split(",")] for row in rest.split("/")] if rest else None
        decide = (lambda state: np.array(given)[list(state.throughputs.jobs)],) if given else ()
        return SharesPolicy(*decide, fills_idle_gpus=kind == "shares")
    if kind == "latest_first":
        return SharesPolicy(lambda state: np.eye(state.n_jobs)[:, -1:])
    if kind == "reads_prices":
        return SharesPolicy(triggers=Trigger.USUAL | Trigger.PRICES)
    if kind == "regular":
        return SharesPolicy(period_seconds=float(rest))
    return EVENT_POLICIES[kind](*map(float, rest.split())) if kind in EVENT_POLICIES else get_policy(kind)


RULES = (RoundLength, ShortRoundsStartFree, StartsThatServe, StartsTakeTime, UnnoticedEnds, IdleTime, SlotsThatSpare)
RULES += (SlotsOfTheClock, Slots, SharedGpus, Ends, SecondsCountedDown, StoppingCostsWork, DecisionsCostTime)
RULES += (RoundedBatchSizes, BatchSizes)
"""Rules of published worlds, and the general ones that come between them, in the order in which they are asked."""


def with_rules_that_have(names: Iterable[str], world: Rules) -> Rules:
    """The world with those of `RULES` that have settings of these names, in place of what they are kinds of."""
    for name in names:
        kind = next((kind for kind in reversed(RULES) if name in kinds_of(kind)), None)
        if kind is not None and not any(name in kinds_of(type(rule)) for rule in world):
            usual = next((rule for rule in world if issubclass(kind, type(rule))), None)
            own = {field.name: getattr(usual, field.name) for field in fields(usual)} if usual else {}
            world = (*(rule for rule in world if rule is not usual), kind(**own))
    order = {kind: place for place, kind in enumerate(RULES)}
    return tuple(sorted(world, key=lambda rule: order.get(type(rule), len(RULES))))


def with_settings(chosen: Preset, **changes: Any) -> Preset:
    """The preset with these settings, be they of its world or of a published one."""
    return replace(chosen, world=with_rules_that_have(changes, chosen.world)).replace(**changes)


def world_of(text: str) -> tuple[Preset, dict[str, Any]]:
    """The preset with these settings (discipline: that of the preset so named), and options of `simulate`."""
    given = dict(part.split("=", 1) for part in text.split())
    name, options = given.pop("preset", "default"), {}
    chosen = {"usual": DEFAULT, "default": Preset()}.get(name) or preset(name)
    for name in [name for name in ("seed", "window", "prices") if name in given]:
        value = given.pop(name)
        if name == "prices":
            times, prices = zip(*(part.split(":") for part in value.split(",")), strict=True)
            options[name] = PriceTable({"v100": (list(map(float, times)), list(map(float, prices)))})
        else:
            options[name] = tuple(map(int, value.split(":"))) if name == "window" else int(value)
    if "discipline" in given:
        chosen = chosen.replace(discipline=preset(given.pop("discipline")).disciplines()[-1])
    chosen = replace(chosen, world=with_rules_that_have(given, chosen.world))
    kinds = chosen.kinds()
    return chosen.replace(**{n: convert_text(v, kinds[n], source="-", field=n) for n, v in given.items()}), options


def run(jobs: str, cluster: str = "", policy: str = "shares", settings: str = "") -> tuple[SimulationResult, Policy]:
    """What a row says."""
    trace, rates = trace_of(jobs)
    made, made_policy = cluster_of(cluster or "v100:1"), policy_of(policy or "shares")
    chosen, options = world_of(settings)
    chosen = replace(chosen, world=(*chosen.world, WaitingCounts()))
    known = np.ones((len(trace), len(made.accelerators))) if rates is None else rates
    return simulate(trace, made, made_policy, known, preset=chosen, **options), made_policy


def figure(result: SimulationResult, policy: Any, path: str) -> Iterable[Any]:
    table, _, column = path.rpartition(".")
    if path == "asked":
        return policy.asked if hasattr(policy, "asked") else [state.clock for state in policy.states]
    if path == "lease":
        names = ("job_id", "start_time", "end_time", "steps")
        found = zip(*(result.rounds[name] for name in names), strict=True)
        return [f"{job}:{start:g}-{end:g}:{steps:g}" for job, start, end, steps in found]
    if path == "gpus":
        return result.rounds.groupby("job_id")["gpus"].agg(lambda held: "+".join(sorted(set(map(_ids, held))))).tolist()
    if table == "summary":
        return [result.summary()[column]]
    found = getattr(result, table or "jobs")[{"end": "completion_time"}.get(column, column)].tolist()
    return list(map(_ids, found)) if column == "gpus" else found


def _ids(gpus: tuple[int, ...]) -> str:
    return " ".join(map(str, gpus))


def check(result: SimulationResult, policy: Policy, figures: str) -> None:
    """All figures of a row."""
    for part in figures.split(";"):
        path, *expected = part.split()
        found = list(figure(result, policy, path))
        if "..." in expected:
            expected = expected[: expected.index("...")]
            found = found[: len(expected)]
        assert len(found) == len(expected), (path, found)
        for value, told in zip(found, expected, strict=True):
            if isinstance(value, int | float) and not isinstance(value, bool):
                number = np.nan if told == "-" else eval(told, {"__builtins__": {}})
                assert value == pytest.approx(number, rel=1e-11, nan_ok=True), (path, found)
            else:
                assert str(value).replace(" ", ",") == told, (path, found)
