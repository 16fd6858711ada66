"""Water levels: lexicographic max-min fairness, flat or through a hierarchy."""
