"""Where the runs of a sweep happen: processes of this machine, or a Ray cluster."""
