"""What a service has done, as the results of a simulation are, and beside a simulation of the same jobs."""
