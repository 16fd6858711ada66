"""Policies by reference and by entry point: what is registered, what is not, and what goes wrong."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

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
from allocator.policies.fair_sharing.nash import ProportionalFairness

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
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    monkeypatch.chdir(tmp_path)

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


def known() -> set[str]:
    return {entry.name for entry in allocator.list_policies()}


@pytest.mark.parametrize("reference", ["mine_two", "./mine_two.py", "mine_two.py"])
def test_the_policies_of_a_module_are_registered_and_no_others(reference: str, write: Callable[[str, str], Path]):
    write("mine_two.py", TWO)
    before = known()
    names = registry.import_policies(reference)
    assert names == ("fewest_steps", "most_steps", "registered")
    assert known() - before == set(names)
    assert registry.import_policies(reference) == names
    assert known() - before == set(names)
    assert allocator.get_policy("most_steps", sign=2).settings() == {"sign": 2.0}
    assert allocator.get_policy("fewest_steps").settings() == {}


@pytest.mark.parametrize("place", ["mine_two", "./mine_two.py"])
def test_one_class_by_name(place: str, write: Callable[[str, str], Path]):
    write("mine_two.py", TWO)
    before = known()
    assert registry.import_policies(f"{place}:Another") == ("most_steps", "registered")
    # the decorator has run with the module; nothing else is added
    assert known() - before == {"most_steps", "registered"}


def test_a_package_has_the_policies_of_its_modules(write: Callable[[str, str], Path]):
    write("mine_package/__init__.py", "from mine_package.inner import FewestSteps\nfrom allocator import OrderPolicy\n")
    write("mine_package/inner.py", TWO)
    assert registry.import_policies("mine_package") == ("fewest_steps", "registered")


def test_policies_of_ours_are_not_registered_again(write: Callable[[str, str], Path]):
    write("mine_ours.py", "from allocator.policies.fair_sharing.nash import ProportionalFairness as Mine\n")
    before = known()
    with pytest.raises(InputError, match="a module that defines policies"):
        registry.import_policies("mine_ours")
    assert registry.import_policies("mine_ours:Mine") == ("nash_welfare",)
    assert known() == before


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("mine_twoo", "a module that Python finds, or that is in"),
        ("./mine_twoo.py", "a file that exists"),
        ("mine_two:Anoter", r"did you mean 'Another'\?\): one of FewestSteps, Another"),
        ("mine_two:HalfDone", "leaves nothing open; this one leaves key"),
        ("mine_two:np", "a policy class of mine_two"),
        ("mine two", "MODULE, MODULE:CLASS"),
        ("mine_two:", "MODULE, MODULE:CLASS"),
        ("mine_broken", r"ZeroDivisionError: division by zero .*mine_broken.py, line 2"),
        ("./mine_broken.py", r"ZeroDivisionError: division by zero .*mine_broken.py, line 2"),
        ("mine_typo", r"SyntaxError: .*mine_typo.py, line 1"),
        ("mine_needy", r"No module named 'mine_absent'.*mine_needy.py, line 1"),
        ("mine_empty", "a module that defines policies"),
        ("mine_taken", "a name that is not taken"),
        ("./abc.py", "abc is a module that is in use"),
    ],
)
def test_what_goes_wrong_is_said(reference: str, message: str, write: Callable[[str, str], Path]):
    write("mine_two.py", TWO)
    write("mine_broken.py", "import sys\n1 / 0\n")
    write("mine_typo.py", "def f(:\n")
    write("mine_needy.py", "import mine_absent\n")
    write("mine_empty.py", "import json\n")
    write("mine_taken.py", TWO.replace('"most_steps"', '"isolated"'))
    write("abc.py", "")
    with pytest.raises(InputError, match=message):
        registry.import_policies(reference)
    assert "mine_broken" not in sys.modules


def test_a_reference_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert absolute_reference("a.b:C") == "a.b:C"
    assert absolute_reference("./a.py:C") == f"{tmp_path}/a.py:C"


class Entry:
    """An entry point as `importlib.metadata` has it."""

    def __init__(self, name: str, load: Callable[[], object]) -> None:
        self.name, self.load = name, load
        self.dist = type("Dist", (), {"name": "their-package"})


def with_plugins(monkeypatch: pytest.MonkeyPatch, *entries: Entry) -> None:
    monkeypatch.setattr(registry, "_loaded", False)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: entries)  # noqa: ARG005


def failing() -> object:
    raise ImportError("cannot import name 'x'")


def test_a_plugin_that_fails_is_a_warning_and_its_policy_alone_is_missing(monkeypatch: pytest.MonkeyPatch):
    class Fine(allocator.SharePolicy):
        """Fine."""

        def allocate(self, state):
            raise NotImplementedError

    before = known()
    with_plugins(monkeypatch, Entry("broken", failing), Entry("no_policy", lambda: dict), Entry("fine", lambda: Fine))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert known() - before == {"fine"}
    told = [str(warning.message) for warning in caught]
    assert len(told) == 2
    assert told[0].startswith("policy plugin 'broken' of their-package is left out: ImportError: cannot import name")
    assert "'no_policy'" in told[1]
    with pytest.raises(InputError, match="a plugin that can be imported: ImportError"):
        allocator.get_policy("broken")


def test_a_plugin_does_not_register_again_what_is_there(monkeypatch: pytest.MonkeyPatch):
    ours = type(allocator.get_policy("nash_welfare"))
    before = known()
    with_plugins(monkeypatch, Entry("welfare_again", lambda: ours))
    assert known() == before
    assert ours.name == "nash_welfare"


def test_a_plugin_with_a_name_of_ours_is_a_warning(monkeypatch: pytest.MonkeyPatch):
    class Fine(allocator.SharePolicy):
        """Fine."""

    with_plugins(monkeypatch, Entry("isolated", lambda: Fine))
    with pytest.warns(UserWarning, match="'isolated' of their-package is left out.*not taken"):
        known()


def allocator_command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "allocator", *arguments]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_sweep_imports_in_its_workers(write: Callable[[str, str], Path], tmp_path: Path):
    write("mine_two.py", TWO)
    write("jobs/empty", "")
    common = ["--policies", "fewest_steps,most_steps", "--jobs", "3", "--cluster", "v100:2", "--out", "sweep"]
    done = allocator_command(tmp_path, "sweep", "static", "--import", "./mine_two.py", *common)
    assert done.returncode == 0, done.stderr
    assert "most_steps" in done.stdout
    refused = allocator_command(tmp_path, "sweep", "static", *common)
    assert refused.returncode == 2
    assert "a known policy" in refused.stderr


def test_every_command_that_takes_policies_has_the_option():
    from allocator.cli.app import COMMANDS, TAKE_POLICIES, load

    for name in COMMANDS:
        command = load(name)
        takers = [command.commands[part] for part in TAKE_POLICIES.get(name, ())] or [command]
        for taker in takers:
            options = {option for parameter in taker.params for option in parameter.opts}
            assert ("--import" in options) == (name in TAKE_POLICIES), name
            if options & {"--policy", "--policies"} and name != "admit":
                assert "--import" in options, name


def test_on_the_command_line_a_failing_plugin_is_one_line(tmp_path: Path):
    about = tmp_path / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[allocator.policies]\ntheir_policy = theirs_absent:Policy\n")
    command = [sys.executable, "-m", "allocator", "policies"]
    environment = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "nash_welfare" in done.stdout
    told = "policy plugin 'their_policy' of theirs is left out: ModuleNotFoundError: No module named 'theirs_absent'"
    assert done.stderr == f"warning: {told}\n"
