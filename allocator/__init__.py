"""Scheduling policies for GPU clusters as programs over a throughput matrix."""
