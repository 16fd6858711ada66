"""Ways to solve a packed program."""
