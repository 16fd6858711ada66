"""Runs that are put away and go on."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from allocator.checkpoint.state_file import StateFile
from allocator.cluster import Cluster
from allocator.presets import Preset
from allocator.registry import get_policy
from allocator.simulator import SimulationResult, StretchOutcome, preset, simulate
from throughputs import InputError, Trace, default_table, gavel_trace

CLUSTER = Cluster({"v100": 8, "p100": 8, "k80": 8}, {"v100": 4, "p100": 4, "k80": 4})
TABLE = default_table()


def jobs(n: int) -> Trace:
    return gavel_trace(n, 9000.0, seed=1, multi_gpu=True, priorities=True, slos=True)


class CrashError(Exception):
    """Stands in for a crash."""


class StopAt:
    """Observer that crashes the run in a given round."""

    def __init__(self, index: int) -> None:
        self.index = index

    def decided(self, *_: object) -> None: ...

    def round_ended(self, outcome: StretchOutcome) -> None:
        if outcome.index == self.index:
            raise CrashError


def assert_same(one: SimulationResult, other: SimulationResult) -> None:
    """All tables byte for byte, all decisions, and the summary but for the times that were measured."""
    for name in ("jobs", "rounds", "timeline", "priorities"):
        assert getattr(one, name).to_csv().encode() == getattr(other, name).to_csv().encode()
    assert len(one.decisions) == len(other.decisions)
    for (index, clock, mine), (same_index, same_clock, its) in zip(one.decisions, other.decisions, strict=True):
        assert (index, clock, mine.throughputs.jobs) == (same_index, same_clock, its.throughputs.jobs)
        assert np.array_equal(mine.shares, its.shares)
    measured = ("wall_seconds", "policy_seconds")
    assert {k: v for k, v in one.summary().items() if k not in measured} == {
        k: v for k, v in other.summary().items() if k not in measured
    }
    assert one.settings == other.settings


RUNS = [
    ("max_min_fairness", "gavel", {}, None),
    ("max_min_fairness_perf", "default", {}, None),
    ("finish_time_fairness_perf", "default", {"ideal": True}, None),
    ("fifo", "default", {}, None),
    ("isolated", "gavel", {}, (20, 40)),
]


@pytest.mark.parametrize(("policy", "name", "changes", "window"), RUNS)
def test_a_resumed_run_is_the_run(
    policy: str, name: str, changes: dict[str, object], window: tuple[int, int] | None, tmp_path: Path
) -> None:
    path = tmp_path / "run.checkpoint"
    arguments = (jobs(30), CLUSTER, get_policy(policy), TABLE)
    settings = {
        "preset": preset(name).replace(**changes),
        "seed": 7,
        "window": window,
        "extend": jobs if window else None,
        "prices": {"v100": 0.74, "p100": 0.43, "k80": 0.135},
    }
    whole = simulate(*arguments, **settings)
    last = len(whole.timeline) - 1
    files = {"checkpoint": path, "checkpoint_every": max(last // 6, 1)}
    # Crashed twice, the second time in the run that was resumed.
    for crash in (last // 3, 2 * last // 3):
        with pytest.raises(CrashError):
            simulate(*arguments, **settings, **files, resume=True, observers=[StopAt(crash)])
        assert path.exists()
    seen: list[int] = []

    class Watcher(StopAt):
        def round_ended(self, outcome: StretchOutcome) -> None:
            seen.append(outcome.index)

    resumed = simulate(*arguments, **settings, **files, resume=True, observers=[Watcher(0)])
    assert_same(whole, resumed)
    assert seen[0] > last // 3
    assert not path.exists()
    assert list(tmp_path.iterdir()) == []


SCRIPT = """
import sys, time
from pathlib import Path
from allocator import Cluster, default_table, get_policy, simulate
from throughputs import gavel_trace

class Slow:
    def decided(self, *_): pass
    def round_ended(self, outcome):
        time.sleep(0.002)
        if outcome.index >= 600:
            # it does not come to its end before it is killed
            Path(sys.argv[1] + ".waits").touch()
            time.sleep(600)

trace = gavel_trace(30, 9000.0, seed=1, multi_gpu=True, priorities=True, slos=True)
cluster = Cluster({"v100": 8, "p100": 8, "k80": 8}, {"v100": 4, "p100": 4, "k80": 4})
simulate(trace, cluster, get_policy("max_min_fairness"), default_table(), preset="gavel", seed=3,
         checkpoint=sys.argv[1], checkpoint_every=25, observers=[Slow()])
print("complete")
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_killed_process_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path)], stdout=subprocess.PIPE, text=True)
    waits, written = Path(f"{path}.waits"), 0.0
    # Let it write a few, so that it dies at some moment between or within them.
    for _ in range(3):
        while not waits.exists() and not (path.exists() and path.stat().st_mtime_ns > written):
            assert process.poll() is None
            time.sleep(0.005)
        written = path.stat().st_mtime_ns
    process.send_signal(signal.SIGKILL)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    assert "complete" not in output
    arguments = (jobs(30), CLUSTER, get_policy("max_min_fairness"), TABLE)
    whole = simulate(*arguments, preset="gavel", seed=3)
    first: list[int] = []

    class Watcher(StopAt):
        def round_ended(self, outcome: StretchOutcome) -> None:
            first.append(outcome.index)

    resumed = simulate(
        *arguments,
        preset="gavel",
        seed=3,
        checkpoint=path,
        checkpoint_every=10_000,
        resume=True,
        observers=[Watcher(0)],
    )
    assert first[0] >= 50
    assert_same(whole, resumed)


