"""A page for each policy, from its docstring, its registration, a small run and audits."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from functools import cache

from allocator.protocol import Policy, Trigger
from allocator.registry import PolicyEntry, get_policy, kinds_of_settings, list_policies
from allocator.testing.worlds import for_one_type
from docs.site import drawing, formulas, policy_runs
from docs.site.links import ROOT

_ROOMS = {
    "gavel": "Gavel's programs",
    "fair_sharing": "Fair sharing",
    "shockwave": "Shockwave",
    "deadlines": "Deadlines of elastic jobs",
    "chronus": "Chronus",
    "orders": "Orders",
    "time_sharing": "Time sharing",
    "pairing_rules": "Pairing rules",
    "quotas": "Quotas",
}

_USE = dict(re.findall(r"^\| `(\w+)` \| (.*?) \| \w+ \|$", (ROOT / "docs/which_policy.md").read_text(), re.M))
"""When a policy is the one to take, by its name."""

_LENGTHS = {
    "true": "It **must know how long jobs take**; the simulator tells it, on a cluster nobody does.",
    "predicted": "It goes by predicted lengths, or time limits; a job without one counts with its true length.",
    "unknown": "It does not know how long jobs take.",
}

_ROUNDING = 1e-6
"""Values that differ from 0 by less are printed as 0."""


def pages() -> dict[str, str | bytes]:
    """Addresses and content: an overview and a page for each policy of this package."""
    entries = [entry for entry in list_policies() if entry.factory.__module__.startswith("allocator.policies.")]
    made: dict[str, str | bytes] = {f"policies/{entry.name}.md": page_of(entry, entries) for entry in entries}
    made["policies/index.md"] = _overview(entries)
    return made


def page_of(entry: PolicyEntry, entries: Sequence[PolicyEntry]) -> str:
    """The page of one policy.

    Parameters
    ----------
    entry : the policy.
    entries : all policies, which its small run is compared with.
    """
    text, _ = _described(entry.factory)
    parts = [
        f"# {entry.name}",
        entry.meaning,
        f"*{entry.paper}*",
        f"Use this when {_USE[entry.name]}. {_LENGTHS[entry.lengths]}",
        f"```sh\nallocator compare --policies {entry.name},srtf --cluster {policy_runs.cluster_of(entry.factory)}\n```",
        "## Program",
        *([] if "<math" in text else [formulas.typeset(entry.program)]),
        text,
        "## Settings",
        _settings(entry),
        "## When it is asked, and what it knows",
        _manner(entry.factory),
        "## Properties",
        _properties(entry.name),
        "## A small run",
        *_small_run(entry, entries),
        "## Fidelity",
        fidelity_of(entry.name),
        "",
    ]
    return "\n\n".join(part for part in parts if part is not None)


def _described(factory: type) -> tuple[str, dict[str, str]]:
    """The text of a docstring after its first paragraph and before its lists, and what it says of parameters."""
    lines = _docstring(factory).splitlines()
    end = next((i - 1 for i, line in enumerate(lines) if re.fullmatch(r"-{3,}", line)), len(lines))
    body = typeset("\n".join(lines[:end]).partition("\n")[2].strip("\n"))
    described: dict[str, str] = {}
    names: list[str] = []
    section = ""
    for i, line in enumerate(lines[end:], start=end):
        if i + 1 < len(lines) and re.fullmatch(r"-{3,}", lines[i + 1]):
            section = line
        elif section in ("Parameters", "Attributes") and (item := re.match(r"([\w, ]+) : (.*)", line)):
            names = item[1].split(", ")
            described |= dict.fromkeys(names, item[2])
        elif line.startswith(" ") and section in ("Parameters", "Attributes"):
            described |= {name: f"{described[name]} {line.strip()}" for name in names}
        else:
            names = []
    return body, described


def typeset(text: str) -> str:
    """Text with its indented programs typeset, those in lists as well."""
    text = re.sub(r"::$", ":", text, flags=re.MULTILINE)
    text = re.sub(r"(?<=\S)\n(?=\d+\. )", "\n\n", text)
    return formulas.in_text(re.sub(r"\n\n+", "\n\n", text))


def _docstring(factory: type) -> str:
    text = factory.__doc__ or ""
    lines = text.splitlines()
    inside = [len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()]
    return "\n".join([lines[0], *(line[min(inside) :] for line in lines[1:])]) if inside else text


def _settings(entry: PolicyEntry) -> str:
    kinds = kinds_of_settings(entry.name)
    if not kinds:
        return "None."
    said: dict[str, str] = {}
    for parent in reversed(entry.factory.__mro__):
        said |= {name: text for name, text in _described(parent)[1].items() if not text.startswith("see ")}
    fields = {field.name: field for field in dataclasses.fields(entry.factory)}
    rows = [
        f"| `{name}` | {_default(fields[name])} | {_cell(said.get(name, ''))} |" for name in kinds if name in fields
    ]
    use = f"`--policy {entry.name}:NAME=VALUE` sets one, and `get_policy({entry.name!r}, NAME=VALUE)` does in Python."
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows, "", use])


def _default(field: dataclasses.Field[object]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{field.default!r}`"
    return f"`{field.default_factory()!r}`" if field.default_factory is not dataclasses.MISSING else "required"


def _manner(factory: type[Policy]) -> str:
    triggers = [each.name.lower() for each in Trigger if each in factory.triggers and each.name]
    needs = sorted(f"`{view.name}`" for view in factory.needs)
    answer = "shares of time, which the round mechanism turns into rounds" if factory.answers == "shares" else "plans"
    types = "It distinguishes accelerator types."
    if for_one_type(get_policy(factory.name)):
        types = "It is for clusters with one type of accelerator."
    elif not factory.heterogeneity_aware:
        types = "It is blind to accelerator types."
    notes = [
        f"It answers with {answer}.",
        f"It is asked at: {', '.join(triggers) or 'nothing'}.",
        f"Beside throughputs it reads: {', '.join(needs) or 'nothing that must be made ready'}.",
        types,
    ]
    return " ".join(notes)


def _properties(name: str) -> str:
    found = policy_runs.audited(name)
    if not found:
        return "The audit is of shares of time; this policy answers with plans. Its small run is below."
    rows = []
    for each in found:
        held = "" if each.held is None else f"{each.held} of {each.audits}"
        low, high = (_number(value) for value in (min(each.values), max(each.values)))
        rows.append(
            f"| {each.name} | {held} | {low if low == high else f'{low} to {high}'} | {_cell(each.definition)} |"
        )
    said = (
        "Measured by [`allocator audit`](../reference/allocator.audit.md) on six allocations: 3, 6 and 10 jobs, gangs "
        "of 1 to 4 GPUs and weights of 1 to 4 among them, two draws of each. What fails here may still hold where all "
        "jobs have one GPU and one weight."
    )
    return "\n".join([said, "", "| property | holds | value | definition |", "|---|---|---|---|", *rows])


def _number(value: float) -> str:
    return "0" if abs(value) < _ROUNDING else f"{value:.3g}"


def _small_run(entry: PolicyEntry, entries: Sequence[PolicyEntry]) -> Iterator[str]:
    result = policy_runs.run(entry.name)
    colour, cluster = drawing.colour_of(entry.name), policy_runs.cluster_of(get_policy(entry.name))
    peers = [each for each in entries if policy_runs.cluster_of(get_policy(each.name)) == cluster]
    curves = {each.name: _hours(each.name) for each in peers}
    figures = result.summary()
    yield (
        f"{policy_runs.JOBS} jobs of one, two or four GPUs on `{cluster}`, one every "
        f"five minutes on average. {_average(entry.name)} h from arrival to completion on average, "
        f"{int(figures['completed_jobs'])} completed, {int(result.jobs['preemptions'].sum())} preemptions."
    )
    yield drawing.who_runs_where(result, colour)
    yield drawing.completions(curves, entry.name, colour)


@cache
def _hours(name: str) -> tuple[float, ...]:
    jobs = policy_runs.run(name).jobs
    return tuple(jobs.loc[jobs["status"] == "completed", "jct"] / 3600.0)


def _average(name: str) -> str:
    hours = _hours(name)
    return f"{sum(hours) / len(hours):.2f}" if hours else "no"


def fidelity_of(name: str) -> str:
    """What docs/fidelity.md says of a policy: the rows of its tables that name it, section by section."""
    word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    parts = []
    for title, lines in _sections((ROOT / "docs" / "fidelity.md").read_text()):
        rows = [line for line in lines if line.startswith("|") and word.search(line.split("|")[1])]
        if not rows and not any(word.search(line) for line in lines):
            continue
        parts.append(f"[{title}](../fidelity.md#{_anchor(title)})" + (":" if rows else ""))
        for head, group in _by_table(lines, rows):
            parts.append("\n".join([head, re.sub(r"[^|]+", "---", head), *group]))
    if not parts:
        return "No recorded run of another system is compared with this policy. [What is compared](../fidelity.md)."
    return "\n\n".join(parts)


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    title, lines = "Fidelity", list[str]()
    for line in text.splitlines():
        if line.startswith("#"):
            yield title, lines
            title, lines = line.lstrip("# "), []
        else:
            lines.append(line)
    yield title, lines


def _by_table(lines: Sequence[str], rows: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    head, group = "", list[str]()
    for i, line in enumerate(lines):
        if line.startswith("|") and not lines[i - 1].startswith("|"):
            if group:
                yield head, group
            head, group = line, []
        elif line in rows:
            group.append(line)
    if group:
        yield head, group


def _anchor(title: str) -> str:
    return re.sub(r"[^\w]+", "-", title.lower()).strip("-")


def _overview(entries: Sequence[PolicyEntry]) -> str:
    parts = [_OVERVIEW]
    rooms = list(dict.fromkeys(_room(entry) for entry in sorted(entries, key=lambda entry: _order(_room(entry)))))
    for room in rooms:
        parts += [
            f"## {_ROOMS.get(room, room.replace('_', ' ').capitalize())}",
            "| policy | | average JCT, small run |\n|---|---|---:|",
        ]
        rows = [
            f"| [{entry.name}]({entry.name}.md) | {_cell(entry.meaning)} | {_average(entry.name)} h"
            f"{' *' if for_one_type(get_policy(entry.name)) else ''} |"
            for entry in entries
            if _room(entry) == room
        ]
        parts[-1] += "\n" + "\n".join(rows)
    return "\n\n".join(
        [*parts, f"\\* on `{policy_runs.CLUSTER_OF_ONE_TYPE}`, the others on `{policy_runs.CLUSTER}`.", ""]
    )


_OVERVIEW = """# Policies

One page for each: the program in symbols, where it is from, its settings, what an audit of its allocations found, a
small run on the same jobs as all others, and what is compared with its original. `allocator policies` lists them on the
command line; [policies of your own](../policies.md) join the list.
"""


def _room(entry: PolicyEntry) -> str:
    return entry.factory.__module__.split(".")[2]


def _order(room: str) -> int:
    return list(_ROOMS).index(room) if room in _ROOMS else len(_ROOMS)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
