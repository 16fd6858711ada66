"""Clusters that the runtime can drive."""
