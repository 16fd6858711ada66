"""The simulated world of jobs whose goodput changes as they train."""
