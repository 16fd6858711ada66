"""Worlds of published systems as their artifacts have them, with rules that nobody else needs."""
