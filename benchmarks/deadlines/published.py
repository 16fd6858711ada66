"""Deadline satisfactory ratios as printed in Gu et al., "ElasticFlow", ASPLOS 2023 (plot scripts of the artifact)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

POLICIES = ("elasticflow", "edf", "tiresias", "gandiva_time_slicing", "themis", "chronus")
"""Order of the figures below."""

TESTBED_RATIOS: Mapping[str, float] = MappingProxyType(
    dict(zip(POLICIES, (0.6667, 0.0872, 0.4564, 0.2103, 0.3897, 0.4103), strict=True))
)
"""Figure 6b: 195 jobs on a testbed of 16 servers of 8 A100."""

_CLUSTERS = (
    (0.788, 0.182, 0.478, 0.246, 0.464, 0.474),
    (0.822, 0.228, 0.470, 0.286, 0.431, 0.445),
    (0.455, 0.095, 0.401, 0.314, 0.389, 0.426),
    (0.631, 0.007, 0.120, 0.228, 0.432, 0.450),
    (0.832, 0.375, 0.420, 0.228, 0.430, 0.453),
    (0.607, 0.105, 0.466, 0.381, 0.425, 0.432),
    (0.665, 0.046, 0.346, 0.351, 0.437, 0.460),
    (0.896, 0.252, 0.373, 0.325, 0.423, 0.447),
    (0.938, 0.800, 0.468, 0.329, 0.456, 0.466),
    (0.981, 0.769, 0.473, 0.354, 0.431, 0.454),
)

CLUSTER_RATIOS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        f"cluster{number:02d}": MappingProxyType(dict(zip(POLICIES, ratios, strict=True)))
        for number, ratios in enumerate(_CLUSTERS, start=1)
    }
)
"""Figure 8b, simulated: the traces of ten clusters, by the names of their files."""
