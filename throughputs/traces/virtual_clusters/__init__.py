"""Logs of clusters that are divided into virtual ones, and predictions of how long their jobs run."""
