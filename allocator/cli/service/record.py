"""``allocator record``: what a service did, in the files that simulations write, and beside a simulation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from allocator.cli.options.shared import JsonOption, TableOption, console, print_json
from allocator.cli.service.options import StateOption
from allocator.report.figures import Rows
from allocator.report.html import write_report
from allocator.report.terminal import comparison_table
from allocator.results.output import save_result
from allocator.runtime.recorded import THROUGHPUTS_FILE, RecordedRun, caveats, compared, preset_of, simulated
from allocator.runtime.records.journal import ReadOnlyJournal
from throughputs import read_table, write_table, write_trace
from throughputs.files import JsonObject, write_json


def record_command(
    state: StateOption,
    out: Path,
    throughputs: TableOption = None,
    simulate: bool = True,
    as_json: JsonOption = False,
) -> None:
    """Turn what a service did into the results of a run: of one that runs, or has run.

    Writes summary.json, jobs.csv, rounds.parquet and timeline.parquet as `simulate` does, the jobs in trace.csv and the
    throughputs as they were measured in throughputs.csv. The same jobs are then simulated under the same policy on the
    same cluster, with restarts that cost what they did: in DIR/simulated, with report.html and comparison.json. Of a
    service whose policy, settings or GPUs changed, or whose jobs are not through, this says so, and gives no errors of
    figures that mean nothing then.

    Parameters
    ----------
    out : DIR
        Folder for the results.
    simulate : --simulate/--no-simulate
        Simulate the same jobs, and compare.
    """
    known = throughputs or state / THROUGHPUTS_FILE
    table = read_table(known) if throughputs or known.exists() else None
    run = RecordedRun(ReadOnlyJournal(state).events(), table)
    chosen = preset_of(run)
    told = chosen.as_dict() | {"recorded": True, "seed": run.run.get("seed", 0), "trace": f"recorded from {state}"}
    result = run.result(told | {"policy_settings": run.run.get("policy_settings", {})})
    summary = save_result(result, out)
    write_trace(run.trace, out / "trace.csv")
    write_table(run.table, out / "throughputs.csv")
    if not simulate:
        if as_json:
            print_json(summary)
            return
        _show([summary], "Recorded run")
        console().print(f"Results in {out}/", soft_wrap=True)
        return
    other = simulated(run, chosen)
    beside = save_result(other, out / "simulated")
    comparison = compared(result, other, caveats(run))
    write_json(out / "comparison.json", comparison)
    names = [f"{run.book.policy}, {kind}" for kind in ("real", "simulated")]
    summaries = [one | {"policy": name} for one, name in zip((summary, beside), names, strict=True)]
    said = [*comparison["caveats"], *_errors(comparison)]
    write_report(
        [replace(one, policy=name) for one, name in zip((result, other), names, strict=True)],
        out / "report.html",
        title="Simulated beside real",
        description="\n".join([*said, f"{len(run.trace)} jobs on {run.cluster.title}, recorded from {state}"]),
        summaries=summaries,
    )
    if as_json:
        print_json({"real": summary, "comparison": comparison})
        return
    _show(summaries, "Simulated beside real")
    for line in (*said, f"Results in {out}/, report: {out / 'report.html'}"):
        console().print(line, soft_wrap=True, markup=False)


def _show(summaries: Rows, title: str) -> None:
    screen = console()
    screen.print(comparison_table(summaries, title=title, width=screen.width))


def _errors(comparison: JsonObject) -> list[str]:
    """How far the simulation is off, in sentences."""
    far = [(one["figure"].replace("_", " "), one["error"]) for one in comparison["figures"]]
    told = [f"{name} {100 * error:+.1f} %" for name, error in far if error is not None]
    worst, mean = comparison["largest_absolute_error_of_jct"], comparison["mean_absolute_error_of_jct"]
    if worst is not None:
        told.append(f"completion times job by job {100 * mean:.1f} % on average and {100 * worst:.1f} % at most")
    off = [f"Errors of the simulation: {', '.join(told)}."] * bool(told)
    cost = f"A start cost {comparison['restart_seconds']:.2f} s on average, in the simulation too."
    return [*off, cost]
