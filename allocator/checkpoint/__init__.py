"""Checkpoints: the state of a run in a file of plain data, without pickle."""
