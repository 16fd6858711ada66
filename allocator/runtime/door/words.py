"""Events of the journal in words, for terminals and for the page."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from typing import Any

_WIDTH = 100
"""Characters of a line, where people look at it; what is longer is in the details."""

_Data = Mapping[str, Any]


def span(seconds: float | None) -> str:
    """A length of time, short."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.0f}s"
    if seconds < 3600:
        return f"{seconds / 60:.1f}m"
    return f"{seconds / 3600:.1f}h" if seconds < 172_800 else f"{seconds / 86_400:.1f}d"


def words(kind: str, data: _Data) -> str:
    """What happened."""
    return _WORDS[kind](data) if kind in _WORDS else f"{kind} {details(data)}"


def event_line(event: Mapping[str, Any], width: int = _WIDTH) -> str:
    """When, whose, and what happened, in at most so many characters."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event["at"]))
    whose = f"job {event['job']} " if event.get("job") is not None else ""
    line = " ".join(f"{stamp} {whose}{words(event['kind'], event['data'])}".split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def details(data: _Data) -> str:
    """All that an event says, but for what is long."""
    shown = {key: value for key, value in data.items() if value not in ("", None, {}, [], False) and key not in _LONG}
    return ", ".join(f"{key} {value}" for key, value in shown.items())


_LONG = {"environment", "nodes", "ahead"}


def _because(what: str) -> Callable[[_Data], str]:
    """What happened and why, where that says more."""
    return lambda data: f"{what}: {data['reason']}" if data.get("reason", "") not in ("", what) else what


def _submitted(data: _Data) -> str:
    gpus = data.get("gpus", 1)
    told = [f"{gpus} GPU{'s' * (gpus != 1)}"]
    told += [f"{data['total_steps']:g} steps"] if data.get("total_steps") else []
    told += [span(data["duration"])] if data.get("duration") else []
    told += [data["job_type"]] if data.get("job_type") else []
    told += ["with a deadline"] if data.get("deadline") is not None else []
    return f"submitted, {', '.join(told)}: {shlex.join(data['command'])}"


def _starting(data: _Data) -> str:
    places = " ".join(f"{node}:{','.join(map(str, at))}" for node, at in data["places"].items())
    again = f" (start {data['epoch']})" if data["epoch"] > 1 else ""
    return f"starts on {data['pool']}, {places}{again}"


def _ended(data: _Data) -> str:
    outcome, late = data["outcome"], data.get("late_seconds")
    if outcome != "completed":
        return _because("stopped" if outcome == "yielded" else outcome)(data)
    in_time = "" if late is None else f", {span(late)} after its deadline" if late else ", in time"
    return f"completed{in_time}"


def _resized(data: _Data) -> str:
    wishes = (("gpus", "{} GPUs"), ("batch_size", "batch size {}"))
    return "asks for " + ", ".join(words.format(data[name]) for name, words in wishes if data.get(name))


def _decision(data: _Data) -> str:
    asked = f"the policy took {1000 * data['seconds']:.1f} ms" if data["asked"] else "the policy was not asked"
    told = ", ".join(text for text in (asked, data["status"]) if text)
    return f"decision: {data['jobs']} job{'s' * (data['jobs'] != 1)} to run; {told}"


def _cluster(data: _Data) -> str:
    nodes = data["nodes"]
    return "; ".join(_because(f"node {node['name']} is {_state_of(node)}")(node) for node in nodes)


def _state_of(node: _Data) -> str:
    return ("drained" if node.get("drained") else "up") if node["up"] else "down"


_WORDS: dict[str, Callable[[_Data], str]] = {
    "submitted": _submitted,
    "starting": _starting,
    "running": _because("runs"),
    "stopping": _because("is told to end"),
    "progress": lambda data: f"has done {data['steps']:g} steps, {data['saved_steps']:g} of them saved",
    "ended": _ended,
    "resized": _resized,
    "found": lambda data: f"was started {data['epoch']} times, as the cluster knows",
    "rejected": _because("rejected"),
    "cancelled": _because("cancelled"),
    "gave_up": _because("given up"),
    "timed_out": _because("timed out"),
    "lingers": lambda data: data["reason"],
    "measured": lambda data: f"makes {data['rate']:.4g} steps/s on {data['gpus']} {data['pool']}",
    "node": lambda data: f"node {data['name']} {'gets no more jobs' if data['drained'] else 'is in use again'}",
    "policy": lambda data: f"policy {data['name']} {details(data.get('settings') or {})}",
    "service": lambda data: f"a service begins, process {data['pid']}",
    "cluster": _cluster,
    "run": lambda data: f"decides by {data['policy']} {details(data.get('policy_settings') or {})}",
    "decision": _decision,
}
"""By kind; `allocator.runtime.records.book` lists the kinds and their data."""
