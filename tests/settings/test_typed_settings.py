"""Every setting of every preset and policy: good values come back, bad ones are told by name."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np
import pytest

from allocator import cli
from allocator.conversion import convert, convert_text, expectation, kinds_of
from allocator.mechanism.settings import MechanismSettings
from allocator.presets import preset, preset_names
from allocator.registry import get_policy, kinds_of_settings, list_policies
from allocator.simulator.settings import SimulatorSettings
from allocator.sweep import Sweep
from throughputs import InputError

KINDS: dict[str, Any] = {**kinds_of(MechanismSettings), **kinds_of(SimulatorSettings)}

BILLION = "1000000000"

# Values of every type there is, each with what it would be on a command line.
VALUES: dict[str, tuple[Any, str]] = {
    "text": ("maybe", "maybe"),
    "a fraction": (1.5, "1.5"),
    "a whole number": (7, "7"),
    "a flag": (True, "true"),
    "nothing": (None, "None"),
    "a list": (["x", 3], "[x, 3]"),
    "a mapping": ({"v100": "x"}, '{"v100": "x"}'),
    "not a number": (float("nan"), "nan"),
    "beyond all bounds": (10**400, "1" + "0" * 400),
    "an object": (object(), "<object>"),
}


def fits(kind: Any, name: str) -> bool:
    """Whether a value of `VALUES` is of the declared type, said independently of the conversion."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(fits(inner, name) for inner in arguments)
    if origin is Literal or origin is tuple or origin is Mapping or not isinstance(kind, type):
        return False
    return name in {
        bool: {"a flag"},
        int: {"a whole number"},
        float: {"a whole number", "a fraction"},
        str: {"text"},
        types.NoneType: {"nothing"},
    }.get(kind, set())


def as_text(value: Any) -> str:
    """A value as a person writes it behind ``--set NAME=``."""
    if isinstance(value, tuple) and any(isinstance(part, tuple) for part in value):
        return ",".join(":".join(map(as_text, part)) for part in value)
    if isinstance(value, tuple):
        return ",".join(map(as_text, value)) or "[]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def all_settings() -> Iterator[tuple[str, str, Any]]:
    """Policy that has the setting ("" for those of presets), its name and its declared type."""
    yield from (("", name, kind) for name, kind in KINDS.items())
    for entry in list_policies():
        yield from ((entry.name, name, kind) for name, kind in kinds_of_settings(entry.name).items())


ALL = list(all_settings())
IDS = [f"{policy or 'preset'}-{name}" for policy, name, _ in ALL]


