"""Chronus: jobs with strict, soft and no deadlines on leases."""
