"""Policies by name, by reference and by entry point: what is registered, what is not, and what goes wrong."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import allocator
from allocator import registry
from allocator.plugins import absolute_reference
from throughputs import InputError

ROOT = Path(__file__).resolve().parents[2]

TWO = '''
from dataclasses import dataclass
import numpy as np
from allocator import ConvexPolicy, OrderPolicy, ProgramPolicy, SharePolicy, register
from allocator.policies.fair_sharing.closed_form import ProportionalFairness

@dataclass(frozen=True)
class HalfDone(OrderPolicy):
    """A base class."""

class FewestSteps(HalfDone):
    """Fewest steps first."""
    def key(self, state):
        return state.steps_remaining

@dataclass(frozen=True)
class Another(HalfDone):
    """With a name of its own, and a setting."""
    name = "most_steps"
    sign: float = -1.0
    def key(self, state):
        return self.sign * state.steps_remaining

@register("registered", paper="-", program="-")
class Registered(FewestSteps):
    """Registers itself."""

class _Private(FewestSteps):
    """Nobody's business."""
'''


@pytest.fixture(autouse=True)
def fresh_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    allocator.list_policies()
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    monkeypatch.setattr(registry, "_FAILED", {})
    modules, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - modules:
        if name.startswith("mine"):
            del sys.modules[name]
    sys.path[:] = path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Modules of one's own, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "mine_two.py": TWO,
        "mine_package/__init__.py": "from mine_package.inner import FewestSteps\nfrom allocator import OrderPolicy\n",
        "mine_package/inner.py": TWO,
        "mine_ours.py": "from allocator.policies.fair_sharing.closed_form import ProportionalFairness as Mine\n",
        "mine_broken.py": "import sys\n1 / 0\n",
        "mine_typo.py": "def f(:\n",
        "mine_needy.py": "import mine_absent\n",
        "mine_empty.py": "import json\n",
        "mine_taken.py": TWO.replace('"most_steps"', '"isolated"'),
        "abc.py": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def known() -> set[str]:
    return {entry.name for entry in allocator.list_policies()}


ALL = ("fewest_steps", "most_steps", "registered")


@pytest.mark.parametrize(
    ("reference", "names", "new"),
    [
        ("mine_two", ALL, set(ALL)),
        ("./mine_two.py", ALL, set(ALL)),
        ("mine_two.py", ALL, set(ALL)),
        # the decorator has run with the module; nothing else is added
        ("mine_two:Another", ("most_steps", "registered"), {"most_steps", "registered"}),
        ("./mine_two.py:Another", ("most_steps", "registered"), {"most_steps", "registered"}),
        ("mine_package", ("fewest_steps", "registered"), {"fewest_steps", "registered"}),
        # policies of ours are not registered again
        ("mine_ours:Mine", ("nash_welfare",), set()),
    ],
)
@pytest.mark.usefixtures("folder")
def test_the_policies_of_a_module_are_registered_and_no_others(
    reference: str, names: tuple[str], new: set[str]
) -> None:
    before = known()
    for _ in range(2):
        assert registry.import_policies(reference) == names
        assert known() - before == new
    if "most_steps" in new:
        assert allocator.get_policy("most_steps", sign=2).settings() == {"sign": 2.0}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("mine_twoo", "mine_twoo"),
        ("./mine_twoo.py", "mine_twoo.py.*a file that exists"),
        ("mine_two:Anoter", "'Another'.*FewestSteps"),
        ("mine_two:HalfDone", "HalfDone.*key"),
        ("mine_two:np", "np.*mine_two"),
        ("mine two", "MODULE:CLASS"),
        ("mine_two:", "MODULE:CLASS"),
        ("mine_broken", r"ZeroDivisionError.*mine_broken.py, line 2"),
        ("./mine_broken.py", r"ZeroDivisionError.*mine_broken.py, line 2"),
        ("mine_typo", r"SyntaxError: .*mine_typo.py, line 1"),
        ("mine_needy", r"'mine_absent'.*mine_needy.py, line 1"),
        ("mine_empty", "mine_empty"),
        ("mine_ours", "mine_ours"),
        ("mine_taken", "isolated"),
        ("./abc.py", "abc"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_goes_wrong_is_said(reference: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        registry.import_policies(reference)
    assert "mine_broken" not in sys.modules


def test_a_reference_from_any_folder(folder: Path) -> None:
    assert absolute_reference("a.b:C") == "a.b:C"
    assert absolute_reference("./a.py:C") == f"{folder}/a.py:C"


class Idle(allocator.SharePolicy):
    """Run nothing."""

    def allocate(self, state):
        return allocator.Allocation(self.name, state.throughputs, np.zeros(state.rates.shape), "closed form")


def with_plugins(monkeypatch: pytest.MonkeyPatch, **entries: Callable[[], object]) -> None:
    """Entry points as `importlib.metadata` has them."""
    of = SimpleNamespace(name="their-package")
    points = [SimpleNamespace(name=name, load=load, dist=of) for name, load in entries.items()]
    monkeypatch.setattr(registry, "_loaded", False)
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: points if group == "allocator.policies" else []
    )


def test_a_plugin_that_fails_is_a_warning_and_its_policy_alone_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> object:
        raise ImportError("cannot import name 'x'")

    before, ours = known(), type(allocator.get_policy("nash_welfare"))
    plugins = {"broken": failing, "no_policy": lambda: dict, "fine": lambda: type("Fine", (Idle,), {})}
    with_plugins(monkeypatch, **plugins, isolated=lambda: Idle, welfare_again=lambda: ours)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert known() - before == {"fine"}
    told = [str(warning.message) for warning in caught]
    assert len(told) == 3
    for words in (
        ("'broken' of their-package", "cannot import name"),
        ("'no_policy'",),
        ("'isolated' of their-package",),
    ):
        assert sum(all(word in line for word in words) for line in told) == 1
    assert allocator.get_policy("fine").name == "fine"
    # what is there is not registered again
    assert ours.name == "nash_welfare"
    with pytest.raises(InputError, match=r"broken.*ImportError"):
        allocator.get_policy("broken")


def allocator_command(cwd: Path, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": f"{ROOT}{path}", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "allocator", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.exhaustive
def test_a_sweep_imports_in_its_workers(folder: Path) -> None:
    common = ["--policies", "fewest_steps,most_steps", "--jobs", "3", "--cluster", "v100:2", "--out", "sweep"]
    done = allocator_command(folder, "sweep", "static", "--import", "./mine_two.py", *common)
    assert done.returncode == 0, done.stderr
    assert "most_steps" in done.stdout


@pytest.mark.exhaustive
def test_on_the_command_line_a_failing_plugin_is_one_line(tmp_path: Path) -> None:
    about = tmp_path / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[allocator.policies]\ntheir_policy = theirs_absent:Policy\n")
    done = allocator_command(tmp_path, "policies", path=f":{tmp_path}")
    assert done.returncode == 0
    assert "nash_welfare" in done.stdout
    (told,) = done.stderr.splitlines()
    assert told.startswith("warning: ")
    assert "'their_policy' of theirs" in told
    assert "theirs_absent" in told


OUT_OF_RANGE = """
chronus lease_seconds=1230.0
chronus objective="most"
chronus solver="gurobi"
chronus filling="always"
chronus tie_break="none"
chronus noise=-0.1
chronus margin=0.9
chronus tolerate_ratio=0.9
chronus start_cost=-1.0
chronus max_search_options=0
elasticflow slot_seconds=-1.0
elasticflow margin_seconds=-1.0
elasticflow restart_seconds=inf
elasticflow most_gpus={"job": 0}
elasticflow admission="some"
elasticflow repair_quantile=1.5
elasticflow repair_rounds=0
elasticflow_mip gpu_time_gap=-1.0
elasticflow_mip time_limit_seconds=0.0
sia power=0.0
sia power=1e300
sia penalty=0.0
sia restart_seconds=-1.0
pollux power=-200.0
pollux power=inf
pollux restart_seconds=inf
pollux search="greedy"
pollux second="gpus"
pollux seed=-1
pollux seconds=0.0
pollux restart_keeps=1.5
pollux types="all"
pollux types="alike", search="genetic"
optimus search="greedy"
lucid score_budget=-1
lucid review_seconds=0.0
shockwave forecast="prophet"
shockwave calibration_band=-0.1
shockwave momentum=1.5
shockwave future_rounds=0
shockwave relative_gap=0.0
shockwave time_limit_seconds=0.0
shockwave replan_rounds=0
shockwave round_seconds=0.0
tiresias queue_limits=(200.0, 100.0)
tiresias queue_limits=(0.0,)
tiresias promote_after=0.0
tiresias line="first"
tiresias_gittins samples=()
tiresias_gittins samples=(1.0, 0.0)
tiresias_gittins quantum=0.0
gandiva_time_slicing turn_seconds=0.0
themis lease_seconds=0.0
fcfs backfill="greedy"
sjf backfill="greedy"
qssf backfill="greedy"
allox alpha=2.0
allox gangs="half"
allox precision=-1.0
gandiva seed=-1
fifo seed=-1
fifo_packed least_gain=-0.5
oef form="selfish"
max_min_fairness_strategy_proof_perf budgets="mine"
max_sum_throughput_normalized_by_cost_perf_SLOs cost="free"
max_sum_throughput_normalized_by_cost_packed_SLOs infeasible="give_up"
"""


def test_settings_out_of_range_are_refused() -> None:
    """The first setting of each line, by name."""
    for line in OUT_OF_RANGE.strip().splitlines():
        name, _, given = line.partition(" ")
        with pytest.raises(InputError, match=given.partition("=")[0]):
            allocator.get_policy(name, **eval(f"dict({given})", {"inf": float("inf")}))


def test_names_settings_and_classes_that_are_refused() -> None:
    with pytest.raises(InputError, match="'max_min_fairness_perf'"):
        allocator.get_policy("max_min_fairnes_perf")
    with pytest.raises(InputError, match=r"'colour'.*solver, choice"):
        allocator.get_policy("max_min_fairness", colour="red")
    with pytest.raises(InputError, match="structured"):
        allocator.solve(allocator.get_policy("max_min_fairness", solver="gurobi"), {"v100": [1.0]}, "v100:1")
    for name, kind, message in (("isolated", Idle, "isolated"), ("another", dict, "SharePolicy or PlanPolicy")):
        with pytest.raises(InputError, match=message):
            registry.register(name, paper="-", program="-")(type("Another", (kind,), {"__doc__": "Another."}))
    for name, given, message in (("idle", Idle(), "SharePolicy or PlanPolicy"), ("my policy", Idle, "my policy")):
        with pytest.raises(InputError, match=message):
            registry.register(name, paper="-", program="-")(given)


def test_solve_from_a_table() -> None:
    """By hand: a has v100 half of the time, (1 + 3/2) / 2.5 = (2 - 1/2) / 1.5 = 1."""
    speeds = pd.DataFrame({"k80": [1.0, 1.0], "v100": [4.0, 2.0], "scale_factor": [1, 1]}, index=["a", "b"])
    answer = allocator.solve("max_min_fairness_perf", speeds, "v100:1,k80:1")
    assert answer.to_frame().columns.tolist() == ["v100", "k80"]
    assert answer.objective == pytest.approx(1.0, rel=1e-8)
    jobs = pd.DataFrame({"priority_weight": [1.0, 9.0]}, index=["b", "a"])
    favoured = allocator.solve("max_min_fairness_perf", speeds, "v100:1,k80:1", jobs=jobs)
    assert favoured.effective_throughput[0] > answer.effective_throughput[0]


def table(index: str = "ab", **columns: list[object]) -> pd.DataFrame:
    return pd.DataFrame(columns, index=list(index))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("cluster", "v100:1,tpu:2", "'tpu'"),
        ("jobs", table("a", priority_weight=[1.0]), "'b'"),
        ("jobs", table("abb", priority_weight=[1.0] * 3), "index.*'b'.*distinct"),
        ("jobs", table(priority_weight=[1.0, -1.0]), "jobs: .*priority_weight of 'b'.*-1"),
        ("throughputs", table(v100=[1.0, -2.0]), "job 'b' on 'v100'"),
    ],
)
def test_bad_input_says_where(field: str, value: object, message: str) -> None:
    given = {"throughputs": table(v100=[4.0, 2.0]), "cluster": "v100:1"} | {field: value}
    with pytest.raises(InputError, match=message):
        allocator.solve("max_min_fairness_perf", **given)