def command_line(
    *arguments: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str]:
    """Exit code and standard error of the command line."""
    monkeypatch.setattr(sys, "argv", ["allocator", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0), capsys.readouterr().err


def test_there_is_something_to_test():
    assert len(KINDS) >= 34
    assert len(ALL) > 100
    assert not any(kind is Any for _, _, kind in ALL), "every setting has a type that can be told"


@pytest.mark.parametrize("name", preset_names())
def test_values_of_presets_come_back(name):
    chosen = preset(name)
    for setting, kind in KINDS.items():
        owner = chosen.mechanism if hasattr(chosen.mechanism, setting) else chosen.simulator
        value = getattr(owner, setting)
        for again in (
            convert(value, kind, source="-", field=setting),
            convert_text(as_text(value), kind, source="-", field=setting),
            convert_text(json.dumps(value), kind, source="-", field=setting),
        ):
            assert again == value
            assert type(again) is type(value) or isinstance(value, int | float)
        same = chosen.replace(**{setting: again})
        assert (same.mechanism, same.simulator) == (chosen.mechanism, chosen.simulator)


@pytest.mark.parametrize("entry", list_policies(), ids=lambda entry: entry.name)
def test_values_of_policies_come_back(entry):
    usual = get_policy(entry.name)
    kinds = kinds_of_settings(entry.name)
    values = {setting: getattr(usual, setting) for setting in kinds}
    texts = {s: convert_text(as_text(v), kinds[s], source="-", field=s) for s, v in values.items()}
    assert texts == values
    assert get_policy(entry.name, **texts) == usual


@pytest.mark.parametrize(("policy", "setting", "kind"), ALL, ids=IDS)
def test_values_of_other_types_are_refused(policy, setting, kind):
    for name, (value, _) in VALUES.items():
        if fits(kind, name):
            continue
        with pytest.raises(InputError) as caught:
            convert(value, kind, source="here", field=setting)
        message = str(caught.value)
        assert message.startswith(f"here: field '{setting}': found "), name
        assert expectation(kind) in message
        if policy:
            with pytest.raises(InputError, match=f"policy {policy}: field '{setting}': found "):
                get_policy(policy, **{setting: value})


@pytest.mark.parametrize(("policy", "setting", "kind"), ALL, ids=IDS)
def test_the_command_line_refuses_them(policy, setting, kind, tmp_path, capsys, monkeypatch):
    """Status 2, one line, which names the setting, the value and what is expected; for `simulate` and for sweeps."""
    named = f"policy.{setting}" if policy else setting
    simulate = ("simulate", "--trace", "-", "--policy", policy or "fifo", "--out", str(tmp_path))
    sweep = ("sweep", "static", "--jobs", "3", "--policies", policy or "fifo", "--plan", "--out", str(tmp_path))
    refused = [name for name, (_, text) in VALUES.items() if not stands_for(kind, name, text)]
    if str not in _leaves(kind):  # anything is text
        assert len(refused) >= 6
    for name in refused:
        text = VALUES[name][1]
        for command in (simulate, sweep) if name == refused[0] else (simulate,):
            code, said = command_line(*command, "--set", f"{named}={text}", capsys=capsys, monkeypatch=monkeypatch)
            assert code == 2, (name, said)
            assert said.startswith(f"error: --set: field '{named}': found "), said
            assert expectation(kind) in said
            assert said.count("\n") == 1


def stands_for(kind: Any, name: str, text: str) -> bool:
    """Whether the text of a value may be meant for the type: a list of one value is written as that value."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return text in arguments
    if origin in (Union, types.UnionType) or origin is tuple:
        return any(stands_for(inner, name, text) for inner in arguments if inner is not ...)
    return kind is str or fits(kind, name)


def _leaves(kind: Any) -> set[Any]:
    return {kind} if not get_args(kind) else {leaf for inner in get_args(kind) for leaf in _leaves(inner)}


def test_files_of_sweeps_go_through_the_same_conversion():
    for policy, setting, kind in ALL:
        definition: dict[str, Any] = {"kind": "static", "jobs": [3], "seeds": [0], "clusters": ["v100:2"]}
        for name, (value, _) in VALUES.items():
            if fits(kind, name) or (name == "nothing" and not policy and type(None) in _leaves(kind)):
                continue
            stated = {"policy": {setting: value}} if policy else {setting: value}
            with pytest.raises(InputError) as caught:
                Sweep.from_dict(definition | {"policies": [policy or "fifo"], "settings": stated}, source="mine.toml")
            assert caught.value.source == "mine.toml"
            assert setting in str(caught.value)


def test_lists_need_no_brackets():
    kind = KINDS["accelerator_order"]
    for text in ("v100,k80", "v100, k80", "[v100, k80]", '["v100", "k80"]', '"v100","k80"'):
        assert convert_text(text, kind, source="-", field="-") == ("v100", "k80")
    assert convert_text("v100", kind, source="-", field="-") == ("v100",)
    assert convert_text("[]", kind, source="-", field="-") == ()
    assert convert_text("none", kind, source="-", field="-") is None
    bases = kinds_of_settings("shockwave")["bases"]
    assert convert_text("0,0.5,1", bases, source="-", field="-") == (0.0, 0.5, 1.0)
    with pytest.raises(InputError, match=r"found 'half', expected a list of numbers, as in 0,0\.5,1"):
        convert_text("0,half", bases, source="--set", field="policy.bases")


def test_pairs_are_written_with_colons():
    slowdown, by_gpus = KINDS["goodput_slowdown"], KINDS["restart_penalty_by_gpus"]
    for text in ("bert:1.2,ncf:2", "bert: 1.2, ncf: 2", "[bert:1.2,ncf:2]", '[["bert", 1.2], ["ncf", 2]]'):
        assert convert_text(text, slowdown, source="-", field="-") == (("bert", 1.2), ("ncf", 2.0))
    assert convert_text("[]", slowdown, source="-", field="-") == ()
    assert convert_text("4:30,8:60.5", by_gpus, source="-", field="-") == ((4, 30.0), (8, 60.5))
    # names may have colons of their own
    assert convert_text("a:b:1", slowdown, source="-", field="-") == (("a:b", 1.0),)
    assert convert_text("bert:0.9:0.8", KINDS["pairs_of_one_type"], source="-", field="-") == (("bert", 0.9, 0.8),)
    expected = "expected a list of NAME:NUMBER, with commas between$"
    for text, found in (("bert", "bert"), ("bert:x", "x"), ("bert:1.2,", ""), ("bert:", "bert:"), (":1.2", ":1.2")):
        with pytest.raises(InputError, match=f"^--set: field 'goodput_slowdown': found '{found}', {expected}"):
            convert_text(text, slowdown, source="--set", field="goodput_slowdown")
    with pytest.raises(InputError, match=r"found '1\.5', expected a list of NAME:WHOLE NUMBER, with commas between$"):
        convert_text("bert:1.5", KINDS["goodput_most_gpus_of_model"], source="-", field="-")


def test_mappings_from_text():
    kind = kinds_of_settings("max_sum_throughput_normalized_by_cost_perf")["prices"]
    for text in ("v100:0.74,k80:0.1", "v100: 0.74, k80: 0.1", '{"v100": 0.74, "k80": 0.1}'):
        assert convert_text(text, kind, source="-", field="-") == {"v100": 0.74, "k80": 0.1}
    with pytest.raises(InputError, match="a mapping from names to numbers, as in NAME:VALUE,NAME:VALUE, or none"):
        convert_text("[" * 100_000, kind, source="-", field="-")


def test_words_for_nothing_and_for_flags():
    for text in ("none", "None", "null", "NULL"):
        assert convert_text(text, float | None, source="-", field="-") is None
    assert convert_text("True", bool, source="-", field="-") is True
    assert convert_text("false", bool, source="-", field="-") is False
    for text in ("1", "yes", "on", "maybe", "none"):
        with pytest.raises(InputError, match="expected true or false"):
            convert_text(text, bool, source="-", field="-")


def test_numbers_of_numpy_are_numbers():
    assert convert(np.int64(3), int, source="-", field="-") == 3
    assert convert(np.float32(0.5), float, source="-", field="-") == 0.5
    assert convert(np.bool_(True), bool, source="-", field="-") is True
    with pytest.raises(InputError, match="a whole number"):
        convert(np.bool_(True), int, source="-", field="-")


def test_the_nearest_name_is_told(tmp_path, capsys, monkeypatch):
    run = ("simulate", "--trace", "-", "--policy", "fifo", "--out", str(tmp_path))
    for changes, told in (
        (("--set", "queue=globel"), "(did you mean 'global'?)"),
        (("--set", "tie_breaks=deficit,shre"), "(did you mean 'share'?)"),
        (("--set", "rond_seconds=3"), "(did you mean 'round_seconds' or "),
        (("--set", "policy.sed=3"), "(did you mean 'seed'?)"),
        (("--preset", "gavl"), "did you mean 'gavel'?"),
    ):
        code, said = command_line(*run, *changes, capsys=capsys, monkeypatch=monkeypatch)
        assert (code, said.count("\n")) == (2, 1)
        assert told in said


@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate", "--trace", "-", "--out", "-", "--policy", "max_min_fairnes"),
        ("compare", "--out", "-", "--policies", "fifo,max_min_fairnes"),
        ("solve", "-", "--policy", "max_min_fairnes"),
        ("audit", "-", "--policy", "max_min_fairnes"),
        ("sweep", "static", "--jobs", "3", "--out", "-", "--policies", "max_min_fairnes"),
        ("sweep", "static", "--jobs", "3", "--out", "-", "--policies", "max_min_fairnes", "--set", "policy.seed=1"),
    ],
)
def test_a_mistyped_policy_in_every_command(arguments, capsys, monkeypatch):
    code, said = command_line(*arguments, capsys=capsys, monkeypatch=monkeypatch)
    assert code == 2
    assert "'max_min_fairnes'" in said
    assert "did you mean 'max_min_fairness'?" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        ("v100:0", "found 'v100:0', expected at least one GPU"),
        ("v100:0,k80:0", "expected at least one GPU"),
        ("v100:2000000000", "field 'v100': found 2000000000, expected at most 1,000,000 GPUs in all"),
        ("v100:1000000,k80:1", "expected at most 1,000,000 GPUs in all"),
        ("v100:99999999999999999999", "expected at most 1,000,000 GPUs in all"),
        ("v100:" + "9" * 5000, "expected at most 1,000,000 GPUs in all"),
        ("v100:²", "expected TYPE:COUNT pairs"),
        ("v100:1.5", "expected TYPE:COUNT pairs"),
    ],
)
@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_clusters_that_cannot_be(command, cluster, told, tmp_path, capsys, monkeypatch):
    named = ("--policy", "fifo", "--trace", "-") if command == "simulate" else ("--policies", "fifo", "--jobs", "3")
    arguments = (command, *named, "--cluster", cluster, "--out", str(tmp_path / "out"))
    code, said = command_line(*arguments, capsys=capsys, monkeypatch=monkeypatch)
    assert code == 2
    assert told in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("sweep", "static", "--jobs", BILLION),
            "field 'jobs': found 1000000000, expected at most 10,000,000 jobs",
        ),
        (
            ("sweep", "static", "--jobs", f"1:{BILLION}:{BILLION}"),
            "found 1000000000, expected at most 1,000,000 values",
        ),
        (("sweep", "static", "--jobs", "3", "--seeds", f"0:{BILLION}"), "expected at most 1,000,000 seeds"),
        (
            ("sweep", "static", "--jobs", "1:100000:100000", "--seeds", "0:10000"),
            "found '1,000,000,000 points', expected at most 1,000,000: fewer policies, clusters, cases, values, loads",
        ),
        (("sweep", "continuous", "--rates", "1", "--window", f"0:{BILLION}"), "expected at most 10,000,000 jobs"),
        (("sweep", "continuous", "--rates", "1", "--window", f"0:{'9' * 5000}"), "expected FIRST:END"),
        (("compare", "--jobs", BILLION, "--policies", "fifo"), "expected at most 10,000,000 jobs"),
        (("trace", "generate", "--jobs", BILLION), "expected at most 10,000,000 jobs"),
        (("trace", "generate", "--jobs", BILLION, "--preset", "gavel"), "expected at most 10,000,000 jobs"),
        (("trace", "generate", "--jobs", BILLION, "--preset", "shockwave"), "expected at most 10,000,000 jobs"),
    ],
)
def test_what_is_too_large_is_said_before_starting(arguments, told, tmp_path, capsys, monkeypatch):
    policies = ("--policies", "fifo") if arguments[0] == "sweep" else ()
    out = tmp_path / "out.csv"
    code, said = command_line(*arguments, *policies, "--out", str(out), capsys=capsys, monkeypatch=monkeypatch)
    assert code == 2
    assert told in said
    assert not out.exists()
