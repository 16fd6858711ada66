"""A trace in figures: its jobs, and what they ask of a cluster."""

from throughputs.traces.description.describe import describe_trace

__all__ = ["describe_trace"]
