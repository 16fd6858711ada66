"""Every setting of every preset and policy: good values come back, bad ones are told by name."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np
import pytest

from allocator import cli
from allocator.conversion import convert, convert_text, expectation
from allocator.presets import kinds_of_presets, preset, preset_names
from allocator.registry import get_policy, kinds_of_settings, list_policies
from allocator.sweep import Sweep
from throughputs import InputError

KINDS = dict(kinds_of_presets())
BILLION = "1000000000"

# values of every type there is, each with what it would be on a command line
VALUES = {
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
FITS = {
    bool: {"a flag"}, int: {"a whole number"}, float: {"a whole number", "a fraction"}, str: {"text"},
    types.NoneType: {"nothing"},
}  # fmt: skip


def fits(kind, name):
    """Whether a value of `VALUES` is of the declared type, said independently of the conversion."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(fits(inner, name) for inner in arguments)
    if origin in (Literal, tuple, Mapping) or not isinstance(kind, type):
        return False
    return name in FITS.get(kind, ())


def stands_for(kind, name, text):
    """Whether the text of a value may be meant for the type: a list of one value is written as that value."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return text in arguments
    if origin in (Union, types.UnionType, tuple):
        return any(stands_for(inner, name, text) for inner in arguments if inner is not ...)
    return kind is str or fits(kind, name)


def as_text(value):
    """A value as a person writes it behind ``--set NAME=``."""
    if isinstance(value, tuple) and any(isinstance(part, tuple) for part in value):
        return ",".join(":".join(map(as_text, part)) for part in value)
    if isinstance(value, tuple):
        return ",".join(map(as_text, value)) or "[]"
    return str(value).lower() if isinstance(value, bool) else str(value)


ALL = [("", name, kind) for name, kind in preset("default").kinds().items()]
ALL += [(each.name, name, kind) for each in list_policies() for name, kind in kinds_of_settings(each.name).items()]
DISTINCT = {str(kind): kind for _, _, kind in ALL}


def command_line(*arguments, capsys, monkeypatch):
    """Exit code and standard error of the command line."""
    monkeypatch.setattr(sys, "argv", ["allocator", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0), capsys.readouterr().err


@pytest.mark.parametrize("name", preset_names())
def test_values_of_presets_come_back(name):
    chosen = preset(name)
    owners = [*chosen.disciplines(), chosen.mechanism, *chosen.world]
    of_policies = {field.name for each in chosen.disciplines()[1:] for field in fields(each)}
    assert set(chosen.kinds()) == set(chosen.as_dict()) - {"preset", "choice", "fairness"} | of_policies
    for setting, kind in chosen.kinds().items():
        if setting == "discipline":
            continue
        value = next(getattr(owner, setting) for owner in owners if hasattr(owner, setting))
        texts = (convert_text(text, kind, source="-", field=setting) for text in (as_text(value), json.dumps(value)))
        for again in (convert(value, kind, source="-", field=setting), *texts):
            assert again == value
            assert type(again) is type(value) or isinstance(value, int | float)
        same = chosen.replace(**{setting: again})
        assert same.as_dict() == chosen.as_dict()


def test_values_of_policies_come_back():
    for entry in list_policies():
        usual, kinds = get_policy(entry.name), kinds_of_settings(entry.name)
        values = {setting: getattr(usual, setting) for setting in kinds}
        texts = {s: convert_text(as_text(v), kinds[s], source="-", field=s) for s, v in values.items()}
        assert texts == values
        assert get_policy(entry.name, **texts) == usual


@pytest.mark.parametrize("kind", DISTINCT)
def test_values_of_other_types_are_refused(kind):
    kind = DISTINCT[kind]
    assert kind is not Any
    found = [(convert, name, value) for name, (value, _) in VALUES.items() if not fits(kind, name)]
    found += [(convert_text, name, text) for name, (_, text) in VALUES.items() if not stands_for(kind, name, text)]
    assert len(found) >= 8
    for conversion, name, value in found:
        with pytest.raises(InputError) as caught:
            conversion(value, kind, source="here", field="there")
        assert str(caught.value).startswith("here: field 'there': found "), name
        assert expectation(kind) in str(caught.value)


def having(setting):
    """A preset that has it."""
    return next(chosen for chosen in map(preset, preset_names()) if setting in chosen.kinds())


def test_every_setting_goes_through_the_conversion():
    """In Python and in files of sweeps; whatever its type, an object is none of it."""
    definition = {"kind": "static", "jobs": [3], "seeds": [0], "clusters": ["v100:2"]}
    wrong = VALUES["an object"][0]
    for policy, setting, _ in ALL:
        with pytest.raises(InputError, match=f"field '{setting}': found "):
            get_policy(policy, **{setting: wrong}) if policy else having(setting).replace(**{setting: wrong})
        stated = {"policy": {setting: wrong}} if policy else {setting: wrong}
        with pytest.raises(InputError, match=setting) as caught:
            Sweep.from_dict(definition | {"policies": [policy or "fifo"], "settings": stated}, source="mine.toml")
        assert caught.value.source == "mine.toml"


TEXTS = [
    ("accelerator_order", "v100,k80|v100, k80|[v100, k80]|[\"v100\", \"k80\"]|\"v100\",\"k80\"", ("v100", "k80")),
    ("accelerator_order", "v100", ("v100",)),
    ("accelerator_order", "[]", ()),
    ("max_overdraft_rounds", "none|None|null|NULL", None),
    ("shockwave.bases", "0,0.5,1", (0.0, 0.5, 1.0)),
    ("goodput_slowdown", "bert:1.2,ncf:2|bert: 1.2, ncf: 2|[bert:1.2,ncf:2]|[[\"bert\", 1.2], [\"ncf\", 2]]",
     (("bert", 1.2), ("ncf", 2.0))),
    ("goodput_slowdown", "[]", ()),
    ("goodput_slowdown", "a:b:1", (("a:b", 1.0),)),
    ("restart_penalty_by_gpus", "4:30,8:60.5", ((4, 30.0), (8, 60.5))),
    ("pairs_of_one_type", "bert:0.9:0.8", (("bert", 0.9, 0.8),)),
    ("max_sum_throughput_normalized_by_cost_perf.prices",
     'v100:0.74,k80:0.1|v100: 0.74, k80: 0.1|{"v100": 0.74, "k80": 0.1}', {"v100": 0.74, "k80": 0.1}),
    ("ideal", "True|true", True),
    ("ideal", "false", False),
]  # fmt: skip

WRONG = [
    ("shockwave.bases", "0,half", "half"),
    ("goodput_slowdown", "bert", "bert"),
    ("goodput_slowdown", "bert:x", "x"),
    ("goodput_slowdown", "bert:1.2,", ""),
    ("goodput_slowdown", "bert:", "bert:"),
    ("goodput_slowdown", ":1.2", ":1.2"),
    ("goodput_most_gpus_of_model", "bert:1.5", "1.5"),
    ("max_sum_throughput_normalized_by_cost_perf.prices", "[" * 100_000, ""),
    *(("ideal", text, text) for text in ("1", "yes", "on", "maybe", "none")),
]


def kind_of(name):
    policy, _, setting = name.rpartition(".")
    return kinds_of_settings(policy)[setting] if policy else KINDS[setting]


@pytest.mark.published
def test_texts_as_people_write_them():
    for name, texts, expected in TEXTS:
        for text in texts.split("|"):
            found = convert_text(text, kind_of(name), source="-", field="-")
            assert (found, type(found)) == (expected, type(expected)), text
    for name, text, found in WRONG:
        with pytest.raises(InputError, match=f"^here: field 'there': found .*{found}") as caught:
            convert_text(text, kind_of(name), source="here", field="there")
        assert expectation(kind_of(name)) in str(caught.value)


def test_numbers_of_numpy_are_numbers():
    for value, kind in ((np.int64(3), int), (np.float32(0.5), float), (np.bool_(True), bool)):
        assert convert(value, kind, source="-", field="-") == value
    with pytest.raises(InputError, match="a whole number"):
        convert(np.bool_(True), int, source="-", field="-")


SIMULATE = "simulate --trace - --policy fifo --out out"
SWEEP = "sweep static --jobs 3 --out out --policies"
TOO_MANY = "at most 10,000,000 jobs"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (f"{SIMULATE} --set round_seconds=maybe", "error: --set: field 'round_seconds': found "),
        (f"{SIMULATE} --set policy.seed=maybe", "error: --set: field 'policy.seed': found 'maybe'"),
        (f"{SWEEP} fifo --plan --set round_seconds=maybe", "error: --set: field 'round_seconds': found "),
        (f"{SIMULATE} --set idle_fill=best_typ", "'best_type'"),
        (f"{SIMULATE} --set policy.sed=3", "'seed'"),
        (f"{SIMULATE} --preset gavl", "'gavel'"),
        *(
            (f"{command} max_min_fairnes", "'max_min_fairness'")
            for command in ("compare --out - --policies", "solve - --policy", "audit - --policy", SWEEP)
        ),
        *(
            (f"simulate --policy fifo --trace - --cluster {cluster} --out out", told)
            for cluster, told in (
                ("v100:0,k80:0", "at least one GPU"), ("v100:1000000,k80:1", "at most 1,000,000 GPUs"),
                ("v100:1.5", "TYPE:COUNT"),
            )
        ),
        (f"sweep static --jobs 1:{BILLION}:{BILLION} --policies fifo --out out", f"found {BILLION}"),
        (f"{SWEEP} fifo --seeds 0:{BILLION}", "at most 1,000,000 seeds"),
        ("sweep static --policies fifo --out out --jobs 1:100000:100000 --seeds 0:10000", "1,000,000,000 points"),
        (f"sweep continuous --policies fifo --out out --rates 1 --window 0:{BILLION}", TOO_MANY),
        (f"compare --jobs {BILLION} --policies fifo --out out", TOO_MANY),
        (f"trace generate --jobs {BILLION} --out out --generator gavel", TOO_MANY),
    ],
)  # fmt: skip
def test_the_command_line_refuses_in_one_line(arguments, told, tmp_path, capsys, monkeypatch):
    """Status 2, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    code, said = command_line(*arguments.split(), capsys=capsys, monkeypatch=monkeypatch)
    assert (code, said.count("\n")) == (2, 1)
    assert told in said
    assert not list(tmp_path.iterdir())
