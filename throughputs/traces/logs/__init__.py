"""Job logs of one's own clusters: reading them, and turning them into traces."""

from throughputs.traces.logs.log import ImportedLog, import_log

__all__ = ["ImportedLog", "import_log"]
