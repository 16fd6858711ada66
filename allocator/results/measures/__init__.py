"""Measures of a finished run: completion and queueing times, parts of the jobs, fragmentation, contention."""
