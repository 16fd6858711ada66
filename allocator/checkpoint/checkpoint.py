"""Checkpoints: a run is saved in a file, and goes on from it as if it had never stopped.

A file holds plain numbers, texts and arrays (`allocator.checkpoint.state_file`): what run it belongs to, the state of
the world, and what was recorded so far. Nothing in it is executed. Still, a checkpoint is a working file of one machine
and one version, not a format for exchange.
"""

from __future__ import annotations

import hashlib
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.checkpoint.state_file import Part, StateFile
from allocator.cluster import Cluster
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Policy
from allocator.results.observers import Recorder
from allocator.simulator.truth import Truth
from throughputs import InputError, Trace
from throughputs.files import StrPath

if TYPE_CHECKING:
    from allocator.simulator.world import World
    from throughputs.prices import PriceTable


class Checkpoints:
    """Writes and reads the checkpoint of one run.

    Parameters
    ----------
    path : the file. It is replaced in one step, so that a run killed at any moment leaves a whole one.
    run : what the run is made of, from `identity`; a checkpoint of another one is refused.
    """

    def __init__(self, path: StrPath, run: dict[str, str]) -> None:
        self.path = Path(path)
        self.run = run
        self._file = StateFile(path)
        # What a run has recorded never changes: each stretch of it is encoded once and kept.
        self._recorded: list[Part] = []
        self._rounds = self._decisions = 0
        if not self.path.parent.is_dir():
            raise InputError("checkpoint", found=str(self.path), expected="a file in a folder that exists")
        self._file.read_header()  # what is there already and no checkpoint is neither replaced nor taken away

    def save(self, world: World, recorder: Recorder, seconds: float) -> None:
        """Replace the file by the state of the run after `seconds`; when this returns, it is on the disk."""
        outcomes, decisions = recorder.outcomes[self._rounds :], recorder.decisions[self._decisions :]
        self._recorded.append(Part.of({"outcomes": outcomes, "decisions": decisions}))
        self._rounds, self._decisions = len(recorder.outcomes), len(recorder.decisions)
        state = {"seconds": seconds, "jobs": len(world.jobs), "world": world.state()}
        self._file.write(self.run, state, self._recorded)

    def load(self, world: World, recorder: Recorder) -> float | None:
        """Bring a new `world` and `recorder` to where they were saved; returns the seconds spent until then.

        None if there is no file.

        Raises
        ------
        InputError
            The file is not a checkpoint, is damaged, or belongs to another run.
        """
        header = self._file.read_header()
        if header is None:
            return None
        for name, value in self.run.items():
            found = header.get(name)
            if found != value:
                raise InputError(
                    self.path, field=name, found=_short(found), expected=f"a checkpoint of this run: {_short(value)}"
                )
        saved = self._file.read()
        if saved is None:
            return None
        self._recorded = list(saved.parts)
        try:
            for part in self._recorded:
                tree = part.tree()
                recorder.outcomes += tree["outcomes"]
                recorder.decisions += tree["decisions"]
            last = recorder.decisions[-1][2] if recorder.decisions else None
            world.lengthen_to(saved.state["jobs"])
            world.restore(saved.state["world"], last)
            seconds = float(saved.state["seconds"])
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            found = f"a state that this version does not understand ({type(error).__name__}: {error})"
            raise InputError(self.path, found=found, expected="a checkpoint of this version") from error
        self._rounds, self._decisions = len(recorder.outcomes), len(recorder.decisions)
        return seconds

    def remove(self) -> None:
        """Take the file away, when the run is complete."""
        self._file.remove()


def identity(
    trace: Trace,
    jobs: JobTable,
    truth: Truth,
    cluster: Cluster,
    policy: Policy,
    settings: dict[str, Any],
    prices: PriceTable | None = None,
) -> dict[str, str]:
    """What a run is made of, part by part, as texts that are equal only for equal runs."""
    return {
        "version": f"{package_version()}, Python {platform.python_version()}, NumPy {np.__version__}",
        "policy": _policy_text(policy),
        "cluster": f"{cluster} with {json.dumps(dict(cluster.gpus_per_server))} per server",
        "prices": "none"
        if prices is None
        else _digest(*(prices.to_frame()[c] for c in ("accelerator", "time_seconds", "price"))),
        "trace": f"{len(trace)} jobs, " + _digest(*(getattr(trace, name) for name in Trace.column_names())),
        "throughputs": _digest(
            jobs.rates,
            np.zeros(0) if truth.spread_rates is None else truth.spread_rates,
            *(() if (pairs := jobs.colocation) is None else (pairs.group, pairs.alone, pairs.together)),
            *(() if (ways := jobs.configurations) is None else (ways.job, ways.pool, ways.gpus, ways.rate)),
        ),
    } | {f"setting {name}": json.dumps(value) for name, value in settings.items()}


def package_version() -> str:
    """The version of this package; "unknown" where it is not installed."""
    try:
        return version("cluster-allocator")
    except PackageNotFoundError:
        return "unknown"


def _policy_text(policy: Policy) -> str:
    """Name and settings. A policy that is no dataclass is known by its name and class alone."""
    kind = type(policy)
    text = f"{policy.name} ({kind.__module__}.{kind.__qualname__})"
    settings = policy.settings()
    return text + " " + ", ".join(f"{name}={value!r}" for name, value in settings.items()) if settings else text


def _digest(*arrays: Any) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        values = np.asarray(array)
        data = repr(values.tolist()).encode() if values.dtype == object else np.ascontiguousarray(values).tobytes()
        digest.update(f"{values.dtype} {values.shape} ".encode() + data)
    return digest.hexdigest()[:16]


def _short(value: object) -> str:
    """The text, or where it is long, its start."""
    text = str(value)
    return text if len(text) <= 400 else text[:400] + "..."
