"""Checkpoints: a run is put away in a file, and goes on from it as if it had never stopped.

A file holds one line of JSON, which says what run it belongs to, and behind it the state of the world and what was
recorded so far, pickled. The line is compared before anything is unpickled, and only classes of this project, NumPy's
arrays and a few of Python's own are ever built. Still, a checkpoint is a working file of one machine, not a format for
exchange.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import pickle
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from allocator.cluster import Cluster
from allocator.protocol.jobs import JobTable
from allocator.protocol import Policy
from allocator.simulator.observers import Recorder
from throughputs import InputError, Trace

if TYPE_CHECKING:
    from allocator.simulator.world import World
    from throughputs.prices import PriceTable

__all__ = ["Checkpoints", "identity"]

FORMAT = "allocator checkpoint 1"

# What a pickle may build: whole packages of ours, and of others the names that arrays and random states need.
_OUR_PACKAGES = ("allocator", "throughputs", "formulations")
_OTHERS = {
    "builtins": {"set", "frozenset", "range", "slice", "complex", "bytearray"},
    "collections": {"OrderedDict", "deque"},
    "copyreg": {"_reconstructor", "__newobj__"},
    "random": {"Random"},
}


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
        # What a run has recorded never changes: each stretch of it is pickled once and kept.
        self._recorded: list[_Part] = []
        self._rounds = self._decisions = 0
        if not self.path.parent.is_dir():
            raise InputError("checkpoint", found=str(self.path), expected="a file in a folder that exists")

    def save(self, world: World, recorder: Recorder, seconds: float) -> None:
        """Replace the file by the state of the run after `seconds`; when this returns, it is on the disk."""
        stretch = recorder.outcomes[self._rounds :], recorder.decisions[self._decisions :]
        self._recorded.append(_Part.of(stretch))
        self._rounds, self._decisions = len(recorder.outcomes), len(recorder.decisions)
        parts = [_Part.of((world, seconds)), *self._recorded]
        header = {"format": FORMAT, "run": self.run, "parts": [(len(part.data), part.sha256) for part in parts]}
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        try:
            with open(temporary, "wb") as file:
                file.write(json.dumps(header).encode() + b"\n")
                file.writelines(part.data for part in parts)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        finally:
            temporary.unlink(missing_ok=True)

    def load(self) -> tuple[World, Recorder, float] | None:
        """World, what was recorded, and seconds, as they were saved; None if there is no file.

        Raises
        ------
        InputError
            The file is not a checkpoint, is damaged, or belongs to another run.
        """
        try:
            with open(self.path, "rb") as file:
                header = self._header(file.readline())
                parts = [_Part(file.read(length), sha256) for length, sha256 in header["parts"]]
        except FileNotFoundError:
            return None
        for part, value in self.run.items():
            found = header["run"].get(part)
            if found != value:
                raise InputError(
                    self.path, field=part, found=_short(found), expected=f"a checkpoint of this run: {_short(value)}"
                )
        if any(hashlib.sha256(part.data).hexdigest() != part.sha256 for part in parts):
            raise InputError(self.path, found="contents that do not match their check sums", expected="a whole file")
        world, seconds = parts[0].state()
        self._recorded = parts[1:]
        recorder = Recorder()
        for stretch in self._recorded:
            outcomes, decisions = stretch.state()
            recorder.outcomes += outcomes
            recorder.decisions += decisions
        self._rounds, self._decisions = len(recorder.outcomes), len(recorder.decisions)
        return world, recorder, seconds

    def remove(self) -> None:
        """Take the file away, when the run is complete."""
        self.path.unlink(missing_ok=True)

    def _header(self, line: bytes) -> dict[str, Any]:
        try:
            header = json.loads(line)
        except ValueError:
            header = None
        if not isinstance(header, dict) or not isinstance(header.get("run"), dict):
            raise InputError(self.path, found=line[:40], expected="a checkpoint of a simulation")
        if header.get("format") != FORMAT:
            raise InputError(self.path, field="format", found=header.get("format"), expected=FORMAT)
        return header


@dataclasses.dataclass(frozen=True)
class _Part:
    """Something pickled, and its check sum."""

    data: bytes
    sha256: str

    @classmethod
    def of(cls, state: Any) -> _Part:
        data = pickle.dumps(state, protocol=pickle.HIGHEST_PROTOCOL)
        return cls(data, hashlib.sha256(data).hexdigest())

    def state(self) -> Any:
        return _Unpickler(io.BytesIO(self.data)).load()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        root = module.partition(".")[0]
        ours = root in _OUR_PACKAGES or module.startswith("scipy.sparse")
        arrays = root == "numpy" and name in {
            "ndarray", "dtype", "_reconstruct", "scalar", "_frombuffer", "float64", "int64", "bool", "bool_",
        }  # fmt: skip
        if ours or arrays or name in _OTHERS.get(module, ()):
            return super().find_class(module, name)
        raise InputError("checkpoint", found=f"{module}.{name}", expected="only the state of a simulation")


def identity(
    trace: Trace,
    jobs: JobTable,
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
            jobs.rates[: len(trace)],
            np.zeros(0) if jobs.unconsolidated_rates is None else jobs.unconsolidated_rates[: len(trace)],
            *(() if (pairs := jobs.colocation) is None else (pairs.group[: len(trace)], pairs.alone, pairs.together)),
        ),
    } | {f"setting {name}": json.dumps(value) for name, value in settings.items()}


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("cluster-allocator")
    except PackageNotFoundError:
        return "unknown version"


def _policy_text(policy: Any) -> str:
    """Name and settings. A policy that is no dataclass is known by its name and class alone."""
    kind = type(policy)
    text = f"{policy.name} ({kind.__module__}.{kind.__qualname__})"
    if not dataclasses.is_dataclass(policy):
        return text
    return text + " " + ", ".join(f"{f.name}={getattr(policy, f.name)!r}" for f in dataclasses.fields(policy))


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
