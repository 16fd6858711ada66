"""Checkpoints: a run is put away in a file, and goes on from it as if it had never stopped.

A file holds plain numbers, texts and arrays (`allocator.checkpoint.state_file`): what run it belongs to, the state of
the world, and what was recorded so far. Nothing in it is executed. Still, a checkpoint is a working file of one machine
and one version, not a format for exchange.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.checkpoint.state_file import Part, StateFile
from allocator.cluster import Cluster
from allocator.protocol.allocation import Allocation
from allocator.protocol.assignment import Assignment
from allocator.protocol.jobs import JobTable
from allocator.protocol.policy import Policy
from allocator.results.observers import Recorder, StretchOutcome
from allocator.simulator.truth import Truth
from formulations import Pairs
from throughputs import InputError, ThroughputMatrix, Trace

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

    def __init__(self, path: str | os.PathLike[str], run: dict[str, str]) -> None:
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
        self._recorded.append(Part.of({"outcomes": _packed(outcomes), "decisions": [_decision(d) for d in decisions]}))
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
        for part, value in self.run.items():
            found = header.get(part)
            if found != value:
                raise InputError(
                    self.path, field=part, found=_short(found), expected=f"a checkpoint of this run: {_short(value)}"
                )
        saved = self._file.read()
        if saved is None:
            return None
        self._recorded = list(saved.parts)
        try:
            trees = [part.tree() for part in self._recorded]
            labels = world.core.cluster.accelerators
            for tree in trees:
                recorder.outcomes += _unpacked(tree["outcomes"])
                recorder.decisions += [_decision_of(d, labels) for d in tree["decisions"]]
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


_ROW_FIELDS = ("jobs", "pool", "gpus", "partner")


def _packed(outcomes: Sequence[StretchOutcome]) -> dict[str, Any]:
    """Outcomes as columns; equal rows of GPUs and equal assignments are kept once, as they are in memory."""
    assignments: dict[int, int] = {}
    kept: list[Assignment] = []
    placed: dict[int, int] = {}
    gpus: list[tuple[tuple[int, ...], ...]] = []
    of_assignment, of_gpus = [], []
    for o in outcomes:
        if id(o.assignment) not in assignments:
            assignments[id(o.assignment)] = len(kept)
            kept.append(o.assignment)
        if id(o.gpus) not in placed:
            placed[id(o.gpus)] = len(gpus)
            gpus.append(o.gpus)
        of_assignment.append(assignments[id(o.assignment)])
        of_gpus.append(placed[id(o.gpus)])
    return {
        "assignments": {name: _ragged([getattr(a, name) for a in kept]) for name in _ROW_FIELDS},
        "gpus": _ragged_ids(gpus),
        "of_assignment": np.array(of_assignment, dtype=np.int64),
        "of_gpus": np.array(of_gpus, dtype=np.int64),
        "index": np.array([o.index for o in outcomes], dtype=np.int64),
        "start_time": np.array([o.start_time for o in outcomes], dtype=np.float64),
        "end_time": np.array([o.end_time for o in outcomes], dtype=np.float64),
        "active_jobs": np.array([o.active_jobs for o in outcomes], dtype=np.int64),
        "rounds": np.array([o.rounds for o in outcomes], dtype=np.int64),
        "finish_time": _ragged([o.finish_time for o in outcomes]),
        "steps": _ragged([o.steps for o in outcomes]),
        "shares": [o.shares for o in outcomes] if any(o.shares is not None for o in outcomes) else None,
        "started": [o.started for o in outcomes] if any(o.started is not None for o in outcomes) else None,
        "running": [o.running for o in outcomes] if any(o.running is not None for o in outcomes) else None,
    }


def _unpacked(columns: dict[str, Any]) -> list[StretchOutcome]:
    rows = [_parts(columns["assignments"][name]) for name in _ROW_FIELDS]
    assignments = [Assignment(*parts) for parts in zip(*rows, strict=True)]
    gpus = _ids_of(columns["gpus"])
    count = len(columns["index"])
    nothing = [None] * count
    finish, steps = _parts(columns["finish_time"]), _parts(columns["steps"])
    shares, started, running = (columns[name] or nothing for name in ("shares", "started", "running"))
    scalars = [columns[name].tolist() for name in ("index", "start_time", "end_time", "active_jobs", "rounds")]
    of_assignment, of_gpus = columns["of_assignment"].tolist(), columns["of_gpus"].tolist()
    outcomes = []
    for k, (index, start, end, active, rounds) in enumerate(zip(*scalars, strict=True)):
        outcomes.append(
            StretchOutcome(
                index,
                start,
                end,
                assignments[of_assignment[k]],
                gpus[of_gpus[k]],
                finish[k],
                steps[k],
                active,
                shares[k],
                started[k],
                running[k],
                rounds,
            )
        )
    return outcomes


def _ragged(parts: Sequence[np.ndarray[Any, Any]]) -> dict[str, Any]:
    """Arrays one behind the other, and the length of each."""
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    return {"values": np.concatenate(parts) if parts else np.empty(0), "lengths": lengths}


def _parts(ragged: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    ends = np.cumsum(ragged["lengths"])
    return np.split(ragged["values"], ends[:-1]) if len(ends) else []


def _ragged_ids(placed: Sequence[tuple[tuple[int, ...], ...]]) -> dict[str, Any]:
    rows = [row for gpus in placed for row in gpus]
    return {
        "rows": np.array([len(gpus) for gpus in placed], dtype=np.int64),
        "sizes": np.array([len(row) for row in rows], dtype=np.int64),
        "ids": np.array([gpu for row in rows for gpu in row], dtype=np.int64),
    }


def _ids_of(columns: dict[str, Any]) -> list[tuple[tuple[int, ...], ...]]:
    ids = columns["ids"].tolist()
    known: dict[tuple[int, ...], tuple[int, ...]] = {}
    rows, at = [], 0
    for size in columns["sizes"].tolist():
        row = tuple(ids[at : at + size])
        rows.append(known.setdefault(row, row))
        at += size
    placed, at = [], 0
    for count in columns["rows"].tolist():
        placed.append(tuple(rows[at : at + count]))
        at += count
    return placed


_ALLOCATION = (
    "policy", "shares", "status", "objective", "objective_unit", "bound", "gap", "prices", "unserved", "solver",
    "seconds", "fallbacks", "stage", "dropped_slos", "pair_rates", "rejected", "certified",
)  # fmt: skip


def _decision(decided: tuple[int, float, Allocation]) -> dict[str, Any]:
    """One decision as plain data; what it was decided from is left out."""
    index, clock, allocation = decided
    matrix, pairs, assignment = allocation.throughputs, allocation.pairs, allocation.assignment
    return {
        "index": index,
        "clock": clock,
        "rates": matrix.rates,
        "jobs": list(matrix.jobs),
        "scale_factors": matrix.scale_factors,
        "pairs": None if pairs is None else (pairs.first, pairs.second, pairs.accelerator, pairs.share),
        "assignment": None if assignment is None else [getattr(assignment, name) for name in _ROW_FIELDS],
    } | {name: getattr(allocation, name) for name in _ALLOCATION}


def _decision_of(data: dict[str, Any], accelerators: tuple[str, ...]) -> tuple[int, float, Allocation]:
    allocation = Allocation(
        throughputs=ThroughputMatrix(data["rates"], data["jobs"], accelerators, data["scale_factors"], unit="steps/s"),
        pairs=None if data["pairs"] is None else Pairs(*data["pairs"]),
        assignment=None if data["assignment"] is None else Assignment(*data["assignment"]),
        **{name: data[name] for name in _ALLOCATION},
    )
    return data["index"], data["clock"], allocation


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
        "version": f"{_version()}, Python {platform.python_version()}, NumPy {np.__version__}",
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


def _version() -> str:
    try:
        return version("cluster-allocator")
    except PackageNotFoundError:
        return "unknown version"


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
