"""Workload traces: reading, writing, generating and describing them."""

from throughputs.traces.deadline_generator import deadline_trace, with_deadlines
from throughputs.traces.description import describe_trace
from throughputs.traces.formats import TRACE_FORMATS, named_format, read_trace, trace_of, write_trace
from throughputs.traces.generator import FixedDuration, LogUniformDurations, TraceGenerator
from throughputs.traces.job_types import JOB_TYPES, JobType, job_type
from throughputs.traces.logs import ImportedLog, import_log

__all__ = [
    "JOB_TYPES",
    "TRACE_FORMATS",
    "FixedDuration",
    "ImportedLog",
    "JobType",
    "LogUniformDurations",
    "TraceGenerator",
    "deadline_trace",
    "describe_trace",
    "import_log",
    "job_type",
    "named_format",
    "read_trace",
    "trace_of",
    "with_deadlines",
    "write_trace",
]
