"""What schedulers of goodput gain by what they may choose, what settings of Sia do, and what size does to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.findings.words import Paired, compared, few, paired, plus_minus, sentence

if TYPE_CHECKING:
    import pandas as pd

JCT, HOUR = "average_jct", 3600.0
ADAPTIVE, HALF, SCALE, RIGID = "all adaptive", "half rigid", "all scale GPUs", "all rigid"
PUBLISHED = "as published"


def goodput_adaptivity(results: pd.DataFrame) -> list[str]:
    """Jobs that leave all, a part or nothing to the scheduler, by cases of the study."""
    sia = results[results["policy"] == "sia"]
    all_of_it = _cases(sia, ADAPTIVE, RIGID)
    drawn = few(int(results["seed"].nunique()))
    return [
        sentence(
            f"where every job leaves GPUs and batch size to `sia` average JCT is "
            f"{plus_minus(all_of_it.first, digits=2, name='h')}, {_longer(all_of_it)} than where all are rigid, "
            f"{all_of_it.on_same_jobs(digits=2)}"
        ),
        sentence(
            f"with half of the jobs rigid, drawn at random, it is {_longer(_cases(sia, HALF, RIGID))} than with all of "
            f"them"
        ),
        sentence(
            f"with jobs that keep their batch size and leave the GPUs to `sia` JCT is "
            f"{_longer(_cases(sia, SCALE, RIGID))} beside rigid ones: they begin on one GPU, and may get at most twice "
            f"as many as they have run on, where rigid ones have all that they ask for from the start"
        ),
        sentence(
            f"under `pollux` the first of these figures is "
            f"{_longer(_cases(results[results['policy'] == 'pollux'], ADAPTIVE, RIGID))}"
        )
        if (results["policy"] == "pollux").any()
        else "",
        sentence(
            f"a run has {_mean(sia, ADAPTIVE, 'preemptions'):.0f} preemptions where all jobs are adaptive and "
            f"{_mean(sia, RIGID, 'preemptions'):.0f} where all are rigid: each is a start that jobs pay for (means "
            f"over {drawn} draws of jobs)"
        ),
    ]


def goodput_sia(results: pd.DataFrame) -> list[str]:
    """The power of Sia's objective, and the time between its decisions, by cases of the study."""
    powers = [case for case in dict.fromkeys(results["case"]) if case.startswith("power")]
    rounds = [case for case in dict.fromkeys(results["case"]) if case.startswith("every")]
    pairs = {case: _cases(results, case, PUBLISHED) for case in (*powers, *rounds)}
    slowest = max(rounds, key=lambda case: pairs[case].means[0])
    usual = pairs[slowest].second
    best = min(powers, key=lambda case: pairs[case].means[0])
    better = pairs[best].means[0] < pairs[best].means[1]
    said = ", ".join(f"{_longer(pairs[case])} with {case}" for case in powers)
    others = [case for case in rounds if case != slowest]
    return [
        sentence(
            f"average JCT is {_longer(pairs[slowest])} with decisions {slowest} than with one every 60 s "
            f"({plus_minus(usual, digits=2, name='h')}), {pairs[slowest].on_same_jobs(digits=2)}: a job that arrives "
            f"waits for the next decision, and grows at decisions only"
        ),
        sentence("beside one every 60 s it is " + ", ".join(f"{_longer(pairs[case])} {case}" for case in others))
        if others
        else "",
        sentence(
            f"beside the power -0.5 it is {said}; "
            + (f"{best} is the best on these draws" if better else "-0.5 is the best on these draws")
        ),
        sentence(
            f"preemptions in a run: {_mean(results, PUBLISHED, 'preemptions'):.0f} as published, "
            f"{_mean(results, slowest, 'preemptions'):.0f} with decisions {slowest}"
        ),
        "The paper reports 12 % longer JCT with rounds of 300 s beside 60 s on three types of GPU, and -0.5 as the "
        "best power (SOSP 2023, section 5).",
    ]


def goodput_scale(results: pd.DataFrame, decisions: pd.DataFrame) -> list[str]:
    """Clusters of several sizes with jobs in proportion.

    Parameters
    ----------
    results : of the sweep, with a column ``gpus``.
    decisions : of `benchmarks.goodput.measure_sizes`.
    """
    small, large = results["gpus"].min(), results["gpus"].max()
    sizes = {gpus: results[results["gpus"] == gpus] for gpus in (small, large)}
    jct = {gpus: paired(rows, value=JCT, series="policy", first="sia", second="pollux", unit=HOUR)
           for gpus, rows in sizes.items()}  # fmt: skip
    seconds = decisions.groupby(["policy", "gpus"])["decision_seconds"].mean()
    least, most = decisions["gpus"].min(), decisions["gpus"].max()
    slowest = max(dict.fromkeys(decisions["policy"]), key=lambda name: seconds[name, most])
    return [
        sentence(
            f"a decision of `sia` about {most // 2:,} jobs on {most:,} GPUs takes "
            f"{1000 * seconds['sia', most]:.0f} ms of processor time, "
            f"{seconds['sia', most] / seconds['sia', least]:.1f} times that about {least // 2:,} jobs on {least:,} GPUs"
        ),
        sentence(
            f"the slowest there is `{slowest}` with {1000 * seconds[slowest, most]:.0f} ms; `pollux` takes "
            f"{1000 * seconds['pollux', most]:.0f} ms, by a program in the place of its genetic search, and total "
            f"throughput (`max_sum_throughput_perf`), which chooses no GPUs, "
            f"{1000 * seconds['max_sum_throughput_perf', most]:.1f} ms"
        ),
        sentence(
            f"average JCT under `sia` is {plus_minus(jct[large].first, digits=2, name='h')} on {large} GPUs and "
            f"{plus_minus(jct[small].first, digits=2, name='h')} on {small}, with as many jobs for each GPU (draws "
            f"of other numbers of jobs are other draws)"
        ),
        sentence(
            f"on {large} GPUs JCT under `sia` is {_longer(jct[large])} than under `pollux`, "
            f"{jct[large].on_same_jobs(digits=2)}"
        ),
        "The paper reports a median of 0.1 s for Sia and 2.2 s for Pollux on 64 GPUs, and of about 1 s and a hundred "
        "times that on 2,048 (SOSP 2023, section 5).",
    ]


def _cases(rows: pd.DataFrame, first: str, second: str) -> Paired:
    """JCT in hours of two cases on the same jobs."""
    return paired(rows, value=JCT, series="case", first=first, second=second, unit=HOUR)


def _longer(pair: Paired) -> str:
    return compared(*pair.means, more="longer", less="shorter")


def _mean(rows: pd.DataFrame, case: str, value: str) -> float:
    return float(rows.loc[rows["case"] == case, value].mean())
