"""What starts of jobs cost, and how many of them pay: hysteresis in the round mechanism."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.presets import preset
from benchmarks.findings.words import Paired, few, listed, paired, sentence

if TYPE_CHECKING:
    import pandas as pd

COST, PERCENT = "restart_penalty_seconds", 0.01
JCT, RHO, UNFAIR = "average_jct", "worst_rho", "unfair_fraction"
LESS_IS_BETTER = {
    JCT: "average JCT",
    "p99_jct": "p99 of JCT",
    "average_rho": "average rho",
    RHO: "worst rho",
    UNFAIR: "share of unfair jobs",
}
LITTLE = 2.0
"""Per cent of average JCT that another order of jobs is taken to explain."""


def restarts(results: pd.DataFrame) -> list[str]:
    """Hysteresis h of the default mechanism, in rounds, beside none.

    Parameters
    ----------
    results : of several loads the highest counts, and of what starts cost the least, the middle and the most.
    """
    rows = results[results["mean_interarrival_seconds"] == results["mean_interarrival_seconds"].min()]
    rows = rows.assign(h=rows["hysteresis_rounds"].map("{:g}".format))
    costs = sorted(rows[COST].unique())
    least, usual, dear = (rows[rows[COST] == cost] for cost in (costs[0], costs[len(costs) // 2], costs[-1]))
    cost = usual[COST].iloc[0]
    h, most = f"{preset('default').mechanism.hysteresis_rounds:g}", f"{rows['hysteresis_rounds'].max():g}"
    jct = _beside_none(usual, JCT, h)
    means = {policy: pair.means[0] / pair.means[1] for policy, pair in jct.items()}
    shorter = sum(int((pair.first < pair.second).sum()) for pair in jct.values())
    pairs = sum(len(pair.first) for pair in jct.values())
    free, expensive = (_changes(_beside_none(runs, JCT, h)) for runs in (least, dear))
    return [
        sentence(
            f"with h = {h} rounds, {_part(_beside_none(usual, 'preemptions', h))} of the preemptions are left and "
            f"average JCT is {_range(_changes(jct))}, where a start costs {cost:g} s ({few(len(jct))} policies, means "
            f"over {few(usual['seed'].nunique())} draws of jobs; JCT is shorter in {shorter} of {pairs} pairs of runs "
            "on the same jobs)"
        ),
        sentence(
            f"the gain is largest under `{min(means, key=means.__getitem__)}` and smallest under "
            f"`{max(means, key=means.__getitem__)}`; where a start costs {costs[-1]:g} s JCT is {_range(expensive)}, "
            f"and where it costs {costs[0]:g} s {_range(free)}"
            + (": what is gained is the starts, not another order of jobs" if max(map(abs, free)) < LITTLE else "")
        ),
        _fairness(usual, h),
        _beyond(usual, most),
        sentence(
            f"of {few(len(LESS_IS_BETTER))} figures ({listed(LESS_IS_BETTER.values())}) under each of the policies, "
            f"{_better_and_worse(usual, h)}, where a start costs {cost:g} s; h = {h} is that of the default preset"
        ),
        sentence(f"where it costs {costs[0]:g} s, {_better_and_worse(least, h)}{_more_unfair(least, h)}"),
        "The paper's mechanism (section 5) chooses jobs anew in every round, by the share that each is due over what "
        "it has received; like h = 0, it does not weigh that against a start.",
    ]


def _beside_none(rows: pd.DataFrame, value: str, h: str) -> dict[str, Paired]:
    """By policy a figure with this hysteresis, and without any, on the same jobs."""
    return {
        str(policy): paired(own, value=value, series="h", first=h, second="0")
        for policy, own in rows.groupby("policy", sort=False)
    }


def _changes(pairs: dict[str, Paired]) -> list[float]:
    """Of the means by policy, per cent."""
    return [100.0 * (pair.means[0] / pair.means[1] - 1.0) for pair in pairs.values()]


def _part(pairs: dict[str, Paired]) -> str:
    """What is left, by policy: ``35 to 67 %``."""
    left = [100.0 + change for change in _changes(pairs)]
    return f"{min(left):.0f} to {max(left):.0f} %"


def _range(changes: list[float]) -> str:
    """``1.4 to 5.5 % shorter``."""
    low, high = min(changes), max(changes)
    if low == high == 0.0:
        return "unchanged"
    if high < 0.0:
        return f"{-high:.1f} to {-low:.1f} % shorter"
    return f"{low:.1f} to {high:.1f} % longer" if low > 0.0 else f"from {-low:.1f} % shorter to {high:.1f} % longer"


def _fairness(rows: pd.DataFrame, h: str) -> str:
    unfair = _beside_none(rows, UNFAIR, h)
    fewer = sum(pair.means[0] < pair.means[1] for pair in unfair.values())
    moves = [move for move, _ in _moves(unfair)]
    rho = _beside_none(rows, RHO, h)
    aim = "finish_time_fairness_perf"
    ratio, alone = rho[aim].means
    return sentence(
        f"the share of unfair jobs (rho above 1.05) falls under {_of(fewer, len(unfair))} policies, {listed(moves)}, "
        f"and the worst rho of `{aim}`, which minimises it, "
        f"{'falls' if ratio < alone else 'rises'} from {alone:.2f} to {ratio:.2f}, {rho[aim].on_same_jobs('', 2)}"
    )


def _beyond(rows: pd.DataFrame, most: str) -> str:
    """What the most hysteresis does: fewer starts, and waiting for the leases of others."""
    shortest = rows.groupby(["policy", "h"])[JCT].mean().unstack("h").idxmin(axis=1)
    rho = _beside_none(rows, RHO, most)
    hurt = max(rho, key=lambda policy: rho[policy].means[0] / rho[policy].means[1])
    worst, before = rho[hurt].means
    return sentence(
        f"with h = {most} there are {_part(_beside_none(rows, 'preemptions', most))} of the preemptions, and JCT is "
        f"the shortest of all h under {_of(int((shortest == most).sum()), len(shortest))} policies, "
        + (
            f"but the worst rho of `{hurt}` rises from {before:.2f} to {worst:.2f}: short jobs wait for the long "
            "leases of others"
            if worst > 1.1 * before
            else "and no worst rho rises by more than a tenth"
        )
    )


def _better_and_worse(rows: pd.DataFrame, h: str) -> str:
    """How many means are better with hysteresis, and which are worse by more than draws explain."""
    better, count, worse = 0, 0, []
    for value, name in LESS_IS_BETTER.items():
        for policy, pair in _beside_none(rows, value, h).items():
            difference, half_width = pair.difference()
            better += difference < 0.0
            count += 1
            if difference > half_width:
                worse.append(f"the {name} of `{policy}`")
    verb = "are" if len(worse) > 1 else "is"
    return (
        f"{better} of {count} means are better than without and {listed(worse) if worse else 'none'} {verb} worse by "
        "more than draws differ by"
    )


def _more_unfair(rows: pd.DataFrame, h: str) -> str:
    """Where hysteresis has more unfair jobs, if anywhere."""
    risen = [move for move, pair in _moves(_beside_none(rows, UNFAIR, h)) if pair.means[0] > pair.means[1]]
    return f"; the share of unfair jobs rises {listed(risen)}" if risen else ""


def _moves(unfair: dict[str, Paired]) -> list[tuple[str, Paired]]:
    """Shares of unfair jobs by policy: ``from 68 to 19 % under `isolated```."""
    return [
        (f"from {pair.means[1] / PERCENT:.0f} to {pair.means[0] / PERCENT:.0f} % under `{policy}`", pair)
        for policy, pair in unfair.items()
    ]


def _of(count: int, total: int) -> str:
    """``all four``, ``both``, ``three of four``."""
    if count < total:
        return f"{few(count)} of {few(total)}"
    return "both" if total == 2 else f"all {few(total)}"
