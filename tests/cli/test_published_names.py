"""Policies by the names that ElasticFlow's published simulator has for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_deadline_options import ran
from tests.reference.test_elasticflow_baselines import FIVE_JOBS

SPEEDS = """global_batch_size,1,2
64,28.60476646243157,27.6
128,26.39903482326002,26.9
256,19.647666084668582,24.0
"""


@pytest.mark.parametrize(
    ("published", "name", "met"), [("dlas-gpu", "tiresias", 4), ("gandiva", "gandiva_time_slicing", 3)]
)
def test_a_published_name_is_that_policy_with_its_published_settings(published, name, met, tmp_path: Path) -> None:
    folder = tmp_path / "throughputs_A100"
    folder.mkdir()
    (folder / "resnet50_cifar10.csv").write_text(SPEEDS)
    (tmp_path / "five.csv").write_text(FIVE_JOBS)
    inputs = ("simulate", "--preset", "elasticflow", "--slot", "240", "--trace", str(tmp_path / "five.csv"))
    inputs += ("--throughputs", str(folder), "--cluster", "a100:8", "--gpus-per-server", "a100:8", "--json")
    one, other = (json.loads(ran(*inputs, "--policy", policy, "--out", str(tmp_path))) for policy in (published, name))
    assert (one["policy"], one["met"]) == (name, met)
    assert one["settings"]["policy_settings"] == other["settings"]["policy_settings"]
    assert any(key.startswith("published") and value for key, value in one["settings"]["policy_settings"].items())
