"""What we know about speed: throughput tables, the throughput matrix, workload traces.

Knows nothing of policies. Reads the public formats of Gavel and Shockwave and a tidy format of our own.

>>> table = default_table()
>>> trace = TraceGenerator(n_jobs=20, seed=1).generate()
>>> matrix = table.matrix(range(20), trace.job_type, trace.scale_factor, ["v100", "p100", "k80"])
>>> matrix.rates.shape
(20, 3)
"""

from typing import Any

from throughputs.colocation.model import (
    ColocationModel,
    InterferenceModel,
    RetainedFractions,
    default_colocation,
    retained_fractions,
)
from throughputs.configurations import Configurations, read_configurations, write_configurations
from throughputs.entry_points import load
from throughputs.errors import InputError
from throughputs.estimator import ThroughputEstimator
from throughputs.matrix import ThroughputMatrix
from throughputs.packed import PackedColumns, PlainColumns
from throughputs.prices import PriceTable, read_prices, write_prices
from throughputs.tables.files import default_table, read_table, write_table
from throughputs.tables.table import ThroughputTable
from throughputs.trace import Trace
from throughputs.traces import (
    JOB_TYPES,
    FixedDuration,
    ImportedLog,
    JobType,
    LogUniformDurations,
    TraceGenerator,
    deadline_trace,
    describe_trace,
    import_log,
    job_type,
    read_trace,
    trace_of,
    with_deadlines,
    write_trace,
)

__all__ = [
    "JOB_TYPES",
    "ColocationModel",
    "Configurations",
    "FixedDuration",
    "ImportedLog",
    "InputError",
    "InterferenceModel",
    "JobType",
    "LogUniformDurations",
    "PackedColumns",
    "PlainColumns",
    "PriceTable",
    "RetainedFractions",
    "ThroughputEstimator",
    "ThroughputMatrix",
    "ThroughputTable",
    "Trace",
    "TraceGenerator",
    "deadline_trace",
    "default_colocation",
    "default_table",
    "describe_trace",
    "gavel_trace",
    "import_log",
    "job_type",
    "read_configurations",
    "read_prices",
    "read_table",
    "read_trace",
    "retained_fractions",
    "trace_of",
    "with_deadlines",
    "write_configurations",
    "write_prices",
    "write_table",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    if name == "gavel_trace":  # draw for draw as published: of a published system
        return load("draws", "gavel")
    raise AttributeError(f"module 'throughputs' has no attribute {name!r}")
