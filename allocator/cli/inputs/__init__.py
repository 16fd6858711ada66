"""Commands that make, read and describe inputs: traces, throughput tables, public data."""
