"""Quotas of entities, borrowing within cohorts, and priorities with preemption, as batch systems have them."""
