"""Jobs that change as they train: studies after P. Zheng et al., NSDI 2023.

Figures of the paper are those of its artifact, in simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.figures.comparison import pareto_front
from benchmarks.findings.words import compared, few, listed, paired, plus_minus, sentence

if TYPE_CHECKING:
    import pandas as pd

HOUR, PERCENT = 3600.0, 0.01
OWN = "Shockwave"
UNFAIR, RHO = "unfair_fraction_static", "worst_rho_static"


def shockwave_canonical(results: pd.DataFrame) -> list[str]:
    """Seven policies on 120 jobs.

    Parameters
    ----------
    results : with a column ``label``, the paper's name of the policy, as in all studies of this kind.
    """
    second = _next(results, UNFAIR)
    unfair = paired(results, value=UNFAIR, series="label", first=OWN, second=second, unit=PERCENT)
    return [
        sentence(
            f"{OWN} treats {plus_minus(unfair.first)} % of the jobs unfairly (rho above 1.05), "
            f"{_rank(results, UNFAIR)}; "
            f"{'the next is' if unfair.means[0] < unfair.means[1] else 'the fewest are those of'} {second} with "
            f"{plus_minus(unfair.second)} % (means over {few(len(unfair.first))} draws of jobs, 95 % intervals)"
        ),
        _against_best(results, "makespan", HOUR, "h", "makespan"),
        _against_best(results, "average_jct", HOUR, "h", "average JCT"),
        _against_best(results, RHO, 1.0, "", "worst rho"),
        sentence(f"no policy is better in all four figures in any draw{_but_for(_beaten(results))}"),
        "The artifact's own run on the draw of seed 25 has 5.0 % of unfair jobs beside 22.5 % under Themis, a "
        "makespan of 6.72 h beside 6.72 h under OSSP, and an average JCT of 2.77 h beside 2.68 h under MST.",
    ]


def _others(results: pd.DataFrame, value: str) -> pd.Series:
    """Means of the other policies, the least first."""
    return results[results["label"] != OWN].groupby("label", sort=False)[value].mean().sort_values(kind="stable")


def _next(results: pd.DataFrame, value: str) -> str:
    return str(_others(results, value).index[0])


def _rank(results: pd.DataFrame, value: str) -> str:
    own = results[results["label"] == OWN][value].mean()
    better = int((_others(results, value) < own).sum())
    return "the fewest of all policies" if better == 0 else f"{few(better)} of the other policies having fewer"


def _against_best(results: pd.DataFrame, value: str, unit: float, name: str, figure: str) -> str:
    """How Shockwave stands to the best other policy in a figure of which less is better."""
    best = _next(results, value)
    pair = paired(results, value=value, series="label", first=OWN, second=best, unit=unit)
    words = compared(*pair.means, more="above", less="below")
    where = f"{words} that of {best}" if "same" not in words else f"about the same as that of {best}"
    shown = f"{pair.means[0]:.2f} and {pair.means[1]:.2f} {name}".strip()
    return sentence(f"its {figure} is {where}, the best of the others ({shown}), and so {pair.agreement()}")


def _beaten(results: pd.DataFrame) -> list[str]:
    """Policies that are better than Shockwave in all four figures in some draw, with the draws."""
    values = ["makespan", "average_jct", RHO, UNFAIR]
    found: dict[str, int] = {}
    for _, rows in results.groupby("seed"):
        table = rows.set_index("label")[values]
        for name in table.index[(table < table.loc[OWN]).all(axis=1)]:
            found[str(name)] = found.get(str(name), 0) + 1
    return [f"{name} in {few(count)}" for name, count in found.items()]


def _but_for(parts: list[str]) -> str:
    return f" but {listed(parts)}" if parts else ""


def shockwave_contention(results: pd.DataFrame) -> list[str]:
    """The same jobs on fewer GPUs; `results` has ``label`` and ``contention``, jobs per GPU."""
    least, most = (results[results["contention"] == at] for at in _ends(results["contention"]))
    low, high = _ends(results["contention"])
    second = _next(most, UNFAIR)
    pair = paired(most, value=UNFAIR, series="label", first=OWN, second=second, unit=PERCENT)
    easy = least[least["label"] == OWN][UNFAIR].mean() / PERCENT
    spreads = [_spread(rows, "average_jct") for rows in (least, most)]
    return [
        sentence(
            f"at {high:g} jobs per GPU {OWN} treats {plus_minus(pair.first)} % of the jobs unfairly, "
            f"{_rank(most, UNFAIR)}, and {second}, the best of the others, {plus_minus(pair.second)} % (means over "
            f"{few(len(pair.first))} draws of jobs, 95 % intervals)"
        ),
        sentence(f"at {low:g} jobs per GPU it is {easy:.1f} %, {_rank(least, UNFAIR)}"),
        sentence(
            f"between the policies with the longest and the shortest average JCT lie {spreads[0]:.0f} % at {low:g} "
            f"jobs per GPU and {spreads[1]:.0f} % at {high:g}"
            + (": the more jobs wait, the more it matters which" if spreads[1] > spreads[0] else "")
        ),
        _against_best(most, "makespan", HOUR, "h", f"makespan at {high:g} jobs per GPU"),
        _against_best(most, "average_jct", HOUR, "h", f"average JCT at {high:g} jobs per GPU"),
        "The paper varies contention on 14 GPUs (figure 16); its results are not in the public artifact.",
    ]


def _ends(figures: pd.Series) -> tuple[float, float]:
    return float(figures.min()), float(figures.max())


def _spread(rows: pd.DataFrame, value: str) -> float:
    """How far the largest mean of a policy is above the smallest, per cent."""
    means = rows.groupby("label")[value].mean()
    return float(100.0 * (means.max() / means.min() - 1.0))


def shockwave_scale(results: pd.DataFrame) -> list[str]:
    """Larger clusters; `results` has ``label`` and ``gpus``."""
    sizes = sorted(results["gpus"].unique())
    largest = results[results["gpus"] == sizes[-1]]
    second = _next(largest, UNFAIR)
    pair = paired(largest, value=UNFAIR, series="label", first=OWN, second=second, unit=PERCENT)
    fewest = [size for size in sizes if _rank(results[results["gpus"] == size], UNFAIR).startswith("the fewest")]
    rho = {int(size): results[(results["gpus"] == size) & (results["label"] == OWN)][RHO].mean() for size in sizes}
    seconds = largest.groupby("label")["cpu_seconds"].mean()
    return [
        sentence(
            f"{OWN} has the fewest unfair jobs on {few(len(fewest))} of {few(len(sizes))} clusters; on {sizes[-1]} "
            f"GPUs it treats {plus_minus(pair.first)} % of the jobs unfairly and {second} {plus_minus(pair.second)} % "
            f"(means over {few(len(pair.first))} draws of jobs, 95 % intervals)"
        ),
        _against_best(largest, "makespan", HOUR, "h", f"makespan on {sizes[-1]} GPUs"),
        _against_best(largest, "average_jct", HOUR, "h", f"average JCT on {sizes[-1]} GPUs"),
        sentence(
            f"its worst rho is {listed(f'{figure:.2f} on {size} GPUs' for size, figure in rho.items())}"
            + (": the more jobs there are, the worse the worst of them fares" if _rising(rho) else "")
        ),
        sentence(
            f"a simulation of {sizes[-1]} GPUs costs {seconds[OWN]:.1f} s of processor time under {OWN}, which plans, "
            f"and {seconds.drop(OWN).median():.1f} s under the median of the others"
        ),
        "The paper compares the same four figures on 64, 128 and 256 GPUs (figure 9); its results are not in the "
        "public artifact.",
    ]


def _rising(figures: dict[int, float]) -> bool:
    return list(figures.values()) == sorted(figures.values())


def shockwave_tradeoff(means: pd.DataFrame) -> list[str]:
    """The planner's two weights.

    Parameters
    ----------
    means : over draws, a row for each policy and combination of weights, with ``label``, ``draws``, ``makespan`` and
        ``average_jct`` (hours), ``unfair`` (per cent) and ``unfair_width``, its half width, ``k`` and ``exponent`` (as
        text), the smallest first.
    """
    own, others = means[means["label"] == OWN], means[means["label"] != OWN]
    front = own.iloc[pareto_front(own[["makespan", "unfair"]])]
    ends = f"{few(len(front))} of {few(len(own))} combinations of k and lambda"
    spans = own.groupby("k", sort=False)["makespan"].mean()
    fairness = own.groupby("exponent", sort=False)["unfair"].mean()
    fewest, best = others.loc[others["unfair"].idxmin()], own.loc[own["unfair"].idxmin()]
    better = int((own["unfair"] < fewest["unfair"]).sum())
    distance, width = float(own["unfair"].max() - own["unfair"].min()), float(own["unfair_width"].median())
    return [
        sentence(
            f"{ends} are on the front of makespan and unfair jobs, from {front['makespan'].min():.2f} h with "
            f"{front['unfair'].max():.1f} % to {front['makespan'].max():.2f} h with {front['unfair'].min():.1f} % "
            f"(means over {few(int(own['draws'].min()))} draws of jobs)"
        ),
        sentence(
            f"with k = {spans.index[-1]} the makespan is {spans.iloc[-1]:.2f} h and with k = {spans.index[0]} "
            f"{spans.iloc[0]:.2f} h, mean over lambda: "
            f"{compared(spans.iloc[-1], spans.iloc[0], more='longer', less='shorter')}"
        ),
        sentence(
            f"with lambda = {fairness.index[-1]} {fairness.iloc[-1]:.1f} % of the jobs are treated unfairly and with "
            f"lambda = {fairness.index[0]} {fairness.iloc[0]:.1f} %, mean over k"
        ),
        sentence(
            f"among the other policies {fewest['label']} has the fewest unfair jobs, {fewest['unfair']:.1f} %; "
            f"{few(better)} of the {few(len(own))} combinations have fewer, at best {best['unfair']:.1f} %"
        ),
        sentence(
            f"the 95 % interval of a combination's share of unfair jobs is \N{PLUS-MINUS SIGN} {width:.1f} points "
            f"(median), and all of them lie within {distance:.1f}: "
            + (
                "the draws differ from each other more than the weights do, and a single combination of the front is "
                "no recommendation"
                if width > distance / 2
                else "the weights matter more than the draws"
            )
        ),
        "The paper's configurations have k from 0.001 to 100,000 and lambda from 5 to 15, chosen by the size of the "
        "cluster.",
    ]


def shockwave_fairness_rows(results: pd.DataFrame) -> list[str]:
    """The rule of stage 1; `results` has ``rule``, ``forecast``, ``contention`` and ``variant`` ("as published" "
    "...)."""
    low, high = _ends(results["contention"])
    share = results.groupby(["rule", "contention"])["fair_plans"].mean() / PERCENT
    counts = results["seed"].nunique()
    rules = results[results["variant"].isin(["as published", "own finish", "off"])]
    moved = {variant: _largest_shift(rules, variant) for variant in ("own finish", "off")}
    causal = _largest_shift(results, "causal forecast")
    return [
        sentence(
            f"stage 1 finds a plan that is fair to everyone in {share['published', low]:.0f} % of its plans at {low:g} "
            f"jobs per GPU and in {share['published', high]:.0f} % at {high:g} as published, and in "
            f"{share['own finish', low]:.0f} and {share['own finish', high]:.0f} % if jobs are held to their own "
            f"finish (means over {few(counts)} draws of jobs and three forecasts)"
        ),
        sentence(
            f"whether it is asked, and how, moves the share of unfair jobs by at most {moved['own finish']:.1f} "
            f"percentage points with the other rule and {moved['off']:.1f} without any, at any load"
        ),
        sentence(
            f"a forecast that knows only the batch sizes seen so far moves it by up to {causal:.1f} points"
            + (
                ": what is known of the jobs matters more than the rule"
                if causal > max(moved.values())
                else ", no more than the rules do"
            )
        ),
        "Plans that are fair to everyone exist when few jobs are left and none is late; all priorities are 1 then, "
        "and stage 2 gives mostly the same rounds without being told to."
        if max(moved.values()) < 1.0
        else "",
        "The paper describes the published rule (section 5) and has no figure of it.",
    ]


def _largest_shift(results: pd.DataFrame, variant: str) -> float:
    """Largest difference of the mean share of unfair jobs from the published variant over the cases, in points."""
    means = results.groupby(["case", "variant"])[UNFAIR].mean().unstack("variant") / PERCENT
    return float((means[variant] - means["as published"]).abs().max())
