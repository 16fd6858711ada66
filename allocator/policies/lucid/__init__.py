"""Lucid: new jobs are profiled, jobs that hardly disturb each other share GPUs, short ones go first."""
