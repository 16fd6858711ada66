"""Configurations: every way in which a job, or two jobs, can run, as columns with labels.

>>> from throughputs import default_table
>>> ways = Configurations.from_table(default_table(), ["LM (batch size 20)", "A3C"], ["v100", "k80"], jobs=["lm", "rl"])
>>> ways.to_frame().head(3).round(1)
  job  pool  gpus   rate
0  lm  v100     1   64.7
1  lm  v100     2  132.2
2  lm  v100     4  111.0
"""

from throughputs.configurations.configurations import Configurations, read_configurations, write_configurations

__all__ = ["Configurations", "read_configurations", "write_configurations"]
