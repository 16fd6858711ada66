"""The runtime: fidelity to the simulator, and what it costs."""
