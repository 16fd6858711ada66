"""The commands, put together."""

from __future__ import annotations

import typer

from allocator.cli import audit, compare, data, policies, simulate, solve, sweep, throughputs, trace

__all__ = ["app"]

app = typer.Typer(
    name="allocator",
    help="Scheduling policies for GPU clusters as programs over a throughput matrix: solve, simulate, compare.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("solve")(solve.solve_command)
app.command("audit")(audit.audit_command)
app.command("simulate")(simulate.simulate_command)
app.command("compare")(compare.compare_command)
app.command("policies")(policies.policies_command)
app.add_typer(trace.app, name="trace")
app.add_typer(throughputs.app, name="throughputs")
app.add_typer(data.app, name="data")
app.add_typer(sweep.app, name="sweep")
