"""Programs that their author states in cvxpy over the polytope: solved, and proven from the duals of their cones."""

from formulations.stated.program import SOLVERS, Statement, solve_stated

__all__ = ["SOLVERS", "Statement", "solve_stated"]
