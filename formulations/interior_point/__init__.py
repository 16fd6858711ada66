"""Interior point methods on the structure of the polytope."""
