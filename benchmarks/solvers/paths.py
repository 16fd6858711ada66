"""Our own paths: reduce, solve, prove and choose."""

from __future__ import annotations

from benchmarks.solvers.registry import DeclinedError, Outcome, Problem, Program, Solve, path
from throughputs import InputError


def own(problem: Problem, solver: str) -> Solve:
    """The decision through `formulations`, with the default choice among optima."""

    def solve(program: Program) -> Outcome:
        try:
            solution = problem.decision.solve(program.polytope, program.objective, solver=solver)
        except InputError as error:
            raise DeclinedError("this decision has other paths") from error
        phases = solution.phases
        return Outcome(
            solution.shares,
            solution.status,
            # further phases that a solution may tell of belong to the solve
            {
                "build": phases.get("build", 0.0),
                "solve": sum(seconds for name, seconds in phases.items() if name not in ("build", "choose")),
                "recover": phases.get("choose", 0.0),
            },
            solution,
            solution.solver,
            solution.iterations,
        )

    return solve


@path("auto", "auto (ours)", kind="own")
def auto(problem: Problem) -> Solve:
    """What users get."""
    return own(problem, "auto")


@path("structured", "structured (ours)", kind="own")
def structured(problem: Problem) -> Solve:
    """The interior point method on the structure, at any size."""
    return own(problem, "structured")


@path("prices", "prices (ours)", kind="own")
def prices(problem: Problem) -> Solve:
    """Responses to prices, then an interior point over the undecided jobs; declines few classes."""
    return own(problem, "prices")
