"""Runs side by side: each is made and saved on its own, and what one of them raises is its result.

>>> from allocator.experiments.run import Run, sweep
>>> run = Run("static", "fifo", "v100:4", 10)
>>> [row["policy"] for row in compare(sweep(run, policy=["fifo", "srtf"])).summaries]
['fifo', 'srtf']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.cluster import Cluster, cluster_texts
from allocator.experiments.run import Materials, Run
from allocator.experiments.workloads import Workload
from allocator.presets import preset
from allocator.protocol.policy import Need, told
from allocator.recorded import beyond_cluster, recorded_schedule
from allocator.registry import policies_of_others
from allocator.report.figures import OFF, format_column, off_by, title_of
from allocator.report.page.seeds import Policies
from allocator.report.presentation import Presentation
from allocator.report.progress import Advance
from allocator.report.terminal import shown_policies
from allocator.results.measures.calibration import Calibration, answer
from allocator.results.outcomes import RECORDED
from allocator.results.output import save_result, summary_of
from allocator.results.result import SimulationResult
from allocator.results.shown import as_text
from allocator.simulator.engine import SimulationStalledError
from allocator.variants import folder_of, read_variants
from formulations import SolverError
from throughputs import InputError, Trace, trace_of
from throughputs.errors import one_of
from throughputs.goodput.trainings import Trainings
from throughputs.numerics import quotient
from throughputs.shown import escape, html_table
from throughputs.trace import ENDINGS

if TYPE_CHECKING:
    import pandas as pd

FAIR_SHARE_RUN = "isolated_plus"
"""Policy under which every job has its fair share; completion times of the others are also related to its run."""

CLUSTERS_HAVE = "slurm"
"""Policy that is taken for the one that the cluster of a log has, where it is among those compared."""

_MEANT = (InputError, OSError, SolverError, SimulationStalledError)
"""Errors that say to users what is wrong."""

Progress = Callable[[Sequence[str]], AbstractContextManager[Callable[[str], Advance | None]]]


@dataclass
class Compared:
    """What came of runs, in their order.

    Attributes
    ----------
    results, summaries : of those that came through; what was written is complete. A schedule that a trace records is
        ahead of those of its jobs.
    failed : of each of the others policy, label where it has one, status "failed", and the reason in status_detail.
    failures : the same as lines.
    notes : what one must know of recorded schedules, or why they are left out.
    calibration : how near the first policy, or ``slurm`` where it is among them, comes to the recorded schedule.
    answer : what follows for waiting, in up to three sentences; of jobs of a log.
    """

    results: list[SimulationResult] = field(default_factory=list)
    summaries: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    calibration: Calibration | None = None
    answer: str = ""

    @property
    def table(self) -> pd.DataFrame:
        """One row per run that came through: its seed and the plain figures of its summary."""
        import pandas as pd

        plain = [
            {k: v for k, v in row.items() if not isinstance(v, dict | list)} | {"seed": row["settings"].get("seed")}
            for row in self.summaries
        ]
        return pd.DataFrame(plain)

    @property
    def differences(self) -> list[dict[str, Any]]:
        """Paired differences of the policies from the first, where they ran with several seeds, as JSON has them."""
        return Policies.of(self.summaries).differences(self.summaries)

    def _repr_html_(self) -> str:
        policies = Policies.of(self.summaries)
        shown = Presentation.of(policies.summaries)
        columns = [format_column(figure, policies.summaries, policies.half_widths) for figure in shown.figures]
        table = html_table(["policy", *map(title_of, shown.figures)], zip(shown.names, *columns, strict=True))
        return table + "".join(f"<div>{escape(line)}</div>" for line in (*self.notes, *self.failures))

    def __str__(self) -> str:
        return as_text([*shown_policies(Policies.of(self.summaries)), *self.notes, *self.failures], width=200)


def compare(
    runs: Iterable[Run] | Trace | pd.DataFrame | str,
    cluster: Cluster | str | Mapping[str, int] | None = None,
    policies: Iterable[str] | str | None = None,
    *,
    out: str | Path | None = None,
    materials: Materials | None = None,
    progress: Progress | None = None,
    log: Callable[[str], None] | None = None,
    **about: Any,
) -> Compared:
    """Make runs, and set them side by side; or policies on the same jobs and cluster.

    Where a run is called "isolated_plus", completion times of the others are related to its own; where a trace says
    when its jobs began and ended, as job logs do, that schedule is among the results too: "recorded".

    >>> compared = compare(Run("static", policy, "v100:8", load=3) for policy in ("fifo", "isolated"))
    >>> [result.policy for result in compared.results]
    ['fifo', 'isolated']
    >>> trace = Trace(["a", "b"], [1, 1], [60.0, 30.0], [0.0, 0.0], duration=[60.0, 30.0])
    >>> compare(trace, "a100:1", "fifo,srtf").table[["policy", "average_jct"]].values.tolist()
    [['fifo', 255.0], ['srtf', 105.0]]

    Parameters
    ----------
    runs : the runs; or jobs, as `allocator.simulate` takes them, where `cluster` and `policies` are given.
    cluster : as `allocator.simulate` takes it.
    policies : names, each with settings of its own where wanted, as in ``"fifo,elasticflow:admission=repair"``.
    about : further fields of these runs, such as ``throughputs``, ``preset``, ``seed`` and ``settings``.
    out : folder in which each result is saved when it is there, under the name of its run, and with several seeds in
        a folder for each; None: nothing is written.
    materials : what the runs read; None: it is read now.
    progress : takes what runs of one seed are called, and gives callbacks for `allocator.simulate` by that.
    log : takes the tracebacks of errors that are not meant for users.

    Raises
    ------
    InputError
        A run that cannot be made, told before anything runs. Where no run of a seed comes through, the first error.
    """
    given: Any = runs
    if out is not None and Path(out).exists() and not Path(out).is_dir():
        raise InputError("compare", field="out", found=str(out), expected="a folder, or a name that is not taken")
    listed: list[Run] = list(given if cluster is None else _of_policies(given, cluster, policies, about))
    read = Materials.of(listed, check=False) if materials is None else materials
    for run in listed:
        run.make_policy()
    names = [(run.seed, run.title) for run in listed]
    if len(set(names)) < len(names):
        twice = next(title for place, (seed, title) in enumerate(names) if (seed, title) in names[:place])
        raise InputError("compare", field="name", found=twice, expected="a name of its own for each run of a seed")
    seeds, ran = list(dict.fromkeys(run.seed for run in listed)), Compared()
    for seed in seeds:
        some = [run for run in listed if run.seed == seed]
        place = None if out is None else Path(out) / (f"seed-{seed}" if len(seeds) > 1 else "")
        with (progress or _silent)([run.title for run in some]) as start:
            _add_seed(ran, some, read, place, start, log, f", seed {seed}" if len(seeds) > 1 else "")
    return ran


def _of_policies(
    jobs: Any,
    cluster: Cluster | str | Mapping[str, int],
    policies: Iterable[str] | str | None,
    about: Mapping[str, Any],
) -> Iterator[Run]:
    known = [each.name for each in fields(Run)]
    for name in about:
        if name not in known:
            raise InputError("compare", field=name, found="an unknown argument", expected=one_of(name, known))
    trace, (gpus, servers) = trace_of(jobs), cluster_texts(Cluster.of(cluster))
    usual = preset(about.get("preset", "default"))
    for variant in read_variants(policies or ()):
        settings = variant.typed_settings("policies", usual)
        run = Run("trace", variant.name, gpus, policy_settings=settings, gpus_per_server=servers, workload=trace)
        files = {name: str(value) for name, value in about.items() if isinstance(value, Path)}
        yield replace(run, name=variant.run_label or "", **{**about, **files})


@contextmanager
def _silent(_titles: Sequence[str]) -> Iterator[Callable[[str], Advance | None]]:
    yield lambda _title: None


def _add_seed(
    ran: Compared,
    runs: Sequence[Run],
    materials: Materials,
    out: Path | None,
    start: Callable[[str], Advance | None],
    log: Callable[[str], None] | None,
    which: str,
) -> None:
    """Make the runs of a seed, which `which` names where there are several, and add what came of them."""
    results, errors = dict[str, SimulationResult](), dict[str, Exception]()
    summaries: dict[str, dict[str, Any]] = {}
    recorded, notes = recorded_beside(runs[0], materials)
    ran.notes += [note for note in notes if note not in ran.notes]
    # The run that others are measured by comes first.
    for run in sorted(runs, key=lambda run: run.title != FAIR_SHARE_RUN):
        folder = None if out is None else out / folder_of(run.title)
        try:
            result = materials.simulate(run, progress=start(run.title))
            if recorded is not None:
                result.record.placed = recorded.record.placed
            _relate(result, results.get(FAIR_SHARE_RUN, result if run.title == FAIR_SHARE_RUN else None))
            summaries[run.title] = _kept(result, folder)
            results[run.title] = result
        except Exception as error:  # whatever a policy or a solver raises
            errors[run.title] = error
            if folder is not None:
                # a summary stands where a run is complete
                (folder / "summary.json").unlink(missing_ok=True)
            if log is not None and not isinstance(error, _MEANT):
                log(told(error, policies_of_others()))
    if not results:
        raise next(iter(errors.values()))
    told_of: list[dict[str, Any]] = []
    if recorded is not None:
        _relate(recorded, results.get(FAIR_SHARE_RUN))
        ran.results.append(recorded)
        told_of.append(_kept(recorded, None if out is None else out / RECORDED))
    _calibrate(ran, [run for run in runs if run.title in results], recorded, results, told_of)
    for run in runs:
        if run.title in results:
            ran.results.append(results[run.title])
            told_of.append(summaries[run.title])
        else:
            own = {"label": run.name} if run.name else {}
            reason = {"status": "failed", "status_detail": _reason(errors[run.title])}
            ran.failed.append({"policy": run.policy_class.name, **own, **reason})
            ran.failures.append(f"{run.name or run.policy_class.name}{which} failed: {reason['status_detail']}")
    for summary, shown in zip(told_of, Presentation.of(told_of).labels, strict=True):
        if shown != summary.get("label", summary["policy"]):
            summary["paper_label"] = shown
        if which:
            # a recorded schedule has no seed of its own: one row stands for all
            summary["settings"] = {"seed": runs[0].seed} | summary.get("settings", {})
    ran.summaries += told_of


def _calibrate(
    ran: Compared,
    runs: Sequence[Run],
    recorded: SimulationResult | None,
    results: Mapping[str, SimulationResult],
    summaries: Sequence[dict[str, Any]],
) -> None:
    """Say how near the policy that the cluster has comes to what was recorded, and what follows."""
    if not any(results[run.title].record.logged for run in runs):
        return
    first = next((run for run in runs if run.policy == CLUSTERS_HAVE), runs[0])
    if recorded is not None:
        ran.calibration = ran.calibration or Calibration.of(first.title, recorded.jobs, results[first.title].jobs)
        summaries[0][OFF] = off_by(results[first.title].summary(), recorded.summary())
    ordered = [first, *(run for run in runs if run is not first)]
    rows = [((in_words(run),), results[run.title].summary()) for run in ordered]
    ran.answer = ran.answer or answer(None if recorded is None else recorded.summary(), rows, ran.calibration)


def in_words(run: Run) -> str:
    """The policy of a run in a sentence."""
    told = ", which is told how long each job runs," if Need.LENGTHS in run.policy_class.needs else ""
    return f"under {run.title}{told}"


def recorded_beside(run: Run, materials: Materials) -> tuple[SimulationResult | None, list[str]]:
    """The schedule that the trace of a run records, if it does, and what one must know of it.

    None where it records nothing, where models of goodput say how fast jobs are, or where of no job it is known on
    which type it ran.
    """
    if isinstance(run.workload, Workload) and run.recorded is None:
        return None, []  # jobs that are drawn
    table, cluster = materials.speeds_of(run), run.gpus
    jobs = materials.jobs_of(run)(materials.n_jobs(run))
    if isinstance(table, Trainings) or np.isnan(jobs.recorded_end_seconds).all():
        return None, []
    try:
        result = recorded_schedule(
            jobs,
            cluster,
            table,
            preset=run.chosen,
            window=run.window,
            prices=materials.prices_of(run),
            entities=run.owners(jobs),
        )
    except InputError as error:
        return None, [f"the recorded schedule is left out: {error}"]
    notes = []
    if result.status_detail:
        notes.append(f"left out of the recorded schedule, and of all figures: {result.status_detail}")
    ends = Counter(str(ending).replace("_", " ") for ending in jobs.recorded_status.tolist() if ending)
    if told := ", ".join(f"{count:,} {ending}" for ending, count in ends.most_common() if ending != ENDINGS[0]):
        notes.append(
            f"as logged, of {len(jobs):,} jobs {told}: under every policy they end so when they have run as long"
        )
    notes += filter(None, [beyond_cluster(result)])
    return result, notes


def _kept(result: SimulationResult, folder: Path | None) -> dict[str, Any]:
    return summary_of(result) if folder is None else save_result(result, folder)


def _relate(result: SimulationResult, fair: SimulationResult | None) -> None:
    """Relate the completion times of a run to those of the run on fair shares, where there is one."""
    if fair is not None:
        times, fair_times = (run.jobs["jct"].to_numpy() for run in (result, fair))
        result.jobs["rho_isolated"] = quotient(times, fair_times, np.nan)


def _reason(error: Exception) -> str:
    """The reason in one line; with the kind of error where it is none that is meant for users."""
    said = " ".join(str(error).split())
    return said if isinstance(error, _MEANT) and not isinstance(error, OSError) else f"{type(error).__name__}: {said}"
