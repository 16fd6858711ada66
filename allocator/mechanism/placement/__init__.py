"""Placement: which GPUs a row gets."""
