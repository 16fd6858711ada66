"""From a program to a certified, chosen solution."""
