"""Policies with settings of their own, as one text: what is compared under which name.

>>> [variant.label for variant in read_variants("fifo,elasticflow,elasticflow:admission=repair,repair_rounds=5")]
['fifo', 'elasticflow', 'elasticflow:admission=repair,repair_rounds=5']

A list of policies is NAME or NAME:SETTING=VALUE,SETTING=VALUE, separated by commas: what has an equals sign and no
colon before it belongs to the policy before. Values are written as after ``--set``; those with commas of their own
stand in brackets, braces or double quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from allocator.cluster import Cluster
from allocator.conversion import convert_all, convert_text
from allocator.presets.preset import Preset
from allocator.protocol import Policy
from throughputs import InputError
from throughputs.errors import expect

_EXPECTED = "names of policies, as in fifo,elasticflow:admission=repair"
_OPENING, _CLOSING = "[{", "]}"
_NOT_IN_FOLDERS = re.compile(r"[^A-Za-z0-9_.,=-]+")


@dataclass(frozen=True)
class Variant:
    """A policy by name, with what tells it apart from others of that name.

    Attributes
    ----------
    name : of the policy.
    settings : of this one, as text, by name; they stand above all others.
    """

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What it is called: its name, and its own settings behind a colon."""
        own = ",".join(f"{name}={text}" for name, text in self.settings.items())
        return f"{self.name}:{own}" if own else self.name

    @property
    def run_label(self) -> str | None:
        """What its run is called; None where the name of the policy says it."""
        return self.label if self.settings or "@" in self.name else None

    @property
    def folder(self) -> str:
        """The label as the name of a folder."""
        return folder_of(self.label)

    def typed_settings(self, source: object, chosen: Preset) -> dict[str, Any]:
        """Its own settings as the policy declares them under a preset.

        Raises
        ------
        InputError
            A setting that the policy does not have, or text that stands for no value of it; `source` is named.
        """
        known = chosen.kinds_of_policy(self.name)
        for setting, text in self.settings.items():
            if re.search(rf":({'|'.join(map(re.escape, known))})=", text):
                expected = f"a comma between settings: {self.name}:{setting}={text.replace(':', ',')}"
                raise InputError(source, field=f"{self.name}:{setting}", found=text, expected=expected)
        return convert_all(self.settings, known, source, read=convert_text, of=f"{self.name}:")


def policy_of(policy: Policy | str, chosen: Preset, cluster: Cluster) -> Policy:
    """The policy that a text such as ``elasticflow:admission=repair`` names under a preset; one that is made stays.

    Raises
    ------
    InputError
        No such policy, or several.
    """
    if isinstance(policy, Policy):
        return policy
    variants = read_variants(policy, "policy")
    if len(variants) > 1:
        raise InputError("policy", found=policy, expected="one policy; `allocator.compare` takes several runs")
    variant = replace(variants[0], name=chosen.policy_names.get(variants[0].name, variants[0].name))
    return chosen.make_policy(variant.name, cluster, **variant.typed_settings("policy", chosen))


def folder_of(label: str) -> str:
    """What a run is called as the name of a folder."""
    return _NOT_IN_FOLDERS.sub("-", label)


def read_variants(text: str | Iterable[str], source: object = "policies") -> list[Variant]:
    """The policies of a list, or of several.

    Raises
    ------
    InputError
        What is no such list, or one that names a policy twice with the same settings.
    """
    found: list[tuple[str, dict[str, str]]] = []
    texts = [text] if isinstance(text, str) else list(text)
    for each in texts:
        expect(
            isinstance(each, str), source, None, each, f"{_EXPECTED}; `allocator.register` gives one of yours a name"
        )
    for part in _parts(",".join(texts)):
        ahead, equals, _ = part.partition("=")
        goes_on = bool(equals) and ":" not in ahead
        if goes_on and not found:
            raise InputError(source, found=text, expected=_EXPECTED)
        if goes_on:
            setting = part
        else:
            name, colon, setting = part.partition(":")
            found.append((name.strip(), {}))
            if not colon:
                continue
        key, equals, value = (piece.strip() for piece in setting.partition("="))
        if not (key and equals and value) or key in found[-1][1]:
            name = found[-1][0]
            expected = f"settings of {name} as NAME=VALUE, each once"
            if name.endswith(".py"):
                expected = f"names of policies; those of a file are known with --import {name}"
            raise InputError(source, found=part, expected=expected)
        found[-1][1][key] = value
    variants = [Variant(name, settings) for name, settings in found]
    for taken in (_twice([v.label for v in variants]), _twice([v.folder for v in variants])):
        if taken is not None:
            raise InputError(source, found=taken, expected="distinct names of policies, or other settings of each")
    if not variants or not all(variant.name for variant in variants):
        raise InputError(source, found=text, expected=_EXPECTED)
    return variants


def _twice(names: Sequence[str]) -> str | None:
    """The first name that stands there a second time."""
    return next((name for place, name in enumerate(names) if name in names[:place]), None)


def _parts(text: str) -> list[str]:
    """What is between commas that are in no brackets, braces or double quotes; without empty parts."""
    parts, depth, quoted = [""], 0, False
    for sign in text:
        quoted ^= sign == '"'
        if not quoted:
            depth += (sign in _OPENING) - (sign in _CLOSING)
        if sign == "," and depth <= 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts if part.strip()]
