"""Which rounds of the window a job gets: a schedule and its repair."""
