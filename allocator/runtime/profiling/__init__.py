"""How fast programs run on the accelerators of this machine: measured, with its spread, as a throughput table."""
