"""Statements of the programs for general solvers."""
