"""Lucid on virtual clusters: its three forms under score budgets from 0 to 4, beside the orders of its paper.

python -m benchmarks lucid          # average JCT by score budget, CPU time of a large run
python notebooks/run.py lucid       # the study: JCT and queueing, by virtual cluster and by size too
"""

from benchmarks.lucid.measure import measure, table
from benchmarks.lucid.setting import BUDGETS, FORMS, ORDERS, Setting
from benchmarks.lucid.study import Study, run_study

__all__ = ["BUDGETS", "FORMS", "ORDERS", "Setting", "Study", "measure", "run_study", "table"]