def crashed(path: Path, chosen: Preset | str = "gavel") -> None:
    with pytest.raises(CrashError):
        simulate(
            jobs(30), CLUSTER, get_policy("isolated"), TABLE,
            preset=chosen, seed=3, checkpoint=path, checkpoint_every=50, observers=[StopAt(120)],
        )  # fmt: skip


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    crashed(path)
    same = {"trace": jobs(30), "cluster": CLUSTER, "policy": get_policy("isolated"), "throughputs": TABLE}
    same |= {"preset": "gavel", "seed": 3, "checkpoint": path, "resume": True}
    other_rates = TABLE.rates(jobs(30).job_type, jobs(30).scale_factor, CLUSTER.accelerators) * 1.5
    changes = {
        "trace": ("trace", jobs(31)),
        "cluster": ("cluster", Cluster({"v100": 8, "p100": 8, "k80": 8})),
        "policy": ("policy", get_policy("fifo_perf")),
        "throughputs": ("throughputs", other_rates),
        "setting round_seconds": ("preset", preset("gavel").replace(round_seconds=720.0)),
        "setting seed": ("seed", 4),
        "setting window": ("window", (0, 10)),
        "prices": ("prices", dict.fromkeys(CLUSTER.accelerators, 1.0)),
    }
    for field, (argument, value) in changes.items():
        with pytest.raises(InputError, match=f"field '{field}'"):
            simulate(**(same | {argument: value}))
    assert path.exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("allocator.checkpoint.checkpoint._version", lambda: "another version")
        with pytest.raises(InputError, match="field 'version'"):
            simulate(**same)
    simulate(**same)
    assert not path.exists()


def test_policy_settings_are_part_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    arguments = {"trace": jobs(30), "cluster": CLUSTER, "throughputs": TABLE, "checkpoint": path}
    with pytest.raises(CrashError):
        simulate(**arguments, policy=get_policy("fifo", seed=1), checkpoint_every=9, observers=[StopAt(20)])
    with pytest.raises(InputError, match=r"field 'policy'.*seed=1"):
        simulate(**arguments, policy=get_policy("fifo", seed=2), resume=True)


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty", "other"])
def test_a_damaged_checkpoint_is_refused(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    crashed(path)
    whole = path.read_bytes()
    path.write_bytes(
        {
            "truncated": whole[:-100],
            "changed": whole[:-100] + bytes([whole[-100] ^ 255]) + whole[-99:],
            "empty": b"",
            "other": b"job_id,job_type\n0,LM\n",
        }[damage]
    )
    expected = "a whole file" if damage in ("truncated", "changed") else "allocator checkpoint 2"
    with pytest.raises(InputError, match=expected):
        simulate(jobs(30), CLUSTER, get_policy("isolated"), TABLE, preset="gavel", seed=3, checkpoint=path, resume=True)


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    crashed(path)
    target = tmp_path / "made by a checkpoint"

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(target),)

    whole, payload = path.read_bytes(), pickle.dumps(Evil())
    at = len(whole) // 2
    for data in (payload, whole[:at] + payload + whole[at + len(payload) :]):
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"pickles are not read|a whole file"):
            simulate(
                jobs(30), CLUSTER, get_policy("isolated"), TABLE, preset="gavel", seed=3, checkpoint=path, resume=True
            )
    assert not target.exists()


def test_a_whole_file_with_a_state_of_another_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.checkpoint"
    crashed(path)
    file = StateFile(path)
    saved = file.read()
    assert saved is not None
    for change in ("world", "seconds", "jobs"):
        file.write(saved.header, {k: v for k, v in saved.state.items() if k != change}, saved.parts)
        with pytest.raises(InputError, match="a checkpoint of this version"):
            simulate(
                jobs(30), CLUSTER, get_policy("isolated"), TABLE, preset="gavel", seed=3, checkpoint=path, resume=True
            )


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    arguments = (jobs(3), CLUSTER, get_policy("isolated"), TABLE)
    with pytest.raises(InputError, match="checkpoint_every"):
        simulate(*arguments, checkpoint=tmp_path / "c", checkpoint_every=0)
    with pytest.raises(InputError, match="resume"):
        simulate(*arguments, resume=True)
    with pytest.raises(InputError, match="a folder that exists"):
        simulate(*arguments, checkpoint=tmp_path / "nowhere" / "c")


def test_without_a_file_to_resume_from_the_run_starts_anew(tmp_path: Path) -> None:
    arguments = (jobs(10), CLUSTER, get_policy("isolated"), TABLE)
    assert_same(simulate(*arguments), simulate(*arguments, checkpoint=tmp_path / "c", resume=True))
