"""What we know about speed: throughput tables, the throughput matrix, workload traces.

Knows nothing of policies. Reads the public formats of Gavel and Shockwave and a tidy format of our own.
"""

from throughputs.columns import Columns, PlainColumns
from throughputs.errors import InputError
from throughputs.matrix import ThroughputMatrix
from throughputs.trace import Trace

__all__ = ["Columns", "InputError", "PlainColumns", "ThroughputMatrix", "Trace"]
