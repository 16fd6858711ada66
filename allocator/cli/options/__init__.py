"""The options that several commands share, and what is made of their values."""
