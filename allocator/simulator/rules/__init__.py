"""What published simulators do that others do not: rules of rounds, and of stretches between events."""
