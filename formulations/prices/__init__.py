"""The search for prices: programs over many jobs by their duals."""
