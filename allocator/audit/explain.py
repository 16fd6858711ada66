"""Why each job runs where it runs: its own exchange rate between types beside that of the prices."""

from __future__ import annotations

import numpy as np

from allocator.audit.case import Case
from allocator.audit.record import Explanation
from throughputs.arrays import Floats

_MOSTLY = 0.5
"""Part of its time from which a job is said to have its fastest type."""

_SOME = 1e-3
"""Share of time above which a job is said to run on a type."""

_AGREEMENT = 1e-3
"""Relative distance up to which exchange rates are taken for equal."""

_FREE = 1e-9
"""Part of the highest price below which a price is none."""


def agree(case: Case, prices: Floats) -> bool:
    """Whether every job is where prices (M,) send it.

    A job that has less than all of its time on its fastest type f, and runs on m, says that ``p_f / p_m`` is at least
    ``T_f / T_m``; prices of a program in which only few jobs count need not.
    """
    prices = _known(prices)
    if not (prices > 0).any():
        return False
    used = (case.time > _SOME) & (case.rates > 0)
    fastest = np.argmax(case.rates, axis=1)
    rows = np.arange(len(fastest))
    limited = case.time[rows, fastest] < 1.0 - _SOME
    # cross-multiplied, so that a free type is no division by 0
    left = prices[fastest][:, None] * case.rates
    right = prices[None, :] * case.rates[rows, fastest][:, None]
    return bool((left >= right * (1.0 - _AGREEMENT))[used & limited[:, None]].all())


def explain(case: Case, prices: Floats) -> tuple[Explanation, ...]:
    """One sentence per job, at prices (M,) per GPU."""
    if not case.labels:
        return ()
    useful = np.where(case.rates > 0, case.time, 0.0)
    fastest, mostly = np.argmax(case.rates, axis=1), np.argmax(useful, axis=1)
    rows, busy = np.arange(len(fastest)), useful.sum(axis=1)
    prices = _known(prices)
    with np.errstate(divide="ignore", invalid="ignore"):
        speedup = case.rates[rows, fastest] / case.rates[rows, mostly]
        exchange = prices[fastest] / prices[mostly]
    found = []
    for i, label in enumerate(case.labels):
        has = busy[i] > 1e-9
        names = case.accelerators[fastest[i]] if case.able[i] else "", case.accelerators[mostly[i]] if has else ""
        of_fastest, faster, worth = float(useful[i, fastest[i]]), float(speedup[i]), float(exchange[i])
        text = _sentence(str(label), *names, float(busy[i]), of_fastest, faster, worth)
        faster, worth = (faster, worth) if has else (np.nan, np.nan)
        found.append(Explanation(label, *names, of_fastest, faster, worth, text))
    return tuple(found)


def _known(prices: Floats) -> Floats:
    """The prices (M,) with 0 for none."""
    prices = np.nan_to_num(prices)
    return np.where(prices > _FREE * prices.max(initial=0.0), prices, 0.0)


def _sentence(
    job: str, fastest: str, mostly: str, busy: float, of_fastest: float, speedup: float, exchange: float
) -> str:
    if not fastest:
        return f"job {job} cannot run on any type of the cluster"
    if not mostly:
        return f"job {job} waits; it would be fastest on {fastest}"
    if fastest == mostly or of_fastest >= _MOSTLY * busy:
        return f"job {job} runs {busy:.0%} of the time, {of_fastest:.0%} on {fastest}, where it is fastest"
    faster = f"it gets {fastest}, {speedup:.1f} times as fast, {of_fastest:.0%} of the time"
    start = f"job {job} is slow on {mostly}: {faster}"
    if np.isnan(exchange):
        return f"{start}; neither type is short"
    if np.isinf(exchange):
        return f"{start}; {mostly} is not short, {fastest} is"
    if exchange >= speedup * (1 - 1e-6):
        return f"{start}; a {fastest}-hour is worth {exchange:.1f} {mostly}-hours to the others"
    return f"{start}, though a {fastest}-hour is worth only {exchange:.1f} {mostly}-hours to the others"
