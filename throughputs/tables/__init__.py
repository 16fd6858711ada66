"""Throughput tables (the oracle): the table, the embedded one, and readers and writers of the public formats.

>>> from throughputs.tables import default_table
>>> default_table().accelerators
('v100', 'p100', 'k80')
"""

from throughputs.tables.files import default_table, read_table, write_table
from throughputs.tables.table import UNCONSOLIDATED, Key, ThroughputTable

__all__ = ["UNCONSOLIDATED", "Key", "ThroughputTable", "default_table", "read_table", "write_table"]
