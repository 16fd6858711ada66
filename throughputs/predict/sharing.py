"""How much a program presses on the GPU that it shares: its class, told from measured programs.

Lucid (Q. Hu et al., ASPLOS 2023) lets two jobs share GPUs where their classes, 0 (tiny), 1 (medium) and 2
(jumbo), do not add up to more than a limit. The class of a program that nobody has run beside others is predicted from
what a short run alone shows: use of the GPU and of its memory, and whether it computes in mixed precision.
"""

from __future__ import annotations

import numpy as np

from throughputs.arrays import Flags, Floats, Ints
from throughputs.errors import InputError
from throughputs.predict.models import check_model, fit_classes
from throughputs.predict.submissions import Columns, encoded

SHARING_CLASSES = ("tiny", "medium", "jumbo")
"""Classes 0, 1 and 2."""

_MEDIUM, _TINY = 0.85, 0.95
"""Speed retained in a pair from which a job is of class 1, and of class 0."""


def sharing_class(retained: Floats) -> Ints:
    """(K,) classes of programs by what they keep of their throughput beside others, on average.

    From 0.95 on 0 (tiny), from 0.85 on 1 (medium), below it 2 (jumbo), as in the public code of Lucid.
    """
    return np.where(retained >= _TINY, 0, np.where(retained >= _MEDIUM, 1, 2))


def predict_sharing(profiles: Columns, classes: Ints, known: Flags, model: str = "fast") -> Ints:
    """Classes of programs, those that are not known from those that are.

    Parameters
    ----------
    profiles : columns of K programs, as measured alone.
    classes : (K,) 0, 1 or 2 of those that are known; whatever the others hold is not looked at.
    known : (K,) whether the class is known.
    model : of `throughputs.predict.MODELS`.

    Returns
    -------
    (K,) classes; those that are known stay.

    Raises
    ------
    InputError
        No class is known, one is none of 0, 1 and 2, or the model is none or its package missing.
    """
    check_model(model)
    there = np.flatnonzero(known)
    if not len(there):
        raise InputError("classes", expected="at least one program whose class is known")
    wrong = there[~np.isin(classes[there], range(len(SHARING_CLASSES)))]
    if len(wrong):
        raise InputError("classes", line=int(wrong[0]) + 1, found=int(classes[wrong[0]]), expected="0, 1 or 2")
    result = np.array(classes, dtype=np.int64)
    seen, numbers = np.unique(classes[there], return_inverse=True)
    asked = np.flatnonzero(~known)
    if len(seen) == 1 or not len(asked):
        result[asked] = seen[0]
        return result
    columns = encoded(profiles, there, asked)
    fitted = fit_classes(model, columns.known, columns.categories, numbers)
    result[asked] = seen[np.argmax(_by_class(fitted.predict(columns.asked)), axis=1)]
    return result


def _by_class(probabilities: Floats) -> Floats:
    """(K, C) also where two classes have one column, that of the second."""
    return probabilities if probabilities.ndim == 2 else np.column_stack([1 - probabilities, probabilities])
