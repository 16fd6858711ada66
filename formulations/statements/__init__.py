"""Every program as its paper has it: variables, constraints and objective in cvxpy, to be read and to be solved.

Nothing here is fast, and nothing is proven; the other rooms solve the same programs with a certificate, and tests hold
the two beside each other. `shares` has the policies over shares of time, with pairs and without; `planning` those that
plan rounds, leases and deadlines; `selections` those that choose a configuration, a place in line or a partner.

Each function returns a `cvxpy.Problem`; its variables have names (``problem.var_dict["x"]``). Linear programs are taken
by HiGHS and Clarabel, cones by Clarabel, ECOS and SCS, whole variables by HiGHS; CBC takes what cvxpy makes for that
(`get_problem_data`).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Cvxpy:
    """Loaded when it is needed; its re-exports are not visible to type checkers."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("cvxpy"), name)


cp: Any = _Cvxpy()
