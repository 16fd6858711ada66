"""Policies of one's own, in a package of their own."""
