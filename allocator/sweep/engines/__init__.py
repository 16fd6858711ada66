"""Where the runs of a sweep happen: processes of this machine, this process, or a Ray cluster."""
