"""Linear expressions of shares, and the rows that comparisons of them make.

>>> import numpy as np
>>> x = Linear.variables((2, 3))
>>> row = np.array([300.0, 150.0]) @ x @ np.ones(3) <= 900.0
>>> row.matrix.toarray().tolist(), row.upper.tolist()
([[300.0, 300.0, 300.0, 150.0, 150.0, 150.0]], [900.0])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from formulations.arguments import Described
from throughputs import InputError
from throughputs.arrays import Floats, Positions


@dataclass(frozen=True, eq=False)
class Row:
    """Rows ``lower <= A x <= upper``, as a comparison of expressions states them.

    Attributes
    ----------
    matrix : A (R, V), sparse, over all shares.
    lower, upper : (R,) limits, -inf and inf for none.
    shape : of the comparison; R is its size.
    """

    matrix: Any
    lower: Floats
    upper: Floats
    shape: tuple[int, ...]

    @property
    def sign(self) -> str:
        """How the left side compares with the right one."""
        return "==" if (self.lower == self.upper).all() else "<=" if np.isfinite(self.upper).all() else ">="

    @property
    def limits(self) -> Floats:
        """(R,) the right side."""
        return self.lower if self.sign == ">=" else self.upper

    def __bool__(self) -> bool:
        expected = "two rows in place of a <= x <= b, and no row where a condition is meant"
        raise InputError("row", field="truth value", found=str(self), expected=expected)

    def __str__(self) -> str:
        return f"{self.matrix.shape[0]} rows {self.sign} ..."


class Linear:
    """An array of linear expressions of V shares; entry k, in C order, is ``A_k x + b_k``.

    Expressions are added, scaled by arrays, summed, indexed and multiplied by matrices as arrays of numbers are, with
    the same shapes; ``<=``, ``>=`` and ``==`` make rows.

    Parameters
    ----------
    matrix : A (K, V), sparse by rows.
    constant : b (K,).
    shape : with K entries.
    """

    # NumPy and pandas leave operators with arrays and tables to this class
    __array_ufunc__ = None
    __pandas_priority__ = 5000
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(self, matrix: Any, constant: Floats, shape: tuple[int, ...]) -> None:
        self.matrix, self.constant, self.shape = matrix, constant, shape

    @classmethod
    def variables(cls, shape: tuple[int, ...]) -> Linear:
        """The shares themselves."""
        from scipy.sparse import eye_array

        size = int(np.prod(shape))
        return cls(eye_array(size, format="csr"), np.zeros(size), shape)

    @property
    def T(self) -> Linear:
        """Transposed."""
        return self._at(self._positions.T)

    def sum(self, axis: int | None = None) -> Linear:
        """Sum of all entries, or along one axis."""
        if axis is None:
            return np.ones(self.constant.size) @ self._at(self._positions.ravel())
        if not -len(self.shape) <= axis < len(self.shape):
            raise _unfit("axis", axis, f"an axis of shape {self.shape}")
        return self._at(np.moveaxis(self._positions, axis, -1)) @ np.ones(self.shape[axis])

    def __getitem__(self, key: Any) -> Linear:
        return self._at(self._positions[key])

    def __neg__(self) -> Linear:
        return self * -1.0

    def __add__(self, other: Linear | ArrayLike) -> Linear:
        if not isinstance(other, Linear):
            other = self._number(other)
        shape = _broadcast(self.shape, other.shape)
        one, two = self._spread(shape), other._spread(shape)
        return Linear(one.matrix + two.matrix, one.constant + two.constant, shape)

    __radd__ = __add__

    def __sub__(self, other: Linear | ArrayLike) -> Linear:
        return self + (-other if isinstance(other, Linear) else -_numbers(other))

    def __rsub__(self, other: ArrayLike) -> Linear:
        return -self + other

    def __mul__(self, factor: ArrayLike) -> Linear:
        from scipy.sparse import diags_array

        numbers = _numbers(factor)
        spread = self._spread(_broadcast(self.shape, numbers.shape))
        each = np.broadcast_to(numbers, spread.shape).ravel()
        return Linear((diags_array(each) @ spread.matrix).tocsr(), each * spread.constant, spread.shape)

    __rmul__ = __mul__

    def __truediv__(self, divisor: ArrayLike) -> Linear:
        return self * (1.0 / _numbers(divisor))

    def __matmul__(self, right: ArrayLike) -> Linear:
        numbers = _numbers(right)
        if not self.shape or numbers.ndim not in (1, 2) or self.shape[-1] != len(numbers):
            raise _unfit("shapes", f"{self.shape} @ {numbers.shape}", "inner lengths that are equal")
        from scipy.sparse import csr_array, eye_array, kron

        wide = numbers[:, None] if numbers.ndim == 1 else numbers
        product = kron(eye_array(int(np.prod(self.shape[:-1]))), csr_array(wide.T), format="csr")
        constant: Floats = np.asarray(product @ self.constant)
        return Linear(product @ self.matrix, constant, (*self.shape[:-1], *numbers.shape[1:]))

    def __rmatmul__(self, left: ArrayLike) -> Linear:
        numbers = _numbers(left)
        if len(self.shape) not in (1, 2) or numbers.ndim not in (1, 2) or self.shape[0] != numbers.shape[-1]:
            raise _unfit("shapes", f"{numbers.shape} @ {self.shape}", "inner lengths that are equal")
        product = self.T @ numbers.T
        return product.T

    def __le__(self, other: Linear | ArrayLike) -> Row:
        return (self - other)._row(-np.inf, 0.0)

    def __ge__(self, other: Linear | ArrayLike) -> Row:
        return (self - other)._row(0.0, np.inf)

    def __eq__(self, other: Linear | ArrayLike) -> Row:  # type: ignore[override]
        return (self - other)._row(0.0, 0.0)

    def __lt__(self, other: object) -> Row:
        raise _unfit("comparison", "< or >", "<=, >= or ==, as rows hold at their limits too")

    __gt__ = __lt__

    if not TYPE_CHECKING:
        # with it mypy takes expressions for arrays
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise _unfit(
                "operand", str(self), "operators, @ and sum() of expressions in place of functions of NumPy or pandas"
            )

    def __str__(self) -> str:
        return f"linear expressions of shape {self.shape}"

    @property
    def _positions(self) -> Positions:
        return np.arange(self.constant.size).reshape(self.shape)

    def _at(self, positions: Positions | np.intp) -> Linear:
        flat = np.ravel(positions)
        return Linear(self.matrix[flat], self.constant[flat], np.shape(positions))

    def _spread(self, shape: tuple[int, ...]) -> Linear:
        return self if shape == self.shape else self._at(np.broadcast_to(self._positions, shape))

    def _number(self, value: ArrayLike) -> Linear:
        """Numbers as expressions without shares."""
        from scipy.sparse import csr_array

        numbers = _numbers(value)
        return Linear(csr_array((numbers.size, self.matrix.shape[1])), numbers.ravel(), numbers.shape)

    def _row(self, lower: float, upper: float) -> Row:
        matrix = self.matrix.tocsr()
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        return Row(matrix, lower - self.constant, upper - self.constant, self.shape)


def _numbers(value: Any) -> Floats:
    """Finite numbers; InputError for anything else, products of shares with each other included."""
    if isinstance(value, Linear):
        raise _unfit("factor", str(value), "numbers: a product of shares is not linear")
    try:
        numbers = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("row", field="operand", found=value, expected="numbers or an expression") from None
    if not np.isfinite(numbers).all():
        raise _unfit("operand", numbers[~np.isfinite(numbers)].item(0), "finite numbers")
    return numbers


def _broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(one, other)
    except ValueError:
        raise _unfit("shapes", f"{one} and {other}", "shapes that broadcast") from None


def _unfit(field: str, found: Any, expected: str) -> InputError:
    return InputError(
        "row", field=field, found=Described(found) if isinstance(found, str) else found, expected=expected
    )
