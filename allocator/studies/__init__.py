"""Studies: runs, tables of their means with intervals, and pictures for papers (docs/studies.md)."""
