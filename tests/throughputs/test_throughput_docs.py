"""The examples in docstrings and in docs/formats.md are true."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from allocator import get_policy
from allocator.cluster_spec import read_cluster
from allocator.instance import allocation_to_json, state_from_json
from throughputs import Trace, default_table, read_configurations, read_prices, read_table, read_trace, write_trace

FORMATS = Path(__file__).resolve().parents[2] / "docs" / "formats.md"


@pytest.fixture
def examples(tmp_path):
    """A folder with the fenced examples of the page, each under the name given after its language."""
    for name, text in re.findall(r"```\w+ (\S+)\n(.*?)```", FORMATS.read_text(), flags=re.DOTALL):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", ["table.csv", "table.json"])
def test_table_examples(name, examples):
    table = read_table(examples / name)
    assert table.rates(["A3C"], [1], ["v100"]).tolist() == [[7.2]]
    assert table.colocated_rates("A3C", 1, "LM (batch size 20)", 1, ["v100"]).tolist() == [[3.6, 51.6]]


@pytest.mark.parametrize("name", ["gavel", "gavel7", "shockwave"])
def test_text_trace_examples(name, examples):
    original = examples / f"{name}.trace"
    trace = read_trace(original)
    assert trace.total_steps.tolist() == [12000, 250000]
    assert trace.scale_factor.tolist() == [1, 2]
    write_trace(trace, examples / "copy.trace", name)
    assert (examples / "copy.trace").read_text() == original.read_text()


def test_standard_workload_format_example(examples):
    write_trace(read_trace(examples / "jobs.swf"), examples / "copy.swf")
    written = (examples / "copy.swf").read_text().splitlines()
    assert set((examples / "jobs.swf").read_text().splitlines()) <= set(written)


def test_other_examples(examples):
    assert read_trace(examples / "trace.csv").total_steps.tolist() == [250000, 90000.5]
    own = read_trace(examples / "deadlines.csv")
    assert own.deadline.tolist()[:2] == [7200, 3600]
    assert own.deadline_options[1] == ((3600, 10), (7200, 5), (9000, 2))
    assert read_trace(examples / "elasticflow.csv").deadline.tolist()[0] == 5896
    assert read_trace(examples / "chronus.csv").deadline.tolist() == [240 * 60, 300 * 60]
    assert read_trace(examples / "pollux.csv").category.tolist() == ["adaptive", "scale-gpus"]
    assert len(read_table(examples / "throughputs_A100").keys) == 5
    assert str(read_cluster(examples / "cluster.csv", "a100")) == "a100:128"
    prices = read_prices(examples / "prices.csv")
    assert [prices.price_at(t, ["v100"]).item() for t in (0, 1800, 3600)] == [0.9, 0.7, 0.6]
    assert set(read_configurations(examples / "configurations.csv").to_frame().set_index("job").gpus["lm"]) == {1, 2}


def test_the_instance_and_its_answer():
    (text,) = re.findall(r"```json\n(.*?)```", FORMATS.read_text(), flags=re.DOTALL)
    state = state_from_json(json.loads(text))
    assert state.gpu_prices.tolist() == [0.74, 0.43, 0.135]
    policy = get_policy("max_sum_throughput_normalized_by_cost_packed_SLOs")
    table = FORMATS.read_text().split("The answer:")[1].split("## ")[0]
    named = {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")}
    assert named <= set(allocation_to_json(policy.allocate(state)))


def test_the_page_names_every_column_and_count():
    page = FORMATS.read_text()
    assert [name for name in Trace.column_names() if f"| `{name}` |" not in page] == []
    assert f"{len(default_table().to_frame())} figures" in page
