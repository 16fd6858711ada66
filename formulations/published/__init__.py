"""The paths of published systems' solvers, step by step."""
