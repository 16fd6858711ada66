"""The conformance check of a policy: every property that it lacks, each with the smallest example that was found."""

from __future__ import annotations

import contextlib
import os
import tempfile
import traceback
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from allocator.cluster import Cluster
from allocator.protocol import Policy
from allocator.protocol.policy import checked_policy
from allocator.registry import get_policy
from allocator.results.result import SimulationResult
from allocator.simulator.engine import simulate
from allocator.testing.properties import PROPERTIES, BrokenError
from allocator.testing.worlds import World, for_one_type, table_for, trace_of
from throughputs.errors import expect_one_of

_SMALL_RUN = 5
"""Jobs of the simulation."""


class PolicyCheckError(AssertionError):
    """A policy lacks properties that every policy has; says which, and where that was seen."""


class _PutAwayError(Exception):
    """A simulation that is stopped on purpose."""


def check_policy(policy: Policy | type[Policy] | str, lacks: Collection[str] = ()) -> None:
    """Check that a policy does what every policy does.

    Its answers are shares of time in the polytope; they depend on the state alone, and there neither on the order of
    jobs nor on the unit in which steps are counted, and on how long jobs take only if it says so (`Need.LENGTHS`); it
    copes with no jobs, no GPUs, one job, and jobs that can run nowhere; what it calls optimal has a bound; a planner's
    memory can be saved; a small simulation ends, the same whether or not it was interrupted, and without anybody beyond
    its shares where GPUs are left idle on purpose. What a policy lacks by intent it says as class data
    (`relative_shares`, `in_order_of_rows`), or its author by `lacks`. One that refuses clusters with several types of
    accelerator is checked on one.

    Parameters
    ----------
    policy : a policy, its class, or its registered name.
    lacks : names of properties that it lacks by intent.

    Raises
    ------
    PolicyCheckError
        Lists every property that the policy lacks, each with the smallest example that was found.
    """
    if isinstance(policy, str):
        policy = get_policy(policy)
    elif isinstance(policy, type):
        policy = policy()
    checked_policy(policy)
    names = [each.name for each in PROPERTIES]
    for name in lacks:
        expect_one_of(name, names, "check_policy", "lacks")
    alike = for_one_type(policy)
    failures: dict[str, tuple[str, str]] = {}
    for each in PROPERTIES:
        for given in () if each.name in lacks else each.worlds:
            world = given.of_one_type if alike else given
            seen = _broken(partial(each.check, policy, world))
            if seen:
                failures[each.name] = seen, world.described(policy)
                break
    seen = _broken(partial(_simulates, policy, (World(_SMALL_RUN).of_one_type if alike else World(_SMALL_RUN)).cluster))
    if seen:
        failures["carries a small simulation to its end"] = seen, f"{_SMALL_RUN} jobs of about an hour each"
    if failures:
        count = "1 property" if len(failures) == 1 else f"{len(failures)} properties"
        raise PolicyCheckError(f"policy {policy.name} lacks {count} of {len(PROPERTIES) + 1}\n\n{_listed(failures)}")


def _broken(check: Callable[[], None]) -> str:
    """What is wrong; empty where nothing is."""
    try:
        check()
    except BrokenError as broken:
        return str(broken)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
    return ""


def _listed(failures: Mapping[str, tuple[str, str]]) -> str:
    """Each property with what was seen and where; what was seen before is not told again."""
    first: dict[str, str] = {}
    lines = []
    for name, (seen, where) in failures.items():
        if seen in first:
            lines.append(f"- {name}:\n    the same as under {first[seen]!r}")
            continue
        first[seen] = name
        indented = where.replace("\n", "\n      ")
        lines.append(f"- {name}:\n    {seen}\n    seen with {indented}")
    return "\n\n".join(lines)


def _simulates(policy: Policy, cluster: Cluster) -> None:
    """A run ends with every job completed or rejected, and the same when it was saved in between."""
    whole = _run(policy, cluster)
    status = whole.jobs["status"].astype(str)
    left = ~status.isin(["completed", "rejected"])
    if left.any():
        job = int(np.argmax(left))
        raise BrokenError(f"job {job} of the simulation is {status.iloc[job]} at its end")
    if whole.summary().exceeded_jobs:
        job = int(np.argmax(whole.record.ran_beyond_shares))
        had, promised = (float(whole.jobs[name].iloc[job]) for name in ("running_time", "promised_time"))
        raise BrokenError(f"job {job} had GPUs for {had:.0f} s where shares promised {promised:.0f} s and bind")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        with contextlib.suppress(_PutAwayError):
            _run(policy, cluster, path, stop_after=1)
        if not path.exists():
            return
        again = _run(policy, cluster, path)
    ends, expected = again.jobs["completion_time"].to_numpy(), whole.jobs["completion_time"].to_numpy()
    if not np.array_equal(ends, expected, equal_nan=True):
        raise BrokenError("a simulation that was saved and resumed ends otherwise: the policy keeps something itself")


def _run(
    policy: Policy, cluster: Cluster, checkpoint: os.PathLike[str] | None = None, stop_after: int | None = None
) -> SimulationResult:
    def progress(_clock: float, completed: int, _jobs: int) -> None:
        if stop_after is not None and completed >= stop_after:
            raise _PutAwayError

    return simulate(
        trace_of(_SMALL_RUN, 0, hours=1.0),
        cluster,
        policy,
        table_for(policy),
        checkpoint=checkpoint,
        checkpoint_every=1,
        resume=checkpoint is not None and stop_after is None,
        progress=progress,
    )
