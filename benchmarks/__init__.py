"""Measurements, thin over the public API: ``python -m benchmarks``."""
