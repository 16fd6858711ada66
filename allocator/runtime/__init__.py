"""The runtime: real jobs under the decision core that the simulator uses."""
