"""Policies that are an order of jobs, each of which takes a gang of GPUs."""
