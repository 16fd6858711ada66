"""What CBC makes of a program that is feasible: its eight digits, and preprocessing that goes wrong."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from formulations.columns import ColumnProgram, Rows, Total, solve_columns
from formulations.reference.cbc import run_cbc
from throughputs import Configurations


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_a_later_objective_has_room_for_the_digits_that_the_solver_leaves_out(solver):
    """Thirds as CBC writes them are worth more than the optimum: with a row that asks for so much there is no point."""
    columns = Configurations(
        [0, 0, 0, 1, 1],
        [0, 0, 1, 0, 1],
        [1, 2, 1, 1, 4],
        [1.5, 0.0, 1.5, 3.0, 3.5],
        partner=[1, -1, 1, 2, -1],
        partner_rate=[2.0, 0.0, 2.0, 2.0, 0.0],
        jobs=range(3),
        pools=["a", "b"],
    )
    rows = Rows([[1, 1, -1, 1, 0], [1, 0, 0, 1, 1]], [-np.inf, -1.0], [1.0, 1.0])
    program = ColumnProgram(columns, [5, 5], rows=rows)
    goals = [Total(np.array([3.0, 5.0, 1.0, 5.0, -2.0])), Total(np.array([4.0, 5.0, 1.0, -2.0, -1.0]))]
    found = solve_columns(program, goals, solver=solver)
    assert [stage.objective for stage in found.stages] == pytest.approx([7.0, 7 / 3], abs=1e-6)


def test_a_point_that_does_not_keep_the_rows_gives_way_to_one_that_does():
    """CBC 2.10 calls (1, 1, 0) optimal, although the second row allows one of the two."""
    matrix = csr_array(np.array([[-1.0, 1.0, -1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 2.0], [0.0, 1.0, 1.0]]))
    rows = (np.array([-1.0, -np.inf, -np.inf, -np.inf]), np.array([0.0, 1.0, 2.0, 1.0]))
    cost, ones = np.array([0.0, 0.5, -1.0]), np.ones(3)
    found = run_cbc(matrix, cost, rows, lower=0 * ones, upper=ones, maximise=True, whole=ones.astype(bool))
    assert (matrix @ found.columns <= rows[1]).all()
    assert cost @ found.columns == 0.0
    assert found.proven
