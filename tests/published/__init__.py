"""Worlds, policies and rules of published systems: what they do otherwise than ours."""
