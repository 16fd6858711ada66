"""The elastic trainer of docs/ray.md runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.examples.test_training_examples import needs
from tests.lease.jobs import ROOT


@needs("torch")
@pytest.mark.deep
def test_the_elastic_trainer_of_the_page(tmp_path):
    page = (ROOT / "docs" / "ray.md").read_text()
    (program,) = re.findall(r"test_ray_example.py -->\n```python\n(.*?)```", page, re.S)
    assert len(program.splitlines()) <= 40
    (tmp_path / "trainer.py").write_text(program)
    variables = _variables(tmp_path) | {"RAY_ADDRESS": "local"}
    done = subprocess.run([sys.executable, "trainer.py"], cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()[-1]
    assert float(said.split()[0]) > 0, "the loss"


def _variables(folder):
    return os.environ | {"HOME": str(folder), "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
