"""Metrics, read by a parser that takes nothing but the format."""

from __future__ import annotations

import asyncio
import re

import pytest

from allocator.runtime.adapters.base import Node
from allocator.runtime.page.history import History
from allocator.runtime.page.metrics import _labels, _number, metrics
from allocator.runtime.records.journal import Event
from tests.runtime.model_cluster import settle
from tests.runtime.page.clusters import make_service, settled, submission

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (NaN|[+-]Inf|[+-]?[0-9.]+(?:e[+-]?[0-9]+)?)")


def parsed(text):
    """Kinds by name of the family, and values by name and labels; fails on whatever the format does not know."""
    assert text.endswith("\n")
    kinds = {}
    helped = set()
    values = {}
    family = ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            _, _, family, words = line.split(" ", 3)
            assert words.strip()
            assert family not in helped
            helped.add(family)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == family
            assert name not in kinds
            assert kind in ("counter", "gauge", "histogram")
            assert (kind == "counter") == name.endswith("_total")
            kinds[name] = kind
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            name, labels, number = found.groups()
            allowed = {family}
            if kinds[family] == "histogram":
                allowed = {f"{family}_bucket", f"{family}_sum", f"{family}_count"}
            assert name in allowed, line
            assert (name, labels or "") not in values, line
            values[name, labels or ""] = float(number.replace("Inf", "inf"))
    assert kinds.keys() == helped
    return kinds, values


async def test_metrics_are_of_the_format_and_right(tmp_path):
    service = make_service(tmp_path)
    history = History(service)
    jobs = settled(service, submission(gpus=2), submission(gpus=1), submission(gpus=2))
    kinds, values = parsed(metrics(service, history))
    assert len(kinds) >= 12
    assert all(name.startswith("allocator_") for name in kinds)
    assert values["allocator_jobs", 'state="running"'] == 2
    assert values["allocator_queue_length_jobs", ""] == 1
    assert values["allocator_gpus", 'accelerator="v100"'] == 2
    assert values["allocator_gpus_busy", 'accelerator="v100"'] + values["allocator_gpus_busy", 'accelerator="k80"'] == 3
    assert values["allocator_nodes", 'state="up"'] == 2
    assert values["allocator_journal_events_total", ""] == history.last > 0
    assert values["allocator_events_total", 'kind="submitted"'] == 3
    buckets = [value for (name, _), value in values.items() if name == "allocator_decision_seconds_bucket"]
    assert buckets == sorted(buckets)
    assert buckets[-1] == values["allocator_decision_seconds_count", ""] >= 1
    assert values["allocator_decision_seconds_sum", ""] > 0

    service.record([Event("ended", jobs[0].uuid, data={"outcome": "failed", "reason": "x", "code": 1})])
    await settle(service)
    _, values = parsed(metrics(service, history))
    assert values["allocator_job_failures_total", ""] == 1
    service.journal.close()


def test_names_of_any_kind_are_labels(tmp_path):
    service = make_service(tmp_path)
    settled(service)
    service.adapter._nodes = (Node('a"b\\c\nd\ud800é', 'ty"pe\\ \n{}', 2), Node("down", "x", 1, up=False))
    asyncio.run(_see(service))
    _, values = parsed(metrics(service, History(service)))
    assert values["allocator_nodes", 'state="down"'] == 1
    assert ("allocator_gpus", 'accelerator="ty\\"pe\\\\ \\n{}"') in values
    service.journal.close()


async def _see(service):
    service.see_nodes(await service.adapter.nodes())


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (3, "3"), (0.25, "0.25"), (float("inf"), "+Inf"), (float("-inf"), "-Inf"), (float("nan"), "NaN")],
)
def test_numbers(value, text):
    assert _number(value) == text


def test_labels():
    assert _labels({}) == ""
    assert _labels({"a": 'x"\n\\', "b": ""}) == '{a="x\\"\\n\\\\",b=""}'
