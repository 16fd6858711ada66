"""Solver backends: each takes a polytope and an objective and returns an unproven `Answer`.

What a backend is and needs is data; every backend takes every objective of this package, but where its description
names the one that it takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from formulations.core.objectives import Objective
from formulations.core.polytope import Polytope
from formulations.core.solution import Answer
from throughputs import InputError
from throughputs.errors import one_of


@dataclass(frozen=True)
class Backend:
    """One way to solve a program.

    Attributes
    ----------
    name : what users write for ``solver=``.
    module, function : where it is; imported at first use only.
    requires : packages it imports that are extras.
    install : how to get them.
    """

    name: str
    module: str
    function: str
    requires: tuple[str, ...] = ()
    install: str = ""

    @property
    def missing(self) -> tuple[str, ...]:
        """Packages that are not installed."""
        return tuple(package for package in self.requires if not _installed(package))

    def __call__(self, polytope: Polytope, objective: Objective) -> Answer:
        """What it finds, unproven; raises InputError when a package is missing."""
        if self.missing:
            raise InputError(
                "solver",
                field=self.name,
                found=f"no package {', '.join(self.missing)}",
                expected=f"it to be installed: {self.install}",
            )
        answer: Answer = getattr(import_module(self.module), self.function)(polytope, objective)
        return answer


@cache
def _installed(package: str) -> bool:
    """Looked up once: a package that was not imported yet is searched for on disk."""
    return find_spec(package) is not None


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        # levels of one type, and such as one job holds alone
        Backend("closed_form", "formulations.prices.closed_form", "solve"),
        # many classes: responses to prices, interior point over the undecided
        Backend("prices", "formulations.prices.search", "solve"),
        # interior point on the structure: M prices, a block per job class
        Backend("structured", "formulations.interior_point.structured", "solve"),
        # direct sparse linear programs in HiGHS, and in CBC
        Backend("highs", "formulations.reference.linear", "solve_highs"),
        Backend("cbc", "formulations.reference.linear", "solve_cbc"),
        # statements in cvxpy: interior points, and operator splitting of low accuracy
        Backend("clarabel", "formulations.reference.convex", "solve_clarabel"),
        Backend(
            "ecos", "formulations.reference.convex", "solve_ecos", ("ecos",), "pip install cluster-allocator[ecos]"
        ),
        Backend("scs", "formulations.reference.convex", "solve_scs"),
    )
}

AUTO = ("closed_form", "prices", "structured", "highs", "clarabel")
"""Backends that ``solver="auto"`` tries, in order, until one is proven to be within tolerance."""


def get_backend(name: str) -> Backend:
    """Backend by name; InputError with a suggestion otherwise."""
    if not isinstance(name, str) or name not in BACKENDS:
        raise InputError("solver", found=name, expected=one_of(name, ("auto", *BACKENDS)))
    return BACKENDS[name]


def in_order(solver: str) -> list[Backend]:
    """The backends that are asked in turn."""
    return [get_backend(name) for name in (AUTO if solver == "auto" else (solver,))]
