"""No source on the way from input to results calls what depends on the processor."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROCESSOR_DEPENDENT = {
    *("dot", "vdot", "inner", "matmul", "vecdot", "tensordot", "linalg", "cov", "corrcoef", "polyfit"),
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "logaddexp", "power", "float_power", "cbrt"),
    *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "argpartition"),
}
"""Functions of NumPy: BLAS and LAPACK, and those that have other last digits where there are other instructions."""

ALLOWED = {
    "allocator/audit/properties.py": "a sparse matrix, multiplied by SciPy's own loops",
    "formulations/columns/engines.py": "a sparse matrix",
    "formulations/columns/objectives.py": "sparse matrices, multiplied by SciPy's own loops",
    "formulations/columns/solver.py": "a sparse matrix",
    "formulations/columns/written.py": "sparse matrices",
    "allocator/published/gavel/packed.py": "a sparse matrix",
    "formulations/composed/expressions.py": "sparse matrices, multiplied by SciPy's own loops",
    "formulations/composed/program.py": "sparse matrices and expressions",
    "formulations/deadlines/program.py": "a sparse matrix",
    "allocator/report/svg.py": "pixels of a picture",
    **dict.fromkeys(
        (f"formulations/statements/{name}.py" for name in ("planning", "selections", "shares")), "statements in cvxpy"
    ),
}


_WORTH_READING = re.compile(rf" @ |scipy\.linalg|\bnp\.({'|'.join(PROCESSOR_DEPENDENT)})\b")


def calls(path: Path) -> Iterator[tuple[int, str]]:
    if not _WORTH_READING.search(path.read_text()):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            yield node.lineno, "@"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "np":
            if node.attr in PROCESSOR_DEPENDENT:
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom) and node.module == "scipy.linalg":
            yield node.lineno, node.module


def test_no_source_calls_what_depends_on_the_processor() -> None:
    found = []
    for package in ("throughputs", "formulations", "allocator"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name, lines = path.relative_to(ROOT).as_posix(), path.read_text().splitlines()
            if name not in ALLOWED:
                found += [
                    f"{name}:{line}: {what}"
                    for line, what in calls(path)
                    if "np.linalg.LinAlgError" not in lines[line - 1]
                ]
    assert not found


def test_what_is_allowed_is_needed() -> None:
    for name in ALLOWED:
        assert list(calls(ROOT / name)), name
