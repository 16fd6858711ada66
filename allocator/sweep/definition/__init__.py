"""What a sweep is made of: its definition as a file has it, and the points that follow from it."""
