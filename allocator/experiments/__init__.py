"""Experiments: a run declared once, and what is made of many: comparisons, sweeps, what-if questions, their engines
and stores."""
