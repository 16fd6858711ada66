"""What policies of one kind have in common: programs, programs with pairs, closed forms and orders."""
