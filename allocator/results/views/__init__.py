"""How people read a run: typed figures and pictures."""
