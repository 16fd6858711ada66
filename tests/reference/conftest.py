"""Recorded decisions for the tests of this folder."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def decisions(reference_data: Callable[[str], Path]) -> dict[str, dict[str, Any]]:
    """Recorded decisions of the original system by the name of the instance."""
    with gzip.open(reference_data("gavel/policy_reference.json.gz")) as file:
        return {record["instance"]["name"]: record for record in json.load(file)}
