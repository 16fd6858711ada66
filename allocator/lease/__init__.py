"""The trainer's side of a lease: no dependency, and nothing to do outside the scheduler."""
