"""Whole runs of every registered policy on small worlds, under the presets that mean something to it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.golden import door
from tests.golden.kept import Case, Taken, digest

WORLDS = "tests/golden/worlds"

ONE_TYPE = ["--cluster", "v100:8", "--gpus-per-server", "v100:4"]
THREE_TYPES = ["--cluster", "v100:4,p100:4,k80:4", "--gpus-per-server", "v100:4,p100:2,k80:2"]
TIGHT = ["--cluster", "v100:2,p100:1,k80:1"]
NODES = ["--cluster", "t4:8", "--gpus-per-server", "t4:4", "--throughputs", "goodput"]

ON_ONE_TYPE = {"chronus", "edf", "edf_admission", "elasticflow", "elasticflow_mip", "elasticflow_no_admission"}
ON_ONE_TYPE |= {"gandiva_time_slicing", "pollux", "pollux_fixed", "shockwave", "sia_unaware", "themis"}
GOODPUT = {"sia", "sia_fixed", "sia_unaware", "pollux", "pollux_fixed", "optimus"}
DEADLINES = {name for name in ON_ONE_TYPE if name.startswith(("chronus", "edf", "elasticflow"))}
LINES = {"fcfs", "sjf", "qssf", "srtf", "tiresias", "tiresias_gittins"}
AT_EVENTS = ON_ONE_TYPE - {"shockwave"} | GOODPUT | LINES | {"quotas", "lucid", "lucid_program"}
"""Policies that answer with plans; all others answer with shares of time."""

DEAR = {"max_min_fairness_strategy_proof", "max_min_fairness_strategy_proof_perf", "shockwave", "allox"}
"""These run with one seed alone, and not every day; nor do those that have a twin which is aware of types."""

ENTITLED = {"quotas", "max_min_fairness_water_filling_perf", "max_sum_throughput_normalized_by_cost_perf"}
"""Of these the runs with entities or prices are of every day."""

IN_ALL_WORLDS = {"max_min_fairness_perf", "fifo_perf", "fcfs", "tiresias"}
"""Of all other policies the runs under presets of other systems are deep."""

PUBLISHED = ("gavel", "shockwave", "elasticflow", "chronus", "lucid", "pollux", "sia")

OF_WORLD: dict[str, tuple[str, list[str], list[str]]] = {
    "gangs": ("gangs", THREE_TYPES, []),
    "training": ("training", THREE_TYPES, []),
    "partitions": ("partitions", THREE_TYPES, []),
    "unfit": ("unfit", THREE_TYPES, []),
    "deadlines": ("deadlines", ONE_TYPE, []),
    "pairs": ("pairs", TIGHT, []),
    "fractions": ("fractions", THREE_TYPES, []),
    "entities": ("entities", THREE_TYPES, ["--entities", f"{WORLDS}/entities.toml"]),
    # the published descents, which these presets set, end elsewhere on another processor
    "goodput": ("goodput", NODES, ["--set", "goodput_fit=least_loss"]),
    "samples": ("goodput", NODES, ["--set", "goodput_fit=least_loss", "--set", "goodput_work=samples"]),
    "prices": ("deadlines", THREE_TYPES, ["--prices", f"{WORLDS}/prices-%.csv"]),
    "ideal": ("gangs", THREE_TYPES, ["--ideal"]),
    "ideal_prices": ("deadlines", THREE_TYPES, ["--ideal", "--prices", f"{WORLDS}/prices-%.csv"]),
    "ideal_pairs": ("pairs", TIGHT, ["--ideal"]),
    "idle": ("gangs", THREE_TYPES, ["--set", "idle_fill=off"]),
    "idle_pairs": ("pairs", TIGHT, ["--set", "idle_fill=off"]),
    "estimated": ("pairs", TIGHT, ["--profiling-percentage", "0.5", "--reference-models", "5"]),
    "whole": ("fractions", THREE_TYPES, ["--whole-gpus"]),
    "users": ("partitions", THREE_TYPES, ["--entities-by", "user"]),
    "window": ("gangs", THREE_TYPES, ["--window", "3:8", "--preload"]),
    "saturated": ("gangs", THREE_TYPES, ["--max-waiting", "2"]),
    "spread": ("gangs", THREE_TYPES, ["--unconsolidated", "--restart-penalty", "100"]),
    "profiler": ("gangs", ONE_TYPE, ["--profiler", "servers=1,limit_seconds=300,largest_gang=2"]),
}
"""Trace, cluster, and further options; % stands for the seed."""

VARIANTS = (
    ("allox:alpha=0.5", "gangs"),
    ("chronus:objective=maximize", "deadlines"),
    ("elasticflow:admission=repair", "deadlines"),
    ("elasticflow:levels=all", "deadlines"),
    ("fcfs:backfill=easy", "gangs"),
    ("fcfs:backfill=easy", "fractions"),
    ("gandiva_time_slicing:turn_seconds=600", "gangs"),
    ("lucid:host=fastest", "pairs"),
    ("lucid:packs=false", "pairs"),
    ("max_min_fairness_perf:solver=structured", "gangs"),
    ("max_sum_throughput_normalized_by_cost_perf:cost=total", "prices"),
    ("max_sum_throughput_normalized_by_cost_perf_SLOs:infeasible=drop_all", "prices"),
    ("oef:form=non_cooperative", "gangs"),
    ("optimus:search=marginal_gains", "samples"),
    ("pollux:power=-0.5", "samples"),
    ("pollux:search=genetic,generations=10", "samples"),
    ("qssf:backfill=easy", "gangs"),
    ('quotas:borrowing={"vision.v100": 1}', "entities"),
    ("quotas:cohorts=siblings,sharing=per_type", "entities"),
    ("quotas:reclaim=false,preempt=false", "entities"),
    ("shockwave:form=binaries,future_rounds=5", "training"),
    ("sia:power=-0.5", "samples"),
    ("sjf:backfill=easy", "gangs"),
    ("themis:lease_seconds=1200", "gangs"),
    ("tiresias:queue_limits=[3000,20000]", "gangs"),
)
"""Settings of policies that no preset sets, with a world for each."""


def _of_policy(policy: str) -> Iterator[tuple[str, str, str]]:
    """Preset, world and seeds of the runs of a policy: the first is of every day of most."""
    usual = "deadlines" if policy in DEADLINES else "pairs" if policy.endswith("packed") else "gangs"
    yield "default", usual, "01"
    if policy in AT_EVENTS:
        yield from _of_plans(policy, usual)
    else:
        yield from _of_shares(policy, usual)
    for world in ("gangs", "unfit", "partitions"):
        if world != usual:
            yield "default", world, "01" if world == "unfit" else "0"
    yield "default", "fractions", "01" if policy in LINES else "0"


def _of_plans(policy: str, usual: str) -> Iterator[tuple[str, str, str]]:
    own = {"sia": "sia", "qssf": "lucid", "sjf": "lucid", "srtf": "lucid", "optimus": "pollux", "themis": "elasticflow"}
    first = next((p for p in PUBLISHED if policy.startswith(p)), own.get(policy, "elasticflow"))
    others = [preset for preset in PUBLISHED if preset != first]
    if policy in GOODPUT | {"tiresias", "fcfs"}:
        if policy in GOODPUT:
            yield first, "samples", "01"
            yield "default", "goodput", "0"
        for preset in ("default", "pollux", "sia"):
            yield preset, "samples", "0"
    for preset, seeds in ((first, "01"), *((other, "0") for other in others)):
        # under these two the speed of a gang follows from the duration of its job
        yield preset, "deadlines" if preset in ("lucid", "elasticflow") else usual, seeds
    if policy == "chronus":
        yield "chronus_elasticflow", usual, "01"
    if policy.startswith("lucid"):
        for world in ("pairs", "profiler", "estimated"):
            yield "default", world, "01"
    if policy == "quotas":
        for world in ("entities", "users"):
            yield "default", world, "01"
        yield "lucid", "entities", "0"
    yield "default", "training", "0"
    for world in (
        ("prices", "window", "spread", "whole") if policy in ("fcfs", "srtf", "tiresias", "sia") else ["prices"]
    ):
        yield "default", world, "1"


def _of_shares(policy: str, usual: str) -> Iterator[tuple[str, str, str]]:
    packs = usual == "pairs" or policy == "gandiva"
    if policy == "shockwave":
        yield "shockwave", "training", "01"
        yield "shockwave_published", "training", "01"
    yield "gavel", usual, "01"
    yield "default", "ideal_pairs" if packs else "ideal", "01"
    yield "default", "idle_pairs" if packs else "idle", "0"
    yield "shockwave", "training", "0"
    yield "default", "training", "1"
    yield "sia", usual, "1"
    yield "default", "prices", "1"
    if packs or policy == "fifo_packed":
        yield "default", "estimated", "01"
    if "water_filling" in policy:
        yield "default", "entities", "01"
        yield "gavel", "entities", "0"
        yield "default", "users", "1"
    if "cost" in policy:
        yield "default", "prices", "0"
        yield "gavel", "prices", "01"
        yield "default", "ideal_prices", "01"
    if policy in ("max_min_fairness_perf", "fifo_perf", "isolated_plus"):
        for preset in PUBLISHED:
            yield preset, usual, "0"
        for world in ("window", "saturated", "spread", "whole"):
            yield "default", world, "1"
    if policy in ("max_sum_throughput_perf", "finish_time_fairness_perf", "shockwave"):
        yield "sia", "samples", "0"
        yield "default", "samples", "0"


def _case(variant: str, preset: str, world: str, seed: str, tier: str = "exhaustive") -> Case:
    policy, _, settings = variant.partition(":")
    trace, cluster, options = OF_WORLD[world]
    if policy in ON_ONE_TYPE and cluster is THREE_TYPES:
        cluster = ONE_TYPE
    arguments = ["--trace", f"{WORLDS}/{trace}-{seed}.csv", "--policy", variant, "--preset", preset, "--seed", seed]
    arguments += [*cluster, *(word.replace("%", seed) for word in options)]
    line = door.simulate_line(arguments)
    name = f"{preset}-{world}-{seed}{settings and f'-{settings}'}"
    return Case(f"policies/{policy}", name, line, partial(taken, arguments), tier)


def taken(arguments: list[str]) -> Taken:
    """What a run leaves behind: jobs.csv as it is, figures of the summary, digests of the other tables."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        refused = door.simulate(arguments, folder)
        if refused is not None:
            return Taken({"refused": refused})
        tables = door.tables(folder)
        digests = {table: digest(rows) for table, rows in tables.items()}
        return Taken({"jobs.csv": door.jobs_text(folder), "summary": door.summary(folder), "tables": digests}, tables)


def cases() -> list[Case]:
    found = []
    names = door.policy_names()
    for policy in names:
        runs = dict.fromkeys(
            (*run, seed) for *run, seeds in _of_policy(policy) for seed in seeds[: 1 if policy in DEAR else 2]
        )
        daily = [next(iter(runs))]
        if policy in ENTITLED:
            daily = [run for run in runs if run[0] == "default" and run[1] in ("entities", "prices") and run[2] == "0"]
        elif policy in DEAR or f"{policy}_perf" in names:
            daily = []
        for *run, seed in runs:
            again = seed == "1" and (*run, "0") in runs
            own = run[0] in ("default", "gavel") or policy.startswith(run[0]) or policy in IN_ALL_WORLDS
            rare = "deep" if again or not own else "exhaustive"
            found.append(_case(policy, *run, seed, "" if (*run, seed) in daily else rare))
        found += [
            _case(variant, "default", world, "0") for variant, world in VARIANTS if variant.partition(":")[0] == policy
        ]
    return found
